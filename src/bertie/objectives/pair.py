"""Objectives on pairs: binary classification of each sequence from the pooled [CLS].

    nsp    does the second text follow the first, or is it random?          Devlin et al. 2018, 3.1
    sop    are two consecutive segments in order, or swapped?               Lan et al. 2019, 3.1
    itm    does the picture belong to the text, or to another?              Li et al. 2019, 3.3; Chen et al. 2020, 3.2

The segments of sop are from one document, so topics give no hint, unlike in nsp. The pairing (data/pairing.py,
objectives/captions.py) writes the labels, so nothing is corrupted here: nsp_labels, sop_labels or itm_labels (B,)
int64, 0 for the first answer, 1 for the second.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from torch import Tensor, nn

from bertie.console import counted
from bertie.data.masking import Vocabulary
from bertie.data.pairing import NextSentencePairs, OtherVectors, SentenceOrderPairs
from bertie.data.plans import Pairing, Sentences
from bertie.errors import DataError, UnknownName, UsageError, WrongValue, nearest
from bertie.models.batch import Batch
from bertie.models.config import EncoderConfig
from bertie.models.fixed_shapes import NO_TARGET
from bertie.models.heads import HEADS
from bertie.models.loss import LabelAxis, right
from bertie.models.model import SUMMARY
from bertie.objectives.base import LossReport, LossTerm, Objective
from bertie.order import Draws
from bertie.text.sequences import Sequences

if TYPE_CHECKING:
    from bertie.models.encoder import EncoderOutput
    from bertie.models.model import TorchModel


class TextPair(Objective):
    """Distinguishes two kinds of pairs. Its pairing writes a label (B,) int64: 0 or 1."""

    @property
    @abstractmethod
    def pairing(self) -> Pairing:
        """The pairs of segments, with the label of this objective."""

    verdict: ClassVar[tuple[str, str]]
    """The meanings of the labels 0 and 1."""

    @property
    def label(self) -> str:
        """The name of the label in a batch."""
        return self.pairing.label or f"{self.name}_labels"

    @property
    def label_axes(self) -> Mapping[str, LabelAxis]:  # type: ignore[override]
        """Its label is that of a sequence."""
        return {self.label: "sequence_target"}

    def check(self, sentences: Sentences) -> None:
        """Raises DataError when no document has two sentences."""
        if int(np.diff(sentences.bounds).max()) < 2:
            raise DataError(
                f"{self.name} needs documents of at least two sentences, but the corpus has only "
                f"{counted(sentences.num_documents, 'document')} of one sentence. Join lines that belong together into "
                f"one document, {self.leave_out}"
            )

    @property
    def leave_out(self) -> str:
        """The end of an error message: how to remove the objective."""
        return f"or remove the objective: objectives.{self.name}=null."

    def heads(self, config: EncoderConfig) -> dict[str, nn.Module]:
        """Returns the head with two logits from the pooled [CLS]."""
        if not config.pooler:
            raise UsageError(
                f"{self.name} needs a pooler, which this model does not have. Remove the objective: "
                f"objectives.{self.name}=null."
            )
        return {"pair": HEADS["pair"](config)}

    def corrupt(self, batch: Sequences, rng: Draws, vocabulary: Vocabulary) -> Sequences:
        """Returns the sequences unchanged, since the pairs have their labels."""
        return batch

    def counts(self, batch: Batch) -> dict[str, int]:
        """Returns the number of pairs, B."""
        return {self.name: len(batch.labels[self.label])}

    def describe_labels(self, batch: Sequences) -> list[str]:
        """Returns the label of each pair in words."""
        return [self.verdict[label] for label in batch.labels[self.label].tolist()]

    def read(self, batch: Batch) -> Tensor | None:
        """Returns no token: the head reads the summary tokens alone."""
        return SUMMARY

    def loss(self, model: "TorchModel", output: "EncoderOutput", batch: Batch) -> LossReport:
        """Returns the cross-entropy over the two labels."""
        logits_B2 = model.logits("pair", output).float()
        labels_B = batch.labels[self.label]
        total = nn.functional.cross_entropy(logits_B2, labels_B, ignore_index=NO_TARGET, reduction="sum")
        correct_B = right(logits_B2, labels_B.clamp(min=0)) & (labels_B != NO_TARGET)
        return {self.name: LossTerm(total, len(labels_B), correct_B.sum())}


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
