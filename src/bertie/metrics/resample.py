"""The bootstrap of metrics that are functions of sums over examples, and a random sample of a stream.

N examples · K sums · R resamples
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

import numpy as np

from bertie.metrics.base import RESAMPLES, Counts, Float, MetricsOf, percent_points, wilson

if TYPE_CHECKING:
    from scipy import sparse

BLOCK = 2_000_000  # draws, or sums, held at once
T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)


def resampled(counts: Counts, *, resamples: int = RESAMPLES, seed: int = 0) -> Iterator[Float]:
    """Yields the column sums of N examples resampled with replacement R times, in blocks. counts (N, K) -> (R, K) in
    all"""
    from scipy import sparse

    counts_NK = counts if isinstance(counts, sparse.csr_array) else np.asarray(counts, np.float64)
    examples, width = counts_NK.shape
    rng = np.random.default_rng(seed)
    at_once = max(1, BLOCK // max(1, examples, width))
    for start in range(0, resamples, at_once):
        rows = min(at_once, resamples - start)
        drawn = rng.integers(examples, size=(rows, examples)) + np.arange(rows)[:, None] * examples
        times_RN = np.bincount(drawn.ravel(), minlength=rows * examples).reshape(rows, examples)
        yield np.asarray(times_RN @ counts_NK, np.float64)


def intervals(counts: Counts, metrics_of: MetricsOf, *, groups: Sequence[Hashable] = ()) -> dict[str, list[float]]:
    """Returns the 95% interval of every metric. counts (N, K); metrics_of: sums (..., K) -> metrics (...) each

    groups: the group of each example; a group is resampled as a unit (cluster bootstrap).
    """
    if groups:
        counts = summed(counts, groups)
    if not counts.shape[0]:
        return {}
    found: dict[str, list[Float]] = {}
    for sums in resampled(counts):
        for name, values in metrics_of(sums).items():
            found.setdefault(name, []).append(values)
    return {name: list(percent_points(np.concatenate(values))) for name, values in found.items()}


def summed(counts: Counts, groups: Sequence[Hashable]) -> Counts:
    """Returns the sums over the examples of each group, in order of first occurrence. counts (N, K) -> (groups, K)"""
    from scipy import sparse

    number = {group: i for i, group in enumerate(dict.fromkeys(groups))}
    rows, columns = [number[group] for group in groups], np.arange(len(groups))
    table = sparse.csr_array((np.ones(len(groups)), (rows, columns)), shape=(len(number), len(groups)))
    found: Counts = table @ counts
    return found


def triples(rows: Sequence[Mapping[Key, Sequence[float]]], keys: Sequence[Key]) -> "sparse.csr_array":
    """Returns three counts for each key of each example, as a sparse matrix (N, 3 K)."""
    from scipy import sparse

    column = {key: 3 * i for i, key in enumerate(keys)}
    cells = [
        (row, column[key] + i, count)
        for row, counts in enumerate(rows)
        for key, three in counts.items()
        for i, count in enumerate(three)
    ]
    places = np.array([cell[:2] for cell in cells], np.int64).reshape(-1, 2).T
    values = np.array([cell[2] for cell in cells], np.float64)
    return sparse.csr_array((values, (places[0], places[1])), shape=(len(rows), 3 * len(keys)))


class Reservoir(Generic[T]):
    """At most `size` items of a stream, each with the same probability (Vitter 1985, algorithm R)."""

    def __init__(self, size: int, *, seed: int = 0) -> None:
        self.size, self.seen, self.items = max(1, size), 0, list[T]()
        self._rng = np.random.default_rng(seed)

    def add(self, item: T) -> None:
        """Adds an item of the stream."""
        self.seen += 1
        if len(self.items) < self.size:
            self.items.append(item)
        elif (place := int(self._rng.integers(self.seen))) < self.size:
            self.items[place] = item


class Bootstrap:
    """What an interval rests on: sums of units that are drawn again."""

    Counts: TypeAlias = Counts
    MetricsOf: TypeAlias = MetricsOf
    RESAMPLES = RESAMPLES
    intervals = staticmethod(intervals)
    percent_points = staticmethod(percent_points)
    resampled = staticmethod(resampled)
    summed = staticmethod(summed)
    wilson = staticmethod(wilson)
