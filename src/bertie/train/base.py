"""What `fit` asks of the things it is given: something to learn, and batches to learn it from."""

from typing import TYPE_CHECKING, Protocol

from bertie.data.batch import Batch
from bertie.models.loss import LossReport
from bertie.models.model import Model

if TYPE_CHECKING:
    from bertie.models.encoder import EncoderOutput


class Trainable(Protocol):
    """An objective or a task, as `fit` sees it."""

    def counts(self, batch: Batch) -> dict[str, int]:
        """Loss name -> number of predictions in this batch, known before the model runs."""
        ...

    def forward(self, model: Model, batch: Batch) -> "EncoderOutput":
        """What the encoder finds in a batch; nearly always `model.encode(batch)`."""
        ...

    def loss(self, model: Model, output: "EncoderOutput", batch: Batch) -> LossReport:
        """The loss of each part, as a sum."""
        ...


class Source(Protocol):
    """Where batches come from, as `fit` sees it."""

    @property
    def fingerprint(self) -> str:
        """Changes with whatever changes a batch."""
        ...

    def batches(self, step: int, *, rank: int = 0, world: int = 1) -> list[Batch]:
        """The micro-batches of step `step` (from 0) on one of `world` ranks; a pure function of its arguments."""
        ...
