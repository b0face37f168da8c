"""`Learner`: what a task's model is, what it should answer, and its loss. torch is imported when it is needed.

examples, Encoded -> targets -> Batch -> EncoderOutput -> logits -> losses        (fit: runs/finetune.py)
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bertie.data.tables import Example
from bertie.models.config import EncoderConfig
from bertie.tasks.source import Arrays, Encoded, Targets

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bertie.data.batch import Batch
    from bertie.models.encoder import EncoderOutput
    from bertie.models.loss import LossReport
    from bertie.models.model import Model


class Learner(ABC):
    """What learns: an objective without the corruption, so that `fit` runs both.

    labels: the head's outputs by name, where they have names; output: the name of the head in `Model.heads`.
    """

    labels: tuple[str, ...]

    @property
    @abstractmethod
    def output(self) -> str:
        """The name of its head, which decides the public architecture."""

    def heads(self, config: EncoderConfig) -> "dict[str, nn.Module]":
        """A fresh head, by the name it has in `Model.heads`."""
        from bertie.models.heads import HEADS

        return {self.output: HEADS[self.output](config, len(self.labels))}

    @abstractmethod
    def targets(self, examples: Sequence[Example], encoded: Encoded) -> Targets:
        """What the model should answer: arrays of W rows (per sequence) or T rows (per token); `Batch.labels` later.

        An example whose label the task does not know must not count (weight 0), since dev files have such.
        """

    @abstractmethod
    def counts(self, batch: "Batch") -> dict[str, int]:
        """Loss name -> number of predictions in this batch, known before the model runs."""

    def forward(self, model: "Model", batch: "Batch") -> "EncoderOutput":
        """What the encoder finds in a batch."""
        return model.encode(batch)

    def computed(self, model: "Model", encoded: Encoded) -> Arrays:
        """Arrays of T rows that stay the same while the model is trained, by their names in `Batch.labels`."""
        return {}

    def logits(self, model: "Model", output: "EncoderOutput") -> "Tensor":
        """The head's output. -> (B, L), or (T, L) where the head answers for tokens"""
        return model.logits(self.output, output)

    @abstractmethod
    def losses(self, logits: "Tensor", batch: "Batch") -> "LossReport":
        """The loss of each part, as a sum and a count, never a mean: `fit` divides once, at the end of a step."""

    def loss(self, model: "Model", output: "EncoderOutput", batch: "Batch") -> "LossReport":
        """The same from the encoder's output, as `fit` asks for it."""
        return self.losses(self.logits(model, output).float(), batch)
