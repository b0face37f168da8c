"""Prediction sets that contain the true label as often as promised: split conformal prediction.

    a label is in the set of a text if its probability is at least `cut`

Vovk et al. 2005; Sadinle et al. 2019 (sets of the smallest mean size). For n rows that were used for nothing else and
are exchangeable with new ones, the set of a new row has its true label with a probability of at least `coverage`, over
the draw of all of them.

n held-out rows
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from bertie.errors import DataError
from bertie.files import JsonObject
from bertie.metrics.base import wilson


def rows_needed(coverage: float) -> int:
    """Returns how many held-out rows a coverage needs at least: with fewer, each set has all labels."""
    return math.ceil(round(coverage / (1 - coverage), 9))


def set_cut(probabilities: ArrayLike, coverage: float) -> float:
    """Returns the probability from which on a label is in a set. probabilities (n,): of the true labels.

    It is the k-th lowest one, k = floor((1 - coverage) (n + 1)). Raises DataError where there are too few rows.
    """
    p = np.sort(np.asarray(probabilities, np.float64))
    k = math.floor(round((1 - coverage) * (len(p) + 1), 9))
    if k < 1:
        raise DataError(
            f"coverage={coverage:g} needs {rows_needed(coverage):,} held-out rows with known labels, and there are "
            f"{len(p):,}. Add rows, raise held_out, or lower coverage."
        )
    return float(p[k - 1])


@dataclass
class SetCounts:
    """Prediction sets counted by true label: rows, and those whose set has the label. sizes: rows by set size."""

    rows: Counter[str] = field(default_factory=Counter)
    covered: Counter[str] = field(default_factory=Counter)
    sizes: Counter[int] = field(default_factory=Counter)

    def add(self, truth: Iterable[str], sets: Iterable[tuple[str, ...]]) -> None:
        """Counts more rows."""
        for label, labels in zip(truth, sets, strict=True):
            self.rows[label] += 1
            self.covered[label] += label in labels
            self.sizes[len(labels)] += 1

    def report(self) -> JsonObject:
        """Returns "prediction_sets": the measured coverage, in all and by label, with 95% intervals; or nothing."""
        if not (rows := self.rows.total()):
            return {}
        each = {
            label: {"rows": n, "covered": self.covered[label] / n, "interval_95": [*wilson(self.covered[label], n)]}
            for label, n in sorted(self.rows.items())
        }
        covered = self.covered.total()
        mean = sum(size * n for size, n in self.sizes.items()) / rows
        whole = {"rows": rows, "covered": covered / rows, "interval_95": [*wilson(covered, rows)], "mean_size": mean}
        return {"prediction_sets": {**whole, "single": self.sizes[1] / rows, "per_label": each}}
