"""Classification metrics from counts of (true label, predicted label), so that any number of examples fits in memory.

All of them are functions of the confusion matrix, and so is their bootstrap: drawing n examples again with replacement
is one multinomial draw over the matrix's cells. scikit-learn computes the same figures one sample at a time; the tests
hold these against it.

L labels · R resamples
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertie.metrics.base import RESAMPLES, Float, percent_points


@dataclass
class Confusion:
    """Counts of (true label, predicted label). A true label the model never learnt is an error in all metrics."""

    labels: tuple[str, ...]
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, truth: Iterable[str], predicted: Iterable[str]) -> None:
        """Count more examples."""
        self.pairs.update(zip(truth, predicted, strict=True))

    @property
    def total(self) -> int:
        """Examples counted."""
        return self.pairs.total()

    @property
    def unknown(self) -> dict[str, int]:
        """True labels that are not among the model's, and how many examples have them."""
        counts: Counter[str] = Counter()
        for (truth, _), n in self.pairs.items():
            if truth not in self.labels:
                counts[truth] += n
        return dict(counts)

    @property
    def all_labels(self) -> tuple[str, ...]:
        """The model's labels, then the unknown ones."""
        return (*self.labels, *sorted(self.unknown))

    def matrix(self) -> NDArray[np.int64]:
        """(L, L) rows: true, columns: predicted, both in the order of `all_labels`."""
        index = {label: i for i, label in enumerate(self.all_labels)}
        matrix = np.zeros((len(index), len(index)), np.int64)
        for (truth, predicted), n in self.pairs.items():
            matrix[index[truth], index[predicted]] = n
        return matrix

    def degenerate(self) -> str | None:
        """The label all examples were given, when there is only one while the true labels differ."""
        given = {predicted for _, predicted in self.pairs}
        return next(iter(given)) if len(given) == 1 and len({truth for truth, _ in self.pairs}) > 1 else None

    def figures(self) -> dict[str, float]:
        """Every metric, without its interval."""
        return {name: float(value) for name, value in figures(self.matrix(), len(self.labels)).items()}

    def report(self, *, resamples: int = RESAMPLES, seed: int = 0) -> dict[str, Any]:
        """Every metric with its 95 % interval, figures per label, and the matrix, as JSON values."""
        matrix = self.matrix()
        intervals = bootstrap(matrix, len(self.labels), resamples=resamples, seed=seed)
        precision, recall, f1 = per_label(matrix)
        return {
            "examples": self.total,
            **self.figures(),
            "interval_95": {name: list(interval) for name, interval in intervals.items()},
            "per_label": {
                label: {
                    "precision": float(precision[i]),
                    "recall": float(recall[i]),
                    "f1": float(f1[i]),
                    "examples": int(matrix[i].sum()),
                }
                for i, label in enumerate(self.all_labels)
            },
            "labels": list(self.all_labels),
            "confusion": matrix.tolist(),
            "unknown_labels": self.unknown,
            "all_given": self.degenerate(),
        }


def figures(matrix: NDArray[np.int64] | Float, labels: int) -> dict[str, Float]:
    """The metrics of one confusion matrix, or of many at once. matrix (..., L, L) -> (...) each.

    accuracy; macro_f1, over the labels that occur; mcc (Matthews' correlation, Gorodkin 2004 for L > 2); and with two
    labels f1, that of the second, the usual "positive" one. `labels` is how many the model has.
    """
    matrix = np.asarray(matrix, np.float64)
    total = matrix.sum((-2, -1))
    right = np.trace(matrix, axis1=-2, axis2=-1)
    truth, predicted = matrix.sum(-1), matrix.sum(-2)
    f1 = per_label(matrix)[2]
    occurs = truth + predicted > 0
    covariance = right * total - (truth * predicted).sum(-1)
    spread = (total**2 - (truth**2).sum(-1)) * (total**2 - (predicted**2).sum(-1))
    values = {
        "accuracy": _ratio(right, total),
        "macro_f1": _ratio((f1 * occurs).sum(-1), occurs.sum(-1)),
        "mcc": _ratio(covariance, np.sqrt(spread)),
    }
    if labels == 2:
        values["f1"] = f1[..., 1]
    return values


def per_label(matrix: NDArray[np.int64] | Float) -> tuple[Float, Float, Float]:
    """Precision, recall and F1 of every label; 0 where a label is never predicted or never true. -> 3 x (..., L)"""
    right = np.diagonal(np.asarray(matrix, np.float64), axis1=-2, axis2=-1)
    truth, predicted = matrix.sum(-1), matrix.sum(-2)
    return _ratio(right, predicted), _ratio(right, truth), _ratio(2 * right, truth + predicted)


def _ratio(above: Float | NDArray[Any], below: Float | NDArray[Any]) -> Float:
    """above / below, and 0 where below is 0."""
    below = np.asarray(below, np.float64)
    return np.divide(above, below, out=np.zeros(np.broadcast(above, below).shape), where=below > 0)


def bootstrap(
    matrix: NDArray[np.int64], labels: int, *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Percentile 95 % intervals of every metric over resampled test sets."""
    total = int(matrix.sum())
    if not total:
        return {}
    draws = np.random.default_rng(seed).multinomial(total, matrix.ravel() / total, size=resamples)
    values = figures(draws.reshape(-1, *matrix.shape), labels)
    return {name: percent_points(v) for name, v in values.items()}
