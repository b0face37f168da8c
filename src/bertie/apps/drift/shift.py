"""Tests of two samples: of counts by the population stability index, of vectors by the maximum mean discrepancy.

    PSI    sum of (q - p) ln(q / p) over bins
    MMD^2  mean kernel within each sample minus twice that between them (Gretton et al. 2012, a Gaussian kernel)

Both p-values are of permutations: rows change sides at random. For counts this is a draw from the pooled ones without
replacement, so the rows themselves are not needed. The p-values are exact for any number of rows, if rows are
independent.

B bins · R permutations · n, m rows of the two samples · D numbers of a vector
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_Counts = NDArray[np.int64]
PERMUTATIONS, PER_TEST = 1_999, 20  # PER_TEST: permutations per test and level, so that a p-value can be small enough
SMOOTHING = 0.5  # added to each count, as the index of an empty bin is infinite
FEWEST_VECTORS = 20
TIMES = 4


@dataclass(frozen=True)
class ShiftTest:
    """A test. value: the statistic. interval: of the effect, at 95%. by_chance: the mean value of permuted rows."""

    value: float
    interval: tuple[float, float]
    by_chance: float
    p: float
    separability: float | None = None


def population_stability(first: Floats, second: Floats) -> Floats:
    """Returns the index of counts, over the last axis. (..., B), (..., B) -> (...)"""
    p, q = (one + SMOOTHING for one in (first, second))
    p, q = p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)
    index: Floats = ((q - p) * np.log(q / p)).sum(-1)
    return index


def thinned(first: Sequence[int] | _Counts, second: Sequence[int] | _Counts, seed: int = 0) -> tuple[_Counts, _Counts]:
    """Returns the rows by bin of both (B,), of which the larger has at most TIMES as many rows."""
    parts, rng = [np.array(first, np.int64), np.array(second, np.int64)], np.random.default_rng(seed)
    most = TIMES * int(min(part.sum() for part in parts))
    one, two = (
        part if part.sum() <= most else rng.multivariate_hypergeometric(part, most, method="marginals")
        for part in parts
    )
    return one, two


def grouped_bins(counts: _Counts, share: float = 0.05) -> list[slice]:
    """Returns neighboring bins in groups that have at least a share of all rows each, but maybe the last. (B,)"""
    groups, start, least = list[slice](), 0, share * counts.sum()
    for end in range(1, len(counts) + 1):
        if counts[start:end].sum() >= least and counts[end:].sum() > 0:
            groups.append(slice(start, end))
            start = end
    return [*groups, slice(start, len(counts))]


def compare_counts(first: Sequence[int], second: Sequence[int], permutations: int, seed: int = 0) -> ShiftTest:
    """Compares the rows by bin of two samples. first, second (B,)"""
    one, two = np.array(first, np.int64), np.array(second, np.int64)
    rng = np.random.default_rng(seed)
    value = float(population_stability(one.astype(float), two.astype(float)))
    pooled = one + two
    drawn = rng.multivariate_hypergeometric(pooled, int(one.sum()), size=permutations, method="marginals")
    null = population_stability(drawn.astype(float), (pooled - drawn).astype(float))
    resampled = [rng.multinomial(counts.sum(), counts / counts.sum(), size=1_000) for counts in (one, two)]
    spread = population_stability(*(counts.astype(float) for counts in resampled))
    low, high = np.percentile(spread, [2.5, 97.5])
    return ShiftTest(value, (float(low), float(high)), float(null.mean()), p_value(value, null))


def compare_vectors(
    first: NDArray[np.float32], second: NDArray[np.float32], permutations: int, seed: int = 0
) -> ShiftTest:
    """Compares two samples of vectors (n, D), (m, D). The interval is that of the separability.

    The kernel's witness function is learned from one half of the rows. Separability is the probability that it ranks a
    row of the second sample, from the other half, above one of the first: 0.5 for equal samples, 1 for disjoint ones.
    """
    rng = np.random.default_rng(seed)
    kernel = gaussian_kernel(np.concatenate([first, second]).astype(float))
    n, m = len(first), len(second)
    signs = np.repeat([1 / n, -1 / m], [n, m])
    value = float(signs @ kernel @ signs)
    permuted = rng.permuted(np.broadcast_to(signs, (permutations, n + m)), axis=1).T
    null = (permuted * (kernel @ permuted)).sum(0)
    area = separability(kernel, n, rng)
    error = area_error(area, n, m)
    interval = (max(area - 1.96 * error, 0.0), min(area + 1.96 * error, 1.0))
    return ShiftTest(value, interval, float(null.mean()), p_value(value, null), area)


def gaussian_kernel(rows: Floats) -> Floats:
    """Returns the kernel of all pairs, whose width is the median distance. (n, D) -> (n, n)"""
    squares = (rows**2).sum(-1)
    distances = np.maximum(squares[:, None] + squares[None] - 2 * rows @ rows.T, 0)
    width = float(np.median(distances[np.triu_indices(len(rows), 1)])) or 1.0
    kernel: Floats = np.exp(-distances / width)
    return kernel


def separability(kernel: Floats, n: int, rng: np.random.Generator) -> float:
    """Returns the area under the curve of the witness function of each half on the other. kernel (n + m, n + m)"""
    halves = np.zeros(len(kernel), bool)
    halves[rng.permutation(n)[: n // 2]] = True
    halves[n + rng.permutation(len(kernel) - n)[: (len(kernel) - n) // 2]] = True
    second, areas = np.arange(len(kernel)) >= n, list[float]()
    for half in (halves, ~halves):
        score = kernel[~half][:, half & second].mean(1) - kernel[~half][:, half & ~second].mean(1)
        side = second[~half]
        above = score[side][:, None] - score[~side][None]
        areas.append(float((above > 0).mean() + (above == 0).mean() / 2))
    return sum(areas) / 2


def area_error(area: float, n: int, m: int) -> float:
    """Returns the standard error of an area under the curve. Hanley and McNeil 1982."""
    one, two = area / (2 - area), 2 * area**2 / (1 + area)
    variance = area * (1 - area) + (n - 1) * (one - area**2) + (m - 1) * (two - area**2)
    return float(np.sqrt(max(variance, 0.0) / (n * m)))


def p_value(value: float, null: Floats) -> float:
    """Returns the share of permutations, the given order among them, whose value is at least as large. null (R,)"""
    return float((1 + (null >= value - 1e-12).sum()) / (1 + len(null)))


def adjusted(p_values: Sequence[float]) -> list[float]:
    """Returns p-values with which all tests together have the level of one. Holm 1979."""
    order, highest = np.argsort(p_values), 0.0
    result = [0.0] * len(p_values)
    for rank, number in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[number]))
        result[number] = highest
    return result


def permutations_for(tests: int, level: float) -> int:
    """Returns how many permutations a p-value needs that many tests are to find significant at a level."""
    return max(PERMUTATIONS, int(PER_TEST * tests / level))
