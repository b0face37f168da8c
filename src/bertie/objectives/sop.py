"""Sentence-order prediction: are two consecutive segments in order, or swapped? Lan et al. 2019, 3.1.

Both segments are from one document, so topics give no hint, unlike in next-sentence prediction.

Label in a batch, written by its pairing (data/pairing.py): sop_labels (B,) int64, 0 in order, 1 swapped.
"""

from dataclasses import dataclass
from typing import ClassVar

from bertie.data.pairing import SentenceOrderPairs
from bertie.data.plans import Pairing
from bertie.errors import WrongValue
from bertie.objectives.pair import TextPair


@dataclass(frozen=True)
class SentenceOrder(TextPair):
    """Distinguishes segments in order from swapped segments."""

    name: ClassVar[str] = "sop"
    verdict: ClassVar[tuple[str, str]] = ("sop: in order", "sop: swapped")

    duplicates: int = 10
    """Number of different pairings of the corpus (dupe factor): epoch e has that of epoch e % duplicates. Source: Lan
    et al. 2019, 3.1."""

    def __post_init__(self) -> None:
        if self.duplicates < 1:
            raise WrongValue(f"sop.duplicates is {self.duplicates}; it must be 1 or more.")

    @property
    def pairing(self) -> Pairing:
        """Two consecutive segments, swapped or not."""
        return SentenceOrderPairs(self.duplicates)
