"""A model at labels it was never trained on.

By entailment where it has such a head, else by the nearest label text; or by a pattern with a mask, or a prompt.

    [CLS] text [SEP] This example is LABEL. [SEP] -> an entailment model -> how much it follows     Yin et al. 2019
    vector of the text, vector of the label       -> how alike
    a dull film. It was bad                       -> a causal model -> log p(good | all of it), log p(bad | all of it)
    a quiet, lovely film. It was [MASK]

A prompt may begin with examples (Brown et al. 2020, arXiv:2005.14165, 2.4). A model prefers some words, and those of
the last examples, whatever the text is. So what it says to an empty text can be subtracted (Zhao et al. 2021,
arXiv:2102.09690).

E examples · C candidates · L labels · W sequences · N tokens of words · V vocabulary · H hidden size
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bertie.errors import DataError, UsageError, WrongModel
from bertie.files import Json
from bertie.infer.perplexity import language_head, target_log_probabilities
from bertie.infer.predict import Predictor
from bertie.infer.texts import each_text
from bertie.io.tables import Example
from bertie.models.facts import Facts
from bertie.tasks import Task
from bertie.tasks.answerer import Logits, Prediction, softmax
from bertie.tasks.capabilities import Embeds
from bertie.tasks.embed import EmbedTask, compare_vectors
from bertie.tasks.pattern import PatternTask
from bertie.tasks.sequence import SequenceTask
from bertie.tasks.source import encode_examples
from bertie.text.sequences import Int, Sequences
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TooLong

if TYPE_CHECKING:
    from bertie.infer.engine import Engine
    from bertie.models.model import TorchModel
    from bertie.text.tokenizer import Tokenizer


HYPOTHESIS = "This example is {}."


def hypotheses(labels: Sequence[str], hypothesis: str) -> list[str]:
    """Returns the hypothesis of each label. Raises UsageError for no labels, a repeated label, or a missing {}."""
    if not labels or len(set(labels)) < len(labels) or not all(label.strip() for label in labels):
        raise UsageError(f"Name the candidates, each once: refund,delivery,praise (given: {', '.join(labels) or '-'}).")
    if hypothesis.count("{}") != 1:
        raise UsageError(f"The hypothesis needs one {{}}, where the label goes: {hypothesis!r}. Example: {HYPOTHESIS}")
    return [hypothesis.replace("{}", label) for label in labels]


@dataclass(frozen=True)
class EntailedTask(SequenceTask):
    """The label whose hypothesis follows most. multi: each label by itself, against what the text contradicts.

    entails, contradicts: which of the head's outputs say so.
    """

    hypothesis: str = HYPOTHESIS
    multi: bool = False
    entails: int = 0
    contradicts: int = 0

    def __post_init__(self) -> None:
        hypotheses(self.labels, self.hypothesis)

    def encode(
        self, examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int, too_long: TooLong
    ) -> Sequences:
        """Each text with each hypothesis; of those too long the text is cut."""
        claims = hypotheses(self.labels, self.hypothesis)
        pairs = [Example((" ".join(example.texts), claim)) for example in examples for claim in claims]
        encoded = encode_examples(pairs, tokenizer, max_length=max_length, too_long="truncate")
        return encoded.grouped([len(claims)] * len(examples))

    def decode(self, logits: Logits, encoded: Sequences, examples: Sequence[Example]) -> list[Prediction]:
        """Returns one label, or (multi) all labels with a probability above 0.5. logits (W, L)"""
        of_each = self.multi or len(self.labels) == 1
        if of_each:
            scores_EC = softmax(logits[:, [self.contradicts, self.entails]])[:, 1].reshape(len(examples), -1)
        else:
            scores_EC = softmax(logits[:, self.entails].reshape(len(examples), -1))
        answers = []
        for row in scores_EC.tolist():
            by_label = dict(zip(self.labels, row, strict=True))
            if self.multi:
                answers.append(Prediction(tuple(label for label, p in by_label.items() if p >= 0.5), None, by_label))
            else:
                best = max(by_label, key=by_label.__getitem__)
                answers.append(Prediction(best, by_label[best], by_label))
        return answers

    @classmethod
    def of_model(cls, facts: Facts, settings: Json) -> Self | None:
        """Where a head on sequences has a label that begins with "entail"; settings: the labels as `labels` too."""
        names = [label.lower() for label in facts.labels]
        entails = [number for number, name in enumerate(names) if name.startswith("entail")]
        if "sequence" not in facts.heads or len(entails) != 1 or len(names) < 2:
            return None
        no = [number for number, name in enumerate(names) if name.startswith(("contra", "not"))]
        contradicts = no[0] if no else (len(names) - 1 if entails[0] == 0 else 0)
        return cls(**settings, entails=entails[0], contradicts=contradicts)


@dataclass(frozen=True)
class NearestTask(EmbedTask):
    """The label whose text's vector is nearest to that of a text. vectors_CH: those of the labels."""

    vectors_CH: Any = None

    csv_columns = ("label", "scores")

    @classmethod
    def of(cls, own: Embeds, labels: tuple[str, ...], vectors_CH: Logits) -> Self:
        """Returns the task of a model's vectors, with the vectors of the labels."""
        return replace(cls(**{**own.settings(), "dense": own.dense}), labels=labels, vectors_CH=vectors_CH)

    def decode(self, logits: Logits, encoded: Sequences, examples: Sequence[Example]) -> list[Prediction]:
        """The nearest label, and how near each is. Raises DataError for a pair of texts."""
        if any(len(example.texts) != 1 for example in examples):
            raise DataError("Candidates are labels of single texts; these are pairs. Name the column with --text.")
        answers = []
        for row in compare_vectors(self.finished(logits), self.vectors_CH, self.similarity).tolist():
            by_label = dict(zip(self.labels, row, strict=True))
            answers.append(Prediction(self.labels[int(np.argmax(row))], None, by_label))
        return answers


@dataclass(frozen=True)
class PromptTask(PatternTask):
    """One of `labels` for each text, whose word is most probable after it. It is not trained.

    Attributes:
        shown: What precedes every text: examples with their words.
    """

    shown: str = ""

    head = "lm"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pattern.partition("[MASK]")[2].strip():
            raise UsageError(
                f"The pattern is {self.pattern!r}. This model reads from left to right, so [MASK] must be its end."
            )

    def with_examples(self, examples: Sequence[Example]) -> Self:
        """Returns the task that shows examples first. Raises DataError for a label without a word."""
        for example in examples:
            if example.label not in self.words:
                raise DataError(f"The examples have the label {example.label!r}, which has no word. Add LABEL=WORD.")
        filled = (self._filled(example.texts, self.words[str(example.label)])[0] for example in examples)
        return replace(self, shown="".join(f"{text}\n" for text in filled))

    def tokens_of(self, tokenizer: Tokenizer) -> list[int]:
        """Returns nothing: words may have any number of tokens, which `encode` reads."""
        del tokenizer
        return []

    def encode(
        self, examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int, too_long: TooLong
    ) -> Sequences:
        """Returns each prompt with the word of each label, asked for its tokens. Long prompts keep their end."""
        self.check_windows(too_long)
        start = tokenizer.frames[0].gaps[0]
        before = [self.shown + text[:at] for text, _, at in (self._filled(one.texts, "") for one in examples)]
        space = " " * self.pattern.partition("[MASK]")[0].endswith(" ")
        words = tokenizer.ids([space + word for word in self.words.values()])
        if known := [
            w for w, ids in zip(self.words.values(), words, strict=True) if tokenizer.unk_id in ids or not ids
        ]:
            raise UsageError(f"{known[0]!r} is not in the vocabulary of this model. Choose another word.")
        room = max_length - len(start) - max(map(len, words))
        ids, positions, long, end = list[Int](), list[Int](), [], 0
        for number, prompt in enumerate(tokenizer.ids([text.rstrip() for text in before])):
            if len(prompt) > room:
                long.append(number)
            head = [*start, *prompt[max(0, len(prompt) - room) :]]
            if room < 1 or not head:
                raise UsageError("The pattern has no room, or no text before [MASK]. Raise max_length, or add a text.")
            for word in words:
                ids.append(np.array([*head, *word], np.int64))
                positions.append(end + len(head) - 1 + np.arange(len(word)))
                end += len(ids[-1])
        encoded = replace(Sequences.of(ids), positions=np.concatenate([np.zeros(0, np.int64), *positions]))
        grouped = encoded.grouped([len(words)] * len(examples))
        return replace(grouped, too_long=np.array(long, np.int64))

    def label_scores(self, logits: Logits, encoded: Sequences) -> Logits:
        """Returns the mean log p of the tokens of each word. logits (N, V) -> (E, L)"""
        sequence_N = encoded.sequence[encoded.positions]
        nats_N = target_log_probabilities(logits, encoded.input_ids[encoded.positions + 1])
        sums_W = np.bincount(sequence_N, nats_N, len(encoded))
        means_W: Logits = (sums_W / np.bincount(sequence_N, minlength=len(encoded))).astype(np.float32)
        return means_W.reshape(-1, len(self.labels))


def choose_from(
    model: "TorchModel | Engine",
    candidates: Sequence[str],
    tokenizer: "Tokenizer | None" = None,
    *,
    hypothesis: str | None = None,
    multi: bool = False,
    max_length: int | None = None,
) -> Predictor:
    """Returns a predictor that chooses one of the candidates for a text, or (multi) any number of them.

    hypothesis: a sentence about the text with {} for the label. Default for vectors: only the label. Raises
    UsageError: no candidates, or a model that has neither an entailment head nor vectors.
    """
    labels = tuple(each_text(candidates, "candidates"))
    predictor = Predictor(model, tokenizer, max_length=max_length, too_long="truncate")
    entailed = EntailedTask.of_model(
        predictor.engine.facts, {"labels": labels, "hypothesis": hypothesis or HYPOTHESIS, "multi": multi}
    )
    task: Task | None = predictor.pipeline.task_or_none
    if entailed is not None:
        task = entailed
    elif isinstance(task, Embeds):
        if multi:
            raise UsageError("A model of sentence vectors chooses one label, the nearest. Omit --multi (multi=True).")
        claims = hypotheses(labels, hypothesis or "{}")
        vectors_CH = np.array([answer.label for answer in predictor.predict(claims)], np.float32)
        task = NearestTask.of(task, labels, vectors_CH)
    else:
        known = ", ".join(predictor.engine.facts.labels) or "none"
        raise UsageError(
            "Candidates need an entailment model, whose labels name it (entailment, contradiction ...), or a model of "
            f"sentence vectors. This model has neither; its labels: {known}."
        )
    return predictor.replace(task_or_none=task, texts=1)


def fill_in(
    model: "TorchModel | Engine",
    pattern: str,
    words: Mapping[str, str],
    tokenizer: "Tokenizer | None" = None,
    *,
    demonstrations: Sequence[Example] = (),
    calibrate_prompt: bool = False,
    max_length: int | None = None,
    too_long: TooLong | None = None,
) -> Predictor:
    """Returns a predictor that chooses the label whose word fits best into a pattern with [MASK].

    A causal model reads the demonstrations first. calibrate_prompt: whether what it says to an empty text is
    subtracted. Raises UsageError: a model without a masked-LM or a causal head, a pattern without a mask, a word of
    several tokens, or demonstrations for a masked model.
    """
    predictor = Predictor(model, tokenizer, max_length=max_length, too_long=too_long)
    settings, texts = {"pattern": pattern, "words": words}, pattern.count("{}") or None
    task: PatternTask
    if language_head(predictor.engine.facts) == PromptTask.head:
        task = PromptTask.make((), settings).with_examples(demonstrations)
    else:
        PatternTask.check_head(PatternTask.head in predictor.engine.facts.heads)
        if demonstrations:
            raise WrongModel(
                "`demonstrations` need a model that reads from left to right, as GPT. Omit them, or train the pattern: "
                "bertie help few-labels"
            )
        task = PatternTask.make((), settings)
    predictor = predictor.replace(task_or_none=task, texts=texts)
    if calibrate_prompt:
        empty = predictor.pipeline.encode([Example(("",) * (texts or 1))])
        ready = task.with_tokenizer(predictor.tokenizer)
        prior = ready.label_scores(predictor.logits(empty), empty)[0].tolist()
        predictor = predictor.replace(task_or_none=replace(task, prior=tuple(prior)))
    return predictor
