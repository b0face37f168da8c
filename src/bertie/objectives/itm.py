"""Image-text matching: does the picture belong to the text, or to another? Li et al. 2019, 3.3; Chen et al. 2020, 3.2.

Label in a batch, written by objectives/captions.py: itm_labels (B,) int64, 0 for its own picture, 1 for another.
"""

from dataclasses import dataclass
from typing import ClassVar

from bertie.data.pairing import OtherVectors
from bertie.data.plans import Sentences
from bertie.errors import DataError, WrongValue
from bertie.objectives.pair import TextPair


@dataclass(frozen=True)
class ImageTextMatching(TextPair):
    """Predicts whether the feature vectors are those of the text's row. Raises UsageError for a share outside 0 to
    1."""

    name: ClassVar[str] = "itm"
    verdict: ClassVar[tuple[str, str]] = ("itm: its own picture", "itm: another picture")

    share: float = 0.5
    """Fraction of the texts that get the picture of another row. Source: Li et al. 2019, 3.3."""

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise WrongValue(f"itm.share is {self.share}; it must be above 0 and below 1.")

    @property
    def pairing(self) -> OtherVectors:
        """One segment, with the feature vectors of its row or of another."""
        return OtherVectors(self.share)

    def check(self, sentences: Sentences) -> None:
        """Raises DataError: a corpus of texts has no pictures."""
        raise DataError(
            "itm needs pictures, and a corpus has only texts. Pass a table with a column of feature vectors: "
            f"--corpus captions.jsonl --features image, {self.leave_out}"
        )
