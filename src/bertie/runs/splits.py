"""Which examples are held out, and the folds of cross-validation: by label, by group or by time. One mechanism.

    stratified     each label in proportion; whole groups, and equal texts together
    by time        what is held out is later than what is learned from

E examples
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bertie.console import counted
from bertie.errors import DataError
from bertie.io.tables import Example
from bertie.order import key
from bertie.runs.config import HELD_OUT_SHARE

SPLIT_SEED = 0x5EED  # never the run's seed: all seeds are measured on the same examples
DIFFERENT = 20  # texts: of fewer different ones, equal ones may be on both sides, or training would lack a kind
_Parts = tuple[list[Example], list[Example]]
"""Examples to learn from, and others."""


@dataclass(frozen=True)
class ExampleSplit:
    """How examples are divided.

    Attributes:
        by: The stratum of an example.
        group: What must not be separated; None for an example that stands alone.
        timed: Whether the order of time decides instead.
    """

    by: Callable[[Example], Hashable]
    group: Callable[[Example], Hashable]
    timed: bool = False

    def hold_out(self, examples: Sequence[Example], share: float) -> _Parts:
        """Returns the examples to learn from and those that are held out."""
        if self.timed:
            return later(examples, share)
        return hold_out(examples, share, by=self.by, group=self._alike(examples))

    def folds(self, examples: Sequence[Example], count: int) -> Iterator[tuple[list[int], list[int]]]:
        """Yields the examples to learn from and those to predict, by number, `count` times.

        Raises DataError for more folds than there are groups, times, or examples of a label.
        """
        if self.timed:
            yield from _timed_folds(examples, count)
            return
        fold_E = _fold_numbers(examples, count, self.by, self._alike(examples))
        for fold in range(count):
            yield np.flatnonzero(fold_E != fold).tolist(), np.flatnonzero(fold_E == fold).tolist()

    def _alike(self, examples: Sequence[Example]) -> Callable[[Example], Hashable]:
        """Returns what is kept together: groups, or else equal texts where there are enough different ones."""
        many = len({example.texts for example in examples}) >= DIFFERENT

        def together(example: Example) -> Hashable:
            group = self.group(example)
            return example.texts if group is None and example.vectors is None and many else group

        return together


def hold_out(
    examples: Sequence[Example],
    share: float = HELD_OUT_SHARE,
    *,
    by: Callable[[Example], Hashable] = lambda example: example.label,
    group: Callable[[Example], Hashable] = lambda example: None,
) -> _Parts:
    """Splits off a dev set with each stratum, by default each label, in proportion, the same for every seed.

    Whole groups are held out; an example without a group is a group. The stratum of a group is the set of its examples'
    strata. A stratum with at least two groups gives at least one; a single group stays in training. Raises DataError
    when nothing can be held out.
    """
    groups, strata = _groups(examples, by, group)
    if len(groups) < len(examples) and all(len(alike) == 1 for alike in strata.values()):
        strata = {None: [*groups.values()]}  # no two groups of one kind: any may be held out
    draws = key(SPLIT_SEED, np.arange(len(examples)))
    held: set[int] = set()
    for alike in strata.values():
        alike.sort(key=lambda rows: int(draws[rows[0]]))
        count = max(1, round(share * len(alike))) if len(alike) > 1 else 0
        held.update(i for rows in alike[:count] for i in rows)
    if not held:
        why = "no label has two examples (for scores: --task regression)"
        why = why if len(groups) > 1 else "all examples belong together"
        why = "it has one" if len(examples) == 1 else why
        raise DataError(
            f"The training file has too few examples to hold out a dev set: {why}. Add examples, or pass other labeled "
            "examples to evaluate on: --dev FILE."
        )
    train = [example for i, example in enumerate(examples) if i not in held]
    return train, [examples[i] for i in sorted(held)]


def _groups(
    examples: Sequence[Example], by: Callable[[Example], Hashable], group: Callable[[Example], Hashable]
) -> tuple[dict[Hashable, list[int]], dict[Hashable, list[list[int]]]]:
    """Returns the rows of each group, and the groups of each stratum."""
    groups: dict[Hashable, list[int]] = {}
    for i, example in enumerate(examples):
        name = group(example)
        groups.setdefault((name is None, i if name is None else name), []).append(i)
    strata: dict[Hashable, list[list[int]]] = {}
    for rows in groups.values():
        strata.setdefault(frozenset(by(examples[i]) for i in rows), []).append(rows)
    return groups, strata


def _fold_numbers(
    examples: Sequence[Example],
    count: int,
    by: Callable[[Example], Hashable],
    group: Callable[[Example], Hashable],
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Returns the fold of each example (E,). Each stratum is spread evenly, and whole groups are in one fold."""
    rows_of = Counter(by(example) for example in examples)
    if few := next((label for label, rows in rows_of.items() if label is not None and rows < count), None):
        raise DataError(
            f"folds is {count}, and the label {few!r} has {counted(rows_of[few], 'row')}. Each fold needs one: lower "
            "folds, or add rows of this label."
        )
    groups, strata = _groups(examples, by, group)
    if len(groups) < count:
        what = "group" if len(groups) < len(examples) else "row"
        raise DataError(f"folds is {count}, and there are {counted(len(groups), what)}. Lower folds.")
    draws, fold_E = key(SPLIT_SEED, np.arange(len(examples))), np.zeros(len(examples), np.int64)
    sizes = [0] * count
    for alike in sorted(strata.values(), key=len):  # what is rare first, so that what is frequent evens out the sizes
        own = [0] * count
        # The largest groups first, in the order of their draws.
        for rows in sorted(alike, key=lambda rows: (-len(rows), int(draws[rows[0]]))):
            fold = min(range(count), key=lambda fold: (own[fold], sizes[fold], fold))
            own[fold] += len(rows)
            sizes[fold] += len(rows)
            fold_E[rows] = fold
    return fold_E


def later(examples: Sequence[Example], share: float) -> _Parts:
    """Returns the earlier and the later examples. share: that of the later ones; those of one time stay together.

    Raises DataError where all have the same time.
    """
    times = check_times(examples)
    order = sorted(times)
    if not order or order[0] == order[-1]:
        raise DataError("All rows have the same time, so that none is later than another. Choose another time column.")
    at = min(len(order) - 1, max(1, round((1 - share) * len(order))))
    cut = next((time for time in order[at:] if time > order[0]), order[-1])
    train = [example for example, time in zip(examples, times, strict=True) if time < cut]
    return train, [example for example, time in zip(examples, times, strict=True) if time >= cut]


def _timed_folds(examples: Sequence[Example], count: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yields folds in the order of time: each is predicted from all before it. The first part is only learned."""
    time_E = np.array(check_times(examples))
    order = np.sort(time_E)
    cuts = [order[round(part * len(order) / (count + 1))] for part in range(1, count + 1)]
    if len({order[0], *cuts}) < count + 1:
        raise DataError(f"folds is {count}, and the rows have too few different times for it. Lower folds.")
    for low, high in zip(cuts, [*cuts[1:], np.inf], strict=True):
        yield np.flatnonzero(time_E < low).tolist(), np.flatnonzero((time_E >= low) & (time_E < high)).tolist()


def check_times(examples: Sequence[Example]) -> list[float]:
    """Returns the time of each example. Raises DataError where some are numbers and some are dates."""
    kinds = {example.time[0] for example in examples if example.time}
    if len(kinds) > 1:
        raise DataError("The time column has numbers and dates. Write all rows in one way, such as 2024-05-31.")
    return [example.time[1] if example.time else 0.0 for example in examples]
