"""Next-sentence prediction: does the second text follow the first, or is it random? Devlin et al. 2018, 3.1.

Label in a batch, written by its pairing (data/pairing.py): nsp_labels (B,) int64, 0 for a following text, 1 for random.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from bertie.data.pairing import NextSentencePairs
from bertie.data.plans import Pairing, Sentences
from bertie.errors import DataError, UnknownName, WrongValue, nearest
from bertie.objectives.pair import TextPair


@dataclass(frozen=True)
class NextSentence(TextPair):
    """Predicts whether the second text follows the first. Raises UsageError for an unknown form."""

    name: ClassVar[str] = "nsp"
    verdict: ClassVar[tuple[str, str]] = ("nsp: it follows", "nsp: random")

    form: Literal["corrected", "original"] = "corrected"
    """Algorithm for pairs: original (as in google-research/bert), or corrected, without its errors (data/pairing.py).
    Source: Devlin et al. 2018, 3.1; create_pretraining_data.py; corrected: ours."""
    duplicates: int = 10
    """Number of different pairings of the corpus (dupe factor): epoch e has that of epoch e % duplicates. Source:
    google-research/bert, create_pretraining_data.py."""

    def __post_init__(self) -> None:
        if self.form not in ("corrected", "original"):
            raise UnknownName(f"Unknown nsp.form {self.form!r}. {nearest(str(self.form), ('corrected', 'original'))}")
        if self.duplicates < 1:
            raise WrongValue(f"nsp.duplicates is {self.duplicates}; it must be 1 or more.")

    @property
    def pairing(self) -> Pairing:
        """Two segments; the second one follows the first, or is from another document."""
        return NextSentencePairs(self.form, self.duplicates)

    def check(self, sentences: Sentences) -> None:
        """Raises DataError for fewer than two documents, or documents of one sentence only."""
        if sentences.num_documents < 2:
            raise DataError(
                f"{self.name} draws random texts from other documents, but this corpus has "
                f"{sentences.num_documents:,}. Add documents (in a text file, a blank line starts a new one), "
                f"{self.leave_out}"
            )
        super().check(sentences)
