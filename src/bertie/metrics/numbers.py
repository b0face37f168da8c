"""Metrics of regression: Pearson's and Spearman's correlation, mean squared error; F1 above a threshold.

N examples · R resamples
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from bertie.files import JsonObject
from bertie.metrics.base import RESAMPLES, Float, percent_points, ratio

SORTED = 20_000_000  # numbers ranked for intervals; beyond, fewer resamples, at least 200


@dataclass
class Numbers:
    """Counter of true and predicted numbers. threshold: numbers from here on are positive, for f1."""

    threshold: float | None = None
    truth: list[float] = field(default_factory=list)
    predicted: list[float] = field(default_factory=list)

    def add(self, truth: Iterable[float], predicted: Iterable[float]) -> None:
        """Counts more examples."""
        self.truth += truth
        self.predicted += predicted

    @property
    def positives(self) -> dict[str, str]:
        """What f1 is of."""
        return {} if self.threshold is None else {"f1": f"{self.threshold:g} or more"}

    @property
    def total(self) -> int:
        """The number of examples."""
        return len(self.truth)

    def compute(self) -> dict[str, float]:
        """Returns every metric without its interval."""
        metrics = compute_number_metrics(np.array(self.truth), np.array(self.predicted), self.threshold)
        return {name: float(value) for name, value in metrics.items()}

    def report(self, *, resamples: int = RESAMPLES, seed: int = 0) -> JsonObject:
        """Returns every metric with its 95% bootstrap interval, as JSON values."""
        truth_N, predicted_N = np.array(self.truth), np.array(self.predicted)
        rng, drawn = np.random.default_rng(seed), dict[str, list[Float]]()
        resamples = min(resamples, max(200, SORTED // max(1, self.total)))
        for _ in range(resamples if self.total else 0):
            rows = rng.integers(self.total, size=self.total)
            for name, value in compute_number_metrics(truth_N[rows], predicted_N[rows], self.threshold).items():
                drawn.setdefault(name, []).append(value)
        flat = len(set(self.predicted)) == 1 < len(set(self.truth))
        return {
            "examples": self.total,
            **self.compute(),
            "interval_95": {name: list(percent_points(np.array(values))) for name, values in drawn.items()},
            "positive": self.positives,
            "all_given": str(self.predicted[0]) if flat else None,
            "undefined": self.undefined(),
        }

    def undefined(self) -> dict[str, str]:
        """Returns metrics that are not defined for these examples, with the reason."""
        reasons = {}
        if len(set(self.truth)) == 1:
            reasons = dict.fromkeys(("pearson", "spearman"), f"every example has the number {self.truth[0]:g}")
        if self.threshold is not None and all(number < self.threshold for number in self.truth):
            reasons["f1"] = f"no example has {self.threshold:g} or more"
        return reasons


def compute_number_metrics(truth: Float, predicted: Float, threshold: float | None = None) -> dict[str, Float]:
    """truth, predicted (N,) -> each metric. A correlation with a constant is 0."""
    from scipy.stats import rankdata

    metrics: dict[str, Float] = {
        "pearson": correlation(truth, predicted),
        "spearman": correlation(rankdata(truth), rankdata(predicted)),  # ties have their mean rank
        "mse": ratio(((truth - predicted) ** 2).sum(), len(truth)),
    }
    if threshold is not None:
        above, predicted_above = truth >= threshold, predicted >= threshold
        metrics["f1"] = ratio(2 * (above & predicted_above).sum(), above.sum() + predicted_above.sum())
    return metrics


def correlation(a: Float, b: Float) -> Float:
    """Returns Pearson's correlation of two lists of numbers, 0 where one of them is constant."""
    if not len(a) or not np.ptp(a) or not np.ptp(b):  # what rounding leaves of a constant correlates too
        return np.zeros(())
    a, b = a - a.mean(), b - b.mean()
    return ratio((a * b).sum(), np.sqrt((a * a).sum() * (b * b).sum()))
