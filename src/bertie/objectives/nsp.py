"""Next-sentence prediction: does the second text follow the first, or was it drawn from elsewhere? Devlin et al., 3.1.

Label it reads from a batch, written by its pairing (data/pairing.py): nsp_labels (B,) int64, 0 it follows, 1 random.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from torch import nn

from bertie.data.batch import Batch
from bertie.data.draws import Draws
from bertie.data.masking import Vocabulary
from bertie.data.pairing import NextSentencePairs
from bertie.data.plans import Pairing, Sentences
from bertie.errors import DataError, UsageError, nearest
from bertie.models.config import EncoderConfig
from bertie.models.heads import PairHead
from bertie.objectives.base import LossReport, Objective, Part

if TYPE_CHECKING:
    from bertie.models.encoder import EncoderOutput
    from bertie.models.model import Model


@dataclass(frozen=True)
class NextSentence(Objective):
    """Tell text that follows from text drawn at random. Raises UsageError for an unknown form."""

    name: ClassVar[str] = "nsp"

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
        """Two segments, with the label of this objective."""
        return NextSentencePairs(self.form, self.duplicates)

    def check(self, sentences: Sentences) -> None:
        """Two documents at the least, and one of two sentences."""
        drop = "or leave next-sentence prediction out: objectives.nsp=null."
        if sentences.num_documents < 2:
            raise DataError(
                f"Next-sentence prediction draws random texts from other documents, and this corpus has "
                f"{sentences.num_documents:,}. Add documents (a blank line in a text file starts a new one), {drop}"
            )
        if int(np.diff(sentences.bounds).max()) < 2:
            raise DataError(
                f"Next-sentence prediction needs documents of two sentences or more; all {sentences.num_documents:,} "
                f"documents here have one. Join lines that belong together into one document, {drop}"
            )

    def heads(self, config: EncoderConfig) -> dict[str, nn.Module]:
        """Two logits from the pooled [CLS]."""
        if not config.pooler:
            raise UsageError("Next-sentence prediction reads the pooled [CLS]; this model has no pooler.")
        return {"pair": PairHead(config)}

    def corrupt(self, batch: Batch, rng: Draws, vocabulary: Vocabulary) -> Batch:
        """Nothing to do: the pairs were made with their labels."""
        return batch

    def counts(self, batch: Batch) -> dict[str, int]:
        """B"""
        return {"nsp": len(batch.labels["nsp_labels"])}

    def loss(self, model: "Model", output: "EncoderOutput", batch: Batch) -> LossReport:
        """Cross-entropy over the two answers."""
        logits_B2 = model.heads["pair"](output).float()
        labels_B = batch.labels["nsp_labels"]
        total = nn.functional.cross_entropy(logits_B2, labels_B, reduction="sum")
        return {"nsp": Part(total, len(labels_B), (logits_B2.argmax(-1) == labels_B).sum())}
