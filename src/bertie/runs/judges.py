"""What other models say of training texts, computed once before a run: for tasks that learn from it.

    guide      a model of sentence embeddings: the vectors of all texts            "guide" (W, G) float16
    teacher    a cross-encoder: a score for each anchor with each other text       "score" (W,) float32

W texts, those of each example one after the other · G numbers of the guide's vectors
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bertie.console import console
from bertie.errors import DataError, UsageError
from bertie.infer.batching import CHUNK_ROWS
from bertie.infer.embed import make_embedder
from bertie.infer.predict import Predictor
from bertie.io.lines import BadRecord
from bertie.io.tables import Example
from bertie.runs.opening import open_engine
from bertie.tasks import Task
from bertie.tasks.capabilities import Judged
from bertie.tasks.source import Targets


def with_judgments(task: Task, examples: Sequence[Example], targets: Targets, device: str) -> Targets:
    """Returns the targets with what the models of the task's settings say of the texts.

    Raises UsageError for a teacher that does not score pairs, and as `open_engine`.
    """
    if not isinstance(task, Judged):
        return targets
    sequence = {**targets.sequence}
    if task.guide:
        sequence["guide"] = _vectors(task.guide, [text for one in examples for text in one.texts], device)
    if task.teacher:
        sequence["score"] = _scores(task.teacher, examples, device)
    return replace(targets, sequence=sequence)


def _vectors(model: str, texts: Sequence[str], device: str) -> NDArray[np.float16]:
    """Returns the vectors of texts, of those that repeat once computed. (W, G)"""
    predictor = make_embedder(*open_engine(model, device=device))
    different = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    vectors = list[object]()
    with console.progress("vectors of the guide", len(different), unit="texts") as advance:
        for _, answer in predictor.stream([Example((text,)) for text in different]):
            if isinstance(answer, BadRecord):
                raise DataError(f"The guide {model} cannot read a training text: {answer.reason}.")
            vectors.append(answer.label)
            advance(1)
    return np.array(vectors, np.float16)[[different[text] for text in texts]]


def _scores(model: str, examples: Sequence[Example], device: str) -> NDArray[np.float32]:
    """Returns 0 for each anchor, and the score of each other text of its example. (W,)"""
    predictor = Predictor(*open_engine(model, device=device))
    if len(predictor.labels) not in (1, 2) or predictor.pipeline.texts == 1:
        raise UsageError(f"The teacher {model} does not score pairs. Choose a model of the task rank or regression.")
    pairs = [Example((one.texts[0], text)) for one in examples for text in one.texts[1:]]
    scores = list[NDArray[np.float32]]()
    with console.progress("scores of the teacher", len(pairs), unit="pairs") as advance:
        for start in range(0, len(pairs), CHUNK_ROWS):
            encoded = predictor.encode(pairs[start : start + CHUNK_ROWS])
            logits_EL = encoded.mean_of_windows(predictor.logits(encoded))
            scores.append(logits_EL[:, -1] - (logits_EL[:, 0] if logits_EL.shape[1] == 2 else 0))
            advance(encoded.examples)
    every, sizes = iter(np.concatenate(scores)), [len(one.texts) for one in examples]
    return np.array([0.0 if place == 0 else next(every) for size in sizes for place in range(size)], np.float32)
