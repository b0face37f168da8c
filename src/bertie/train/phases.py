"""A run in phases: sources one after the other, each for a number of steps, are one source.

Short texts first and long ones then (Devlin et al. 2018, A.2), or batches that grow: one run, one learning-rate
schedule, and the batch of a step still is a function of the step.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import xxhash

from bertie.data.batch import Batch
from bertie.train.base import Source


class PhasedSource:
    """`parts`: each source with its steps, in turn. What lies behind the last goes on with it."""

    def __init__(self, parts: Sequence[tuple[int, Source]]) -> None:
        self.sources = [source for _, source in parts]
        self.ends = list(accumulate(steps for steps, _ in parts))

    @property
    def fingerprint(self) -> str:
        """That of a single source; else of all, and of where they end."""
        if len(self.sources) == 1:
            return self.sources[0].fingerprint
        parts = [(source.fingerprint, end) for source, end in zip(self.sources, self.ends, strict=True)]
        return xxhash.xxh3_128_hexdigest(repr(parts).encode())

    @property
    def boundaries(self) -> list[int]:
        """How many steps are done when a phase other than the last is over."""
        return self.ends[:-1]

    def phase(self, step: int) -> int:
        """The number, from 0, of the phase that step `step`, from 0, belongs to."""
        return bisect_right(self.boundaries, step)

    def batches(self, step: int, *, rank: int = 0, world: int = 1) -> list[Batch]:
        """The phase's batches at that step of the phase."""
        number = self.phase(step)
        return self.sources[number].batches(step - [0, *self.ends][number], rank=rank, world=world)
