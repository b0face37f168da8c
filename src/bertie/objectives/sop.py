"""Sentence order: do two consecutive segments stand as they were written, or swapped? Lan et al. 2019, 3.1.

Both segments are of one document, so that topics tell nothing, as they do in next-sentence prediction.

Label it reads from a batch, written by its pairing (data/pairing.py): sop_labels (B,) int64, 0 as written, 1 swapped.
"""

from dataclasses import dataclass
from typing import ClassVar

from bertie.data.pairing import SentenceOrderPairs
from bertie.data.plans import Pairing
from bertie.errors import UsageError
from bertie.objectives.pair import TextPair


@dataclass(frozen=True)
class SentenceOrder(TextPair):
    """Tell segments in order from swapped ones."""

    name: ClassVar[str] = "sop"
    verdict: ClassVar[tuple[str, str]] = ("sop: in order", "sop: swapped")

    duplicates: int = 10
    """Pairings of the corpus that are made before they repeat: epoch e has that of e % duplicates."""

    def __post_init__(self) -> None:
        if self.duplicates < 1:
            raise UsageError(f"sop.duplicates is {self.duplicates}; it must be 1 or more.")

    @property
    def pairing(self) -> Pairing:
        """Two segments, swapped or not."""
        return SentenceOrderPairs(self.duplicates)
