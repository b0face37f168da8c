"""Probabilities and how often they are right: calibration, and answers that are withheld where a model is not sure.

Of all predictions with a probability of 0.8, eight in ten should be correct.

Prediction sets contain the true label as often as promised (split conformal prediction): a label is in the set of a
text if its probability is at least `cut`. Vovk et al. 2005; Sadinle et al. 2019 (sets of the smallest mean size). The n
rows are used for nothing else and are exchangeable with new ones. The set of a new row then has its true label with a
probability of at least `coverage`, over the draw of all of them.

N predictions or answers · L labels · C thresholds
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from bertie.errors import DataError
from bertie.files import JsonObject
from bertie.metrics.base import Float, wilson


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


THRESHOLDS = (0.0, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.995)


@dataclass
class Selective:
    """Answers, and right ones, with at least each of THRESHOLDS as their probability. table (C, 2)

    withheld: rows that got no answer, which the metrics leave out.
    """

    table: Float = field(default_factory=lambda: np.zeros((len(THRESHOLDS), 2)))
    withheld: int = 0

    def add(self, probabilities: Sequence[float], right: Sequence[bool]) -> None:
        """Counts the most probable labels of more rows, withheld or not."""
        sure_NC = np.array(probabilities, np.float64).reshape(-1, 1) >= np.array(THRESHOLDS)
        self.table += np.stack([sure_NC.sum(0), (sure_NC & np.array(right, bool).reshape(-1, 1)).sum(0)], 1)

    def report(self) -> JsonObject:
        """Returns "selective": threshold, share of answered rows, their accuracy, its 95% interval; and "answered": the
        share of rows that were answered, where some were not."""
        rows = self.table[0, 0]
        if not rows:
            return {}
        curve = [
            [threshold, float(sure / rows), float(hits / sure), *wilson(hits, sure)]
            for threshold, (sure, hits) in zip(THRESHOLDS, self.table, strict=True)
            if sure
        ]
        share = float(1 - self.withheld / rows)
        low, high = wilson(rows - self.withheld, rows)
        answered = {"share": share, "interval_95": [low, high], "rows": int(rows), "withheld": self.withheld}
        return {"selective": curve, **({"answered": answered} if self.withheld else {})}


_BINS = 15  # as in Guo et al. 2017


@dataclass
class Calibration:
    """Predictions counted by probability, in bins of equal width. table (BINS, 3): count, sum of probabilities,
    correct. squares: number of predictions with all probabilities, and their sum of squared errors."""

    table: Float = field(default_factory=lambda: np.zeros((_BINS, 3)))
    squares: Float = field(default_factory=lambda: np.zeros(2))

    def add(self, probabilities: Iterable[float], right: Iterable[bool]) -> None:
        """Counts more predictions."""
        p = np.fromiter(probabilities, np.float64)
        bins = np.clip(np.ceil(p * _BINS).astype(int) - 1, 0, _BINS - 1)  # (low, high], as in the paper
        np.add.at(self.table, bins, np.stack([np.ones_like(p), p, np.fromiter(right, np.float64)], 1))

    def add_all(self, probabilities: ArrayLike, truth: ArrayLike) -> None:
        """Counts the errors of all probabilities of predictions. probabilities, truth (N, L)"""
        errors_NL = np.asarray(probabilities, np.float64) - np.asarray(truth, np.float64)
        half = 0.5 if errors_NL.shape[1] == 2 else 1.0  # then it is that of either label, as scikit-learn has it
        self.squares += (len(errors_NL), half * (errors_NL**2).sum())

    def report(self) -> JsonObject:
        """Returns "ece", the expected calibration error (Guo et al. 2017, equation 3), its bins, and "brier", the mean
        squared error of the probabilities (Brier 1950); or nothing."""
        answers, probabilities, right = self.table.T
        if not answers.sum():
            return {}
        bins = [{"answers": int(n), "probability": float(p / n), "right": float(r / n)} for n, p, r in self.table if n]
        error, (count, squares) = float(np.abs(probabilities - right).sum() / answers.sum()), self.squares
        return {"ece": error, **({"brier": float(squares / count)} if count else {}), "calibration": bins}
