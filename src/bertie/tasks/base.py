"""What a task is: labels with names, a head, a loss that adds up, and the way from logits to a `Prediction`.

A task is an objective without the corruption: `fit` runs both. Adding one is one file with these methods and one row
in tasks/__init__.py (docs/fine-tuning.md shows it).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor, nn

from bertie.data.batch import Batch
from bertie.models.config import EncoderConfig
from bertie.models.loss import LossReport

if TYPE_CHECKING:
    from bertie.models.encoder import EncoderOutput
    from bertie.models.model import Model


@dataclass(frozen=True)
class Prediction:
    """What the model says of one example: the most probable label, its probability, every label's probability."""

    label: str
    probability: float
    scores: Mapping[str, float]

    def as_json(self) -> dict[str, Any]:
        """The same with probabilities rounded to six digits, which is what float32 can vouch for."""
        scores = {label: round(score, 6) for label, score in self.scores.items()}
        return {"label": self.label, "probability": round(self.probability, 6), "scores": scores}


class Task(Protocol):
    """A supervised task on top of an encoder. Batches come from tasks/source.py with labels "label" and "weight"."""

    labels: tuple[str, ...]

    def heads(self, config: EncoderConfig) -> dict[str, nn.Module]:
        """Fresh heads this task needs on top of the encoder, by the name they have in `Model.heads`."""
        ...

    def counts(self, batch: Batch) -> dict[str, int]:
        """Part name -> number of examples in this batch, known before the model runs."""
        ...

    def logits(self, model: "Model", output: "EncoderOutput") -> Tensor:
        """The head's output for each of the batch's sequences. -> (B, number of labels)"""
        ...

    def loss(self, model: "Model", output: "EncoderOutput", batch: Batch) -> LossReport:
        """The loss of each part, from the encoder's output."""
        ...

    def decode(self, logits: Tensor) -> list[Prediction]:
        """logits (B, number of labels) -> one Prediction per example."""
        ...
