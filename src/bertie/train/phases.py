"""A run in phases: consecutive sources, each for a number of steps, as one source.

Short texts and then long texts (Devlin et al. 2018, A.2), or growing batches: one run with one learning-rate schedule.
The batch of a step remains a function of the step.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import xxhash

from bertie.models.batch import Batch
from bertie.train.base import BatchSource


class PhasedSource:
    """`parts`: each source with its steps, in order. Steps after the last phase use its source."""

    def __init__(self, parts: Sequence[tuple[int, BatchSource]]) -> None:
        self.sources = [source for _, source in parts]
        self.ends = list(accumulate(steps for steps, _ in parts))

    @property
    def fingerprint(self) -> str:
        """The fingerprint of a single source, or a hash of all fingerprints and of the boundaries."""
        if len(self.sources) == 1:
            return self.sources[0].fingerprint
        parts = [(source.fingerprint, end) for source, end in zip(self.sources, self.ends, strict=True)]
        return xxhash.xxh3_128_hexdigest(repr(parts).encode())

    @property
    def boundaries(self) -> list[int]:
        """The numbers of completed steps at which phases end, without the last phase."""
        return self.ends[:-1]

    def phase(self, step: int) -> int:
        """Returns the phase, from 0, of step `step`, from 0."""
        return bisect_right(self.boundaries, step)

    def batches(self, step: int, *, rank: int = 0, world: int = 1) -> list[Batch]:
        """Returns the batches of the phase for that step of the phase."""
        number = self.phase(step)
        return self.sources[number].batches(step - [0, *self.ends][number], rank=rank, world=world)
