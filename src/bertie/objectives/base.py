"""What an objective is: four methods, and a sum.

An objective never divides: it returns a sum and a count for each of its parts, and `fit` divides once, when it has
gathered all micro-batches and ranks of a step. So one batch of 64 equals 4 of 16, whatever the mask counts.
"""

from typing import TYPE_CHECKING, Protocol

from torch import nn

from bertie.data.batch import Batch
from bertie.data.draws import Draws
from bertie.models.config import EncoderConfig
from bertie.models.loss import LossReport, Part

if TYPE_CHECKING:
    from bertie.models.encoder import EncoderOutput
    from bertie.models.model import Model

__all__ = ["LossReport", "Objective", "Part"]


class Objective(Protocol):
    """A pre-training objective. `MaskedLM() + NextSentence()` is one too."""

    name: str

    def heads(self, config: EncoderConfig) -> dict[str, nn.Module]:
        """Fresh heads this objective needs on top of the encoder, by the name they have in `Model.heads`."""
        ...

    def corrupt(self, batch: Batch, rng: Draws) -> Batch:
        """The batch as the model shall see it, with this objective's labels added. Pure."""
        ...

    def counts(self, batch: Batch) -> dict[str, int]:
        """Part name -> number of predictions in this corrupted batch, known before the model runs."""
        ...

    def loss(self, model: "Model", output: "EncoderOutput", batch: Batch) -> LossReport:
        """The loss of each part, from the encoder's output on a corrupted batch."""
        ...
