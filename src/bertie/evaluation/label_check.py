"""Training rows whose labels are probably wrong: those that out-of-fold predictions contradict.

    rows -> folds -> a model of the other folds predicts each fold -> confident learning (evaluation/label_check.py)

A model must not be trained on the rows that it checks: it learns their wrong labels too.

E examples · L labels
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertie.evaluation.baselines import cross_fitted
from bertie.files import JsonObject
from bertie.tasks import Example, Prediction, Task

Int = NDArray[np.int64]


def contradicted(probability_EL: NDArray[np.float64], label_E: Int) -> tuple[Int, Int]:
    """Returns the examples whose labels are probably wrong, the most contradicted first, and the suggested labels.

    probability_EL: predictions by models that were not trained on the example. The threshold of a label is its mean
    probability among the examples that have the label (2021, equation 2). A label is possible for an example if its
    probability is at least the threshold. An example is contradicted if the most probable of its possible labels is
    another one. The order is by normalized margin: the probability of its label minus the largest other one.
    """
    rows_E, count = np.arange(len(label_E)), probability_EL.shape[1]
    own_E = probability_EL[rows_E, label_E]
    seen_L = np.bincount(label_E, minlength=count)
    usual_L = np.where(seen_L > 0, np.bincount(label_E, own_E, count) / np.maximum(1, seen_L), np.inf)
    possible_EL = probability_EL >= usual_L
    suggested_E = np.where(possible_EL, probability_EL, -1.0).argmax(1)
    other_EL = probability_EL.copy()
    other_EL[rows_E, label_E] = -np.inf
    rows = np.flatnonzero(possible_EL.any(1) & (suggested_E != label_E))
    order = np.argsort((own_E - other_EL.max(1))[rows], kind="stable")
    return rows[order], suggested_E[rows[order]]


FOLDS = 5
Predict = Callable[[list[Example], list[Example]], Sequence[Prediction]]
"""Training examples, examples to predict -> predictions."""


@dataclass(frozen=True)
class Suspect:
    """A training row whose label is probably wrong. predicted: of a model that was not trained on the row."""

    example: Example
    suggested: str
    predicted: Mapping[str, float]

    def as_json(self) -> JsonObject:
        """Returns the suggested label, and the probabilities of both."""
        return {
            "suggested": self.suggested,
            "probability": round(self.predicted.get(str(self.example.label), 0.0), 4),
            "suggested_probability": round(self.predicted.get(self.suggested, 0.0), 4),
        }

    def shown(self, most: int = 200) -> JsonObject:
        """Returns the row for a report: its texts in one, cut to `most` characters."""
        text, own = " | ".join(self.example.texts), {"line": self.example.line, "label": str(self.example.label)}
        return {**own, **self.as_json(), "text": text[:most] + " ..." * (len(text) > most)}


def suspects(task: Task, train: Sequence[Example], predict: Predict | None = None) -> list[Suspect]:
    """Returns the rows whose labels are probably wrong, the most contradicted first.

    predict: the model that is trained on the other folds; by default tf-idf and logistic regression. Rows of a label
    with fewer than FOLDS rows are not checked.
    """
    parts, scores_of = list(folds(train, task.group)), dict[int, Mapping[str, float]]()
    if predict is None:
        scores_of = cross_fitted(task, train, parts)
    else:
        for learnt, rest in parts:
            answers = predict([train[i] for i in learnt], [train[i] for i in rest])
            scores_of |= {i: answer.scores for i, answer in zip(rest, answers, strict=True)}
    return suspects_of(task, train, scores_of)


def suspects_of(task: Task, train: Sequence[Example], scores_of: Mapping[int, Mapping[str, float]]) -> list[Suspect]:
    """Returns the rows whose labels out-of-fold probabilities contradict. scores_of: those of rows by their numbers."""
    labels = {name: number for number, name in enumerate(task.labels)}
    counts = np.bincount([labels[example.label] for example in train if example.label in labels], minlength=len(labels))
    rows = [i for i in sorted(scores_of) if train[i].label in labels and counts[labels[train[i].label]] >= FOLDS]
    if not rows:
        return []
    probability_EL = np.array([[scores_of[i].get(name, 0.0) for name in task.labels] for i in rows])
    order, suggested = contradicted(probability_EL, np.array([labels[train[i].label] for i in rows]))
    pairs = zip(order.tolist(), suggested.tolist(), strict=True)
    return [Suspect(train[rows[at]], task.labels[name], scores_of[rows[at]]) for at, name in pairs]


def folds(
    train: Sequence[Example], group: Callable[[Example], Hashable] = lambda example: None, count: int = FOLDS
) -> Iterator[tuple[list[int], list[int]]]:
    """Yields the rows to learn from and the rows to predict, `count` times.

    Each label is spread evenly. Rows of one group, and rows with the same texts, are in one fold.
    """
    fold_of, counts = dict[Hashable, int](), dict[object, int]()
    fold_E = np.zeros(len(train), np.int64)
    for i, example in enumerate(train):
        name = example.texts if (own := group(example)) is None else (own,)
        if name not in fold_of:
            fold_of[name] = counts.get(example.label, 0) % count
            counts[example.label] = counts.get(example.label, 0) + 1
        fold_E[i] = fold_of[name]
    for fold in range(count):
        learnt, rest = np.flatnonzero(fold_E != fold).tolist(), np.flatnonzero(fold_E == fold).tolist()
        if learnt and rest:
            yield learnt, rest
