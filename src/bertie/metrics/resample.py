"""The bootstrap of metrics that are functions of sums over examples, and a random sample of a stream.

N examples · K sums · R resamples
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from bertie.metrics.base import RESAMPLES, Counts, Float, MetricsOf, percent_points

if TYPE_CHECKING:
    from scipy import sparse

_BLOCK_DRAWS = 2_000_000  # draws, or sums, held at once
_T = TypeVar("_T")
Key = TypeVar("Key", bound=Hashable)


class Bootstrap:
    """Examples that are drawn again. counts (N, K)

    groups: the group of each example; a group is drawn as a unit (cluster bootstrap).
    """

    def __init__(self, counts: Counts, groups: Sequence[Hashable] = ()) -> None:
        self.counts = _summed(counts, groups) if groups else counts

    def draws(self, *, resamples: int = RESAMPLES, seed: int = 0) -> Iterator[Float]:
        """Yields the column sums of N units drawn with replacement R times, in blocks -> (R, K) in all"""
        from scipy import sparse

        counts_NK = self.counts if isinstance(self.counts, sparse.csr_array) else np.asarray(self.counts, np.float64)
        units, width = counts_NK.shape
        rng = np.random.default_rng(seed)
        at_once = max(1, _BLOCK_DRAWS // max(1, units, width))
        for start in range(0, resamples, at_once):
            rows = min(at_once, resamples - start)
            drawn = rng.integers(units, size=(rows, units)) + np.arange(rows)[:, None] * units
            times_RN = np.bincount(drawn.ravel(), minlength=rows * units).reshape(rows, units)
            yield np.asarray(times_RN @ counts_NK, np.float64)

    def intervals(self, metrics_of: MetricsOf) -> dict[str, list[float]]:
        """Returns the 95% interval of every metric. metrics_of: sums (..., K) -> metrics (...) each"""
        if not self.counts.shape[0]:
            return {}
        draws: dict[str, list[Float]] = {}
        for sums in self.draws():
            for name, values in metrics_of(sums).items():
                draws.setdefault(name, []).append(values)
        return {name: list(percent_points(np.concatenate(values))) for name, values in draws.items()}


def _summed(counts: Counts, groups: Sequence[Hashable]) -> Counts:
    """Returns the sums over the examples of each group, in order of first occurrence. counts (N, K) -> (groups, K)"""
    from scipy import sparse

    number = {group: i for i, group in enumerate(dict.fromkeys(groups))}
    rows, columns = [number[group] for group in groups], np.arange(len(groups))
    table = sparse.csr_array((np.ones(len(groups)), (rows, columns)), shape=(len(number), len(groups)))
    sums: Counts = table @ counts
    return sums


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


class Reservoir(Generic[_T]):
    """At most `size` items of a stream, each with the same probability (Vitter 1985, algorithm R)."""

    def __init__(self, size: int, *, seed: int = 0) -> None:
        self.size, self.seen, self.items = max(1, size), 0, list[_T]()
        self._rng = np.random.default_rng(seed)

    def add(self, item: _T) -> None:
        """Adds an item of the stream."""
        self.seen += 1
        if len(self.items) < self.size:
            self.items.append(item)
        elif (place := int(self._rng.integers(self.seen))) < self.size:
            self.items[place] = item
