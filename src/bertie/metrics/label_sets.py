"""Metrics of multi-label classification: F1 over all decisions, F1 per label, exact matches of sets.

N examples · L labels
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from bertie.files import JsonObject
from bertie.metrics.base import Float, MetricsOf, Units, ratio
from bertie.metrics.calibration import Calibration
from bertie.metrics.confusion import per_label
from bertie.metrics.resample import Bootstrap

if TYPE_CHECKING:
    from scipy import sparse


@dataclass
class LabelSets(Units):
    """Counter of true and predicted sets of labels. A label that the model does not know counts as missed.

    calibration: of the probabilities of all decisions, where they are known.
    """

    labels: tuple[str, ...]
    truth: list[frozenset[str]] = field(default_factory=list)
    predicted: list[frozenset[str]] = field(default_factory=list)
    calibration: Calibration = field(default_factory=Calibration)

    def add(self, truth: Iterable[Iterable[str]], predicted: Iterable[Iterable[str]]) -> None:
        """Counts more examples."""
        self.truth += map(frozenset, truth)
        self.predicted += map(frozenset, predicted)

    @property
    def total(self) -> int:
        """The number of examples."""
        return len(self.truth)

    @property
    def unknown(self) -> dict[str, int]:
        """True labels that the model does not know, with their numbers of examples."""
        unknown = sorted(frozenset().union(*self.truth) - set(self.labels))
        return {label: sum(label in labels for labels in self.truth) for label in unknown}

    def report(self) -> JsonObject:
        """Returns every metric with its 95% interval, and metrics per label, as JSON values."""
        names = (*self.labels, *self.unknown)
        counts, of_sums = self.units()
        right_L, true_L, predicted_L = np.split(counts.sum(0)[:-2], 3)
        precision, recall, f1 = per_label(right_L, true_L, predicted_L)
        sets = set(self.predicted)
        return {
            "examples": self.total,
            **self.compute(),
            **self.calibration.report(),
            "interval_95": Bootstrap(counts).intervals(of_sums),
            "per_label": {
                name: {
                    "precision": float(precision[i]),
                    "recall": float(recall[i]),
                    "f1": float(f1[i]),
                    "examples": int(true_L[i]),
                }
                for i, name in enumerate(names)
            },
            "labels": list(names),
            "unknown_labels": self.unknown,
            "all_given": sorted(self.predicted[0]) if len(sets) == 1 < len(set(self.truth)) else None,
            "undefined": {} if true_L.any() else dict.fromkeys(("micro_f1", "macro_f1"), "no example has a label"),
        }

    def units(self) -> tuple["sparse.csr_array", MetricsOf]:
        """Returns per example and label: correct, true, predicted; then whether all are correct, and 1. (N, 3 L + 2)"""
        from scipy import sparse

        names = (*self.labels, *self.unknown)
        number, width = {name: i for i, name in enumerate(names)}, len(names)
        columns = []
        for truth, predicted in zip(self.truth, self.predicted, strict=True):
            kinds = enumerate((truth & predicted, truth, predicted))
            columns_of = [kind * width + number[label] for kind, labels in kinds for label in labels]
            columns.append([*columns_of, *([3 * width] if truth == predicted else []), 3 * width + 1])
        rows = np.repeat(np.arange(self.total), [*map(len, columns)])
        flat = np.array([column for row in columns for column in row], np.int64)
        counts = sparse.csr_array((np.ones(len(flat)), (rows, flat)), shape=(self.total, 3 * width + 2))
        return counts, partial(compute_label_set_metrics, labels=width)


def compute_label_set_metrics(sums: ArrayLike, labels: int) -> dict[str, Float]:
    """micro_f1 over all decisions, macro_f1 over the labels, exact: whole sets. sums (..., 3 L + 2) -> (...)"""
    sums = np.asarray(sums, np.float64)
    right, truth, predicted = np.split(sums[..., :-2], 3, axis=-1)
    occurs = truth + predicted > 0
    f1 = per_label(right, truth, predicted)[2]
    return {
        "micro_f1": ratio(2 * right.sum(-1), truth.sum(-1) + predicted.sum(-1)),
        "macro_f1": ratio((f1 * occurs).sum(-1), occurs.sum(-1)),
        "exact": ratio(sums[..., -2], sums[..., -1]),
    }
