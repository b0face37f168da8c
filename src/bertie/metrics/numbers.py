"""Metrics of regression: Pearson's and Spearman's correlation, mean squared error; F1 above a threshold.

N examples · R resamples
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from bertie.files import JsonObject
from bertie.metrics.base import RESAMPLES, Float, percent_points, ratio

SORTED, AT_ONCE = 20_000_000, 200_000  # numbers ranked for intervals: beyond, fewer resamples, at least 200


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
        truth_N, predicted_N, examples = np.array(self.truth), np.array(self.predicted), max(1, self.total)
        rng, drawn = np.random.default_rng(seed), dict[str, list[Float]]()
        resamples, at_once = min(resamples, max(200, SORTED // examples)), max(1, AT_ONCE // examples)
        for start in range(0, resamples if self.total else 0, at_once):
            rows_RN = rng.integers(self.total, size=(min(at_once, resamples - start), self.total))
            for name, values in compute_number_metrics(truth_N[rows_RN], predicted_N[rows_RN], self.threshold).items():
                drawn.setdefault(name, []).append(values)
        return {
            "examples": self.total,
            **self.compute(),
            "interval_95": {name: list(percent_points(np.concatenate(values))) for name, values in drawn.items()},
            "positive": self.positives,
            "all_given": str(self.predicted[0]) if len(set(self.predicted)) == 1 < len(set(self.truth)) else None,
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
    """truth, predicted (..., N) -> each metric (...). A correlation with a constant is 0."""
    from scipy.stats import rankdata

    metrics: dict[str, Float] = {
        "pearson": correlation(truth, predicted),
        "spearman": correlation(rankdata(truth, axis=-1), rankdata(predicted, axis=-1)),  # ties have their mean rank
        "mse": ratio(((truth - predicted) ** 2).sum(-1), truth.shape[-1]),
    }
    if threshold is not None:
        above, predicted_above = truth >= threshold, predicted >= threshold
        metrics["f1"] = ratio(2 * (above & predicted_above).sum(-1), above.sum(-1) + predicted_above.sum(-1))
    return metrics


def correlation(a: Float, b: Float) -> Float:
    """Returns Pearson's correlation of lists of numbers (..., N), 0 where one of two is constant -> (...)"""
    if not a.size:
        return np.zeros(a.shape[:-1])
    vary = np.ptp(a, -1).astype(bool) & np.ptp(b, -1).astype(bool)  # what rounding leaves of a constant correlates too
    a, b = a - a.mean(-1, keepdims=True), b - b.mean(-1, keepdims=True)
    return ratio(vary * (a * b).sum(-1), np.sqrt((a * a).sum(-1) * (b * b).sum(-1)))
