"""The comparison of two traffics: a test for each quantity, corrected for their number."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bertie.apps.drift import shift
from bertie.platform import Traffic

RARE_SHARE = 0.01  # of all rows: names below it are counted together


@dataclass(frozen=True)
class BinShare:
    """The rows in one bin of a quantity. reference, share: as parts of all rows, of the reference and of the data."""

    bin: str
    reference: float
    share: float


@dataclass(frozen=True)
class QuantityDrift:
    """How much a quantity differs between the data and the reference.

    Attributes:
        quantity: label, confidence, tokens, unknown_tokens, script, value, or vectors.
        index: The population stability index; for vectors, the maximum mean discrepancy.
        by_chance: The mean of the index for rows that are divided at random.
        interval: 95% interval of the index; for vectors, of the separability.
        separability: For vectors, how well the two are told apart: 0.5 not at all, 1 entirely.
        p: The p-value of a permutation test.
        adjusted_p: The p-value for all quantities together (Holm).
        differs: Whether the adjusted p-value is at most the level.
        changes: The rows by bin, the largest change first.
    """

    quantity: str
    index: float
    by_chance: float
    interval: tuple[float, float]
    separability: float | None
    p: float
    adjusted_p: float
    differs: bool
    changes: tuple[BinShare, ...] = ()


def compare_traffic(usual: Traffic, traffic: Traffic, level: float) -> tuple[QuantityDrift, ...]:
    """Returns the differences of all quantities that have more than one value, the surest first."""
    tables = [*binned_rows(usual, traffic)]
    one, two = usual.vectors.array, traffic.vectors.array
    enough = min(len(one), len(two)) >= shift.FEWEST_VECTORS and usual.vectors.width == traffic.vectors.width
    enough = enough and not usual.learned
    permutations = shift.permutations_for(len(tables) + enough, level)
    tests: list[tuple[str, tuple[BinShare, ...], shift.ShiftTest]] = []
    for name, bins in tables:
        first, second = zip(*bins.values(), strict=True)
        tests.append((name, changes_of(bins), shift.compare_counts(first, second, permutations)))
    if enough:
        tests.append(("vectors", (), shift.compare_vectors(one, two, permutations)))
    together = shift.adjusted([test.p for _, _, test in tests])
    differences = [
        QuantityDrift(
            name, test.value, test.by_chance, test.interval, test.separability, test.p, p, p <= level, changes
        )
        for (name, changes, test), p in zip(tests, together, strict=True)
    ]
    return tuple(sorted(differences, key=lambda one: (one.adjusted_p, -one.index)))


Bins = dict[str, tuple[int, int]]
"""Bin -> rows of the reference, rows of the data."""


def binned_rows(usual: Traffic, traffic: Traffic) -> Iterator[tuple[str, Bins]]:
    """Yields the quantities that both have and that have more than one value, with their rows by bin.

    Of the larger part, at most TIMES as many rows as of the smaller are drawn at random: more find no smaller
    difference, and the values of the smaller would be rare among them.
    """
    for name in sorted(usual.names.keys() & traffic.names.keys()):
        names = sorted({*usual.names[name], *traffic.names[name]})
        own, new = usual.names[name], traffic.names[name]
        one, two = shift.thinned([own[key] for key in names], [new[key] for key in names])
        both, rare = one + two, RARE_SHARE * (one + two).sum()
        bins = {key: (int(one[at]), int(two[at])) for at, key in enumerate(names) if both[at] >= rare}
        if (both < rare).any():
            bins["rare"] = (int(one[both < rare].sum()), int(two[both < rare].sum()))
        if len(bins) > 1:
            yield name, bins
    for name in sorted(usual.counts.keys() & traffic.counts.keys()):
        one, two = shift.thinned(usual.counts[name], traffic.counts[name])
        groups = shift.grouped_bins(one + two)
        if len(groups) > 1:
            edges = Traffic.EDGES[name]
            yield name, {bin_name(edges, part): (int(one[part].sum()), int(two[part].sum())) for part in groups}


def bin_name(edges: Sequence[float], part: slice) -> str:
    """Returns what a group of bins is called: `to 0.5`, `0.5 to 0.8`, `above 0.8`."""
    if part.stop > len(edges):
        return f"above {edges[part.start - 1]:.4g}"
    high = f"{edges[part.stop - 1]:.4g}"
    return f"{edges[part.start - 1]:.4g} to {high}" if part.start else f"to {high}"


def changes_of(bins: Bins) -> tuple[BinShare, ...]:
    """Returns the shares of the rows by bin, the largest change first."""
    first, second = map(sum, zip(*bins.values(), strict=True))
    changes = [BinShare(name, one / first, two / second) for name, (one, two) in bins.items()]
    return tuple(sorted(changes, key=lambda one: -abs(one.share - one.reference)))
