"""The base of objectives on pairs of segments: binary classification of each sequence from the pooled [CLS].

The pairing (data/pairing.py) makes the labels, so nothing is corrupted here.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from torch import Tensor, nn

from bertie.console import counted
from bertie.data.batch import Batch
from bertie.data.draws import Draws
from bertie.data.fixed_shapes import NO_TARGET
from bertie.data.masking import Vocabulary
from bertie.data.plans import Pairing, Sentences
from bertie.data.sequences import LabelAxis, Sequences
from bertie.errors import DataError, UsageError
from bertie.models.config import EncoderConfig
from bertie.models.heads import HEADS
from bertie.models.loss import right
from bertie.models.model import SUMMARY
from bertie.objectives.base import LossReport, LossTerm, Objective

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
