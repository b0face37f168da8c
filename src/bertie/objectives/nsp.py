"""Next-sentence prediction: does the second text follow the first, or was it drawn from elsewhere? Devlin et al., 3.1.

Label it reads from a batch, written by its pairing (data/pairing.py): nsp_labels (B,) int64, 0 it follows, 1 random.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from bertie.data.pairing import NextSentencePairs
from bertie.data.plans import Pairing, Sentences
from bertie.errors import DataError, UsageError, nearest
from bertie.objectives.pair import TextPair


@dataclass(frozen=True)
class NextSentence(TextPair):
    """Tell text that follows from text drawn at random. Raises UsageError for an unknown form."""

    name: ClassVar[str] = "nsp"
    verdict: ClassVar[tuple[str, str]] = ("nsp: it follows", "nsp: random")

    form: Literal["corrected", "original"] = "corrected"
    """How pairs are made: as in the release, or that with its faults mended (data/pairing.py says which)."""
    duplicates: int = 10
    """Pairings of the corpus that are made before they repeat: epoch e has that of e % duplicates."""

    def __post_init__(self) -> None:
        if self.form not in ("corrected", "original"):
            raise UsageError(f"Unknown nsp.form {self.form!r}. {nearest(str(self.form), ('corrected', 'original'))}")
        if self.duplicates < 1:
            raise UsageError(f"nsp.duplicates is {self.duplicates}; it must be 1 or more.")

    @property
    def pairing(self) -> Pairing:
        """Two segments, the second from the same place or from another document."""
        return NextSentencePairs(self.form, self.duplicates)

    def check(self, sentences: Sentences) -> None:
        """Two documents at the least, and one of two sentences."""
        if sentences.num_documents < 2:
            raise DataError(
                f"{self.name} draws random texts from other documents, but this corpus has "
                f"{sentences.num_documents:,}. Add documents (in a text file, a blank line starts a new one), "
                f"{self.leave_out}"
            )
        super().check(sentences)
