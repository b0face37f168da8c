"""Classification of a text, or of a pair of texts: one label each.

    [CLS] text [SEP]            one segment
    [CLS] first [SEP] second [SEP]     two (Devlin et al. 2018, figure 4 a and b)

B sequences · L labels
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from bertie.data.batch import Batch
from bertie.errors import DataError
from bertie.models.config import EncoderConfig
from bertie.models.heads import SequenceHead
from bertie.models.loss import LossReport, Part
from bertie.tasks.base import Prediction

if TYPE_CHECKING:
    from bertie.models.encoder import EncoderOutput
    from bertie.models.model import Model


@dataclass(frozen=True)
class SequenceTask:
    """One of `labels` for each sequence. Raises DataError for fewer than two labels."""

    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.labels) < 2:
            have = f"only {self.labels[0]!r}" if self.labels else "no label at all"
            raise DataError(f"The examples hold {have}; telling apart needs two labels or more.")

    def heads(self, config: EncoderConfig) -> dict[str, nn.Module]:
        """A linear layer over the pooled [CLS]."""
        return {"sequence": SequenceHead(config, num_labels=len(self.labels))}

    def counts(self, batch: Batch) -> dict[str, int]:
        """Examples, not sequences: the windows of one long text weigh 1 together."""
        return {"label": round(float(batch.labels["weight"].sum()))}

    def logits(self, model: "Model", output: "EncoderOutput") -> Tensor:
        """-> (B, L)"""
        logits: Tensor = model.heads["sequence"](output)
        return logits

    def loss(self, model: "Model", output: "EncoderOutput", batch: Batch) -> LossReport:
        """Cross-entropy. Reads labels "label" (B,) int64 and "weight" (B,) float32."""
        logits_BL = self.logits(model, output).float()
        target_B, weight_B = batch.labels["label"], batch.labels["weight"]
        loss_B = nn.functional.cross_entropy(logits_BL, target_B, reduction="none")
        correct = (weight_B * (logits_BL.argmax(-1) == target_B)).sum()
        return {"label": Part((weight_B * loss_B).sum(), self.counts(batch)["label"], correct.detach())}

    def decode(self, logits: Tensor) -> list[Prediction]:
        """logits (B, L) -> one Prediction each; among equals the label that comes first."""
        predictions = []
        for row in torch.softmax(logits.float(), -1).tolist():
            best = max(range(len(row)), key=row.__getitem__)
            predictions.append(Prediction(self.labels[best], row[best], dict(zip(self.labels, row, strict=True))))
        return predictions


def label_names(labels: set[str]) -> tuple[str, ...]:
    """The order labels have in a model: numbers by value if all are whole numbers, else by their characters.

    It depends on which labels there are, never on the order of the rows.
    """
    if all(label.lstrip("-").isdecimal() for label in labels):
        return tuple(sorted(labels, key=lambda label: (int(label), label)))
    return tuple(sorted(labels))
