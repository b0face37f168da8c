"""Probabilities and how often they are right: calibration, and answers that are withheld where a model is not sure.

Of all predictions with a probability of 0.8, eight in ten should be correct.

N predictions or answers · L labels · C thresholds
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from bertie.files import JsonObject
from bertie.metrics.base import Float, wilson

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
