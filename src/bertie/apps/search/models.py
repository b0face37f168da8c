"""The models of a search: vectors of passages and questions, re-ranking, and answers. Each is a loaded `Predictor`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bertie.apps.search.engine import Float
from bertie.platform import Chooses, Example, ModelFolder, Predictor, Spans, UsageError

PROMPTS = {"query": ("query",), "passage": ("document", "passage", "corpus")}  # names in sentence-transformers


@dataclass(frozen=True)
class Embedder:
    """A model of vectors. folder, content: where it is, and a hash of its files, which the index stores."""

    folder: str
    content: str
    load: Callable[[], Predictor]

    @classmethod
    def of(cls, folder: Path, load: Callable[[], Predictor]) -> "Embedder":
        """Returns the model of a folder, which is loaded when it is needed."""
        return cls(str(folder.resolve()), ModelFolder(folder).identity, cache(load))


def embed_texts(embedder: Predictor, texts: Sequence[str], role: str = "passage") -> Float:
    """Returns a vector of length 1 for each text; zeros for an empty one. (N, H)

    role: query or passage. The prompt that the model has for it is put before the text, else its default prompt.
    """
    task = embedder.embedding
    prompts = embedder.engine.facts.sentence.prompts
    prompt = next((prompts[name] for name in PROMPTS[role] if name in prompts), task.prompt)
    if prompt != task.prompt:
        embedder = embedder.replace(task_or_none=task.with_prompt(prompt))
    sums = np.zeros((len(texts), task.width(embedder.engine.facts.hidden_size)), np.float32)
    filled = [number for number, text in enumerate(texts) if text.strip()]
    if filled:
        sums[filled] = [np.asarray(answer.label) for answer in embedder.predict([texts[number] for number in filled])]
    vectors: Float = sums / np.maximum(np.linalg.norm(sums, axis=-1, keepdims=True), 1e-12)
    return vectors


def passage_relevance(ranker: Predictor, question: str, texts: Sequence[str]) -> list[float]:
    """Returns how relevant each text is to a question, higher is better.

    A model of the task `rank` or another of two labels gives the log-odds of its last label; one of the task `choice`,
    which learns from lists of passages, its score; a cross-encoder of `sentence-transformers`, its number. Raises
    UsageError for another model.
    """
    task = ranker.task
    if not texts:
        return []
    if isinstance(task, Chooses):
        pair_list = [Example((question, *texts))]
        ranker = ranker.replace(too_long="truncate")
        encoded = ranker.encode(pair_list)
        (scores,) = task.choice_scores(ranker.logits(encoded), encoded)
        return [float(score) for score in scores.ravel()]
    if ranker.pipeline.fixed_texts == 1:
        raise UsageError(
            "This model cannot rank: it reads single texts, not pairs.",
            hint="Fine-tune one with --task rank.",
            code="wrong-model",
        )
    answers = ranker.predict([(question, text) for text in texts])
    if task.exclusive and len(task.labels) == 2:
        yes = np.array([answer.scores[task.labels[-1]] for answer in answers], np.float64).clip(1e-9, 1 - 1e-9)
        return [float(odds) for odds in np.log(yes / (1 - yes))]
    if all(isinstance(answer.label, float) for answer in answers):
        return [answer.number for answer in answers]
    raise UsageError(
        "This model cannot rank: it needs two labels, one score, or the task `rank` or `choice`.", code="wrong-model"
    )


@dataclass(frozen=True)
class PassageAnswer:
    """A span of a passage. score: its logits minus those of no answer; passage: its number among the texts."""

    text: str
    start: int
    end: int
    score: float
    passage: int
    silent: bool

    def as_json(self) -> dict[str, Any]:
        """Returns the fields as JSON values."""
        return {"text": self.text, "start": self.start, "end": self.end, "score": round(self.score, 4)}


def span_answers(reader: Predictor, question: str, texts: Sequence[str]) -> list[PassageAnswer]:
    """Returns the best span of each text that has one, best first. Raises UsageError for a model of another task."""
    task = reader.task
    if not isinstance(task, Spans):
        raise UsageError("This model gives no answers: fine-tune one with --task span.", code="wrong-model")
    answers = []
    filled = [number for number, text in enumerate(texts) if text.strip()]  # a document may be a title alone
    read = reader.predict([(question, texts[number]) for number in filled]) if filled else ()
    for number, answer in zip(filled, map(task.spans_of, read), strict=True):
        if answer.spans:
            span, score = answer.spans[0], -answer.label.no_answer
            silent = answer.threshold is not None and answer.label.no_answer > answer.threshold
            answers.append(PassageAnswer(span.text, span.start, span.end, score, number, silent))
    return sorted(answers, key=lambda answer: -answer.score)
