"""Calibration: of all predictions with a probability of 0.8, eight in ten should be correct.

N predictions · L labels
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bertie.metrics.base import Float

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

    def report(self) -> dict[str, Any]:
        """Returns "ece", the expected calibration error (Guo et al. 2017, equation 3), its bins, and "brier", the mean
        squared error of the probabilities (Brier 1950); or nothing."""
        answers, probabilities, right = self.table.T
        if not answers.sum():
            return {}
        bins = [{"answers": int(n), "probability": float(p / n), "right": float(r / n)} for n, p, r in self.table if n]
        error, (count, squares) = float(np.abs(probabilities - right).sum() / answers.sum()), self.squares
        return {"ece": error, **({"brier": float(squares / count)} if count else {}), "calibration": bins}
