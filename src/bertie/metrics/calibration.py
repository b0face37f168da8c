"""Calibration: of all predictions with a probability of 0.8, eight in ten should be correct.

N predictions
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bertie.metrics.base import Float

BINS = 15  # as in Guo et al. 2017


@dataclass
class Calibration:
    """Predictions counted by probability, in bins of equal width. table (BINS, 3): count, sum of probabilities,
    correct."""

    table: Float = field(default_factory=lambda: np.zeros((BINS, 3)))

    def add(self, probabilities: Iterable[float], right: Iterable[bool]) -> None:
        """Counts more predictions."""
        p = np.fromiter(probabilities, np.float64)
        bins = np.clip(np.ceil(p * BINS).astype(int) - 1, 0, BINS - 1)  # (low, high], as in the paper
        np.add.at(self.table, bins, np.stack([np.ones_like(p), p, np.fromiter(right, np.float64)], 1))

    def report(self) -> dict[str, Any]:
        """Returns "ece", the expected calibration error (Guo et al. 2017, equation 3), and its bins; or nothing."""
        answers, probabilities, right = self.table.T
        if not answers.sum():
            return {}
        bins = [{"answers": int(n), "probability": float(p / n), "right": float(r / n)} for n, p, r in self.table if n]
        return {"ece": float(np.abs(probabilities - right).sum() / answers.sum()), "calibration": bins}


def temperature(logits: ArrayLike, truth: ArrayLike) -> float:
    """Returns the temperature for logits that minimizes the negative log-likelihood. logits (N, L), truth (N,).

    It is between 0.05 and 20; 1 if all predictions are right, when the likelihood has no maximum. Guo et al. 2017,
    4.2.
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import logsumexp

    logits_NL, truth_N = np.asarray(logits, np.float64), np.asarray(truth, np.int64)
    right_N = logits_NL[np.arange(len(truth_N)), truth_N]
    if (right_N >= logits_NL.max(1)).all():
        return 1.0

    def loss(log_t: float) -> float:
        t = np.exp(log_t)
        return float((logsumexp(logits_NL / t, axis=1) - right_N / t).mean())

    found = minimize_scalar(loss, bounds=(np.log(0.05), np.log(20)), method="bounded", options={"xatol": 1e-6})
    return float(np.exp(found.x))
