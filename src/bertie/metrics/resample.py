"""Drawing again: the bootstrap of metrics that are functions of sums over examples (F1 over entities, mean F1 over
questions), and a sample of a stream.

N examples · K sums · R resamples
"""

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from bertie.metrics.base import RESAMPLES, Float, percent_points

BLOCK = 2_000_000  # draws held at once
T = TypeVar("T")


def resampled(counts: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> Float:
    """The column sums of N examples drawn again with replacement, R times. counts (N, K) -> (R, K)"""
    counts_NK = np.asarray(counts, np.float64)
    examples = len(counts_NK)
    rng = np.random.default_rng(seed)
    at_once = max(1, BLOCK // max(1, examples))
    blocks = []
    for start in range(0, resamples, at_once):
        rows = min(at_once, resamples - start)
        drawn = rng.integers(examples, size=(rows, examples)) + np.arange(rows)[:, None] * examples
        times_RN = np.bincount(drawn.ravel(), minlength=rows * examples).reshape(rows, examples)
        blocks.append(times_RN @ counts_NK)
    return np.concatenate(blocks)


def intervals(counts: ArrayLike, figures: Callable[[Float], Mapping[str, Float]]) -> dict[str, list[float]]:
    """The 95 % interval of every metric. counts (N, K); figures: sums (..., K) -> metrics (...) each"""
    if not len(np.asarray(counts)):
        return {}
    return {name: list(percent_points(values)) for name, values in figures(resampled(counts)).items()}


class Reservoir(Generic[T]):
    """At most `size` items of a stream, each as likely to be kept as any other (Vitter 1985, algorithm R)."""

    def __init__(self, size: int, *, seed: int = 0) -> None:
        self.size, self.seen, self.items = max(1, size), 0, list[T]()
        self._rng = np.random.default_rng(seed)

    def add(self, item: T) -> None:
        """One more item of the stream."""
        self.seen += 1
        if len(self.items) < self.size:
            self.items.append(item)
        elif (place := int(self._rng.integers(self.seen))) < self.size:
            self.items[place] = item
