"""What `fit` needs: something to train, and batches to train it on, in phases."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import xxhash

from bertie.files import JsonObject
from bertie.models.batch import Batch
from bertie.models.loss import LabelAxis, LossReport
from bertie.models.model import TorchModel

if TYPE_CHECKING:
    from torch import Tensor

    from bertie.models.encoder import EncoderOutput


class Trainable(Protocol):
    """Protocol of what `fit` can train: a pre-training objective or a fine-tuning task."""

    @property
    def label_axes(self) -> "Mapping[str, LabelAxis] | None":
        """The axis of each label of a batch, where the loss leaves out labels of weight 0 and targets below 0."""
        ...

    def counts(self, batch: Batch) -> Mapping[str, float]:
        """Returns the number of predictions in this batch by loss name, or the sum of their weights, without running
        the model."""
        ...

    def forward(self, model: TorchModel, batch: Batch) -> "EncoderOutput":
        """Runs the model on a batch; nearly always `model.encode(batch)`."""
        ...

    def loss(self, model: TorchModel, output: "EncoderOutput", batch: Batch) -> LossReport:
        """Returns the loss terms as sums."""
        ...


class BatchSource(Protocol):
    """Protocol of a source of batches."""

    @property
    def fingerprint(self) -> str:
        """Changes with everything that changes a batch."""
        ...

    def batches(self, step: int, *, rank: int = 0, world: int = 1) -> list[Batch]:
        """Returns the micro-batches of step `step` (from 0) on one of `world` ranks; a pure function of its
        arguments."""
        ...


class PhasedSource:
    """A run in phases: consecutive sources, each for a number of steps, as one source.

    Short texts and then long texts (Devlin et al. 2018, A.2), or growing batches: one run with one learning-rate
    schedule. The batch of a step remains a function of the step. parts: each source with its steps, in order. Steps
    after the last phase use its source.
    """

    def __init__(self, parts: Sequence[tuple[int, BatchSource]]) -> None:
        self.sources = [source for _, source in parts]
        self.ends = list(accumulate(steps for steps, _ in parts))

    @property
    def fingerprint(self) -> str:
        """The fingerprint of a single source, or a hash of all fingerprints and of the boundaries."""
        if len(self.sources) == 1:
            return self.sources[0].fingerprint
        parts = [(source.fingerprint, end) for source, end in zip(self.sources, self.ends, strict=True)]
        return xxhash.xxh3_128_hexdigest(repr(parts).encode())

    @property
    def boundaries(self) -> list[int]:
        """The numbers of completed steps at which phases end, without the last phase."""
        return self.ends[:-1]

    def phase(self, step: int) -> int:
        """Returns the phase, from 0, of step `step`, from 0."""
        return bisect_right(self.boundaries, step)

    def batches(self, step: int, *, rank: int = 0, world: int = 1) -> list[Batch]:
        """Returns the batches of the phase for that step of the phase."""
        number = self.phase(step)
        return self.sources[number].batches(step - [0, *self.ends][number], rank=rank, world=world)


class RunUsage(Protocol):
    """Protocol of what a run took so far."""

    def as_json(self) -> JsonObject:
        """Returns the figures as JSON values."""
        ...


class RunMeter(Protocol):
    """Protocol of what counts time, memory and energy, over all starts of a run."""

    def read(self) -> RunUsage:
        """Returns what the run took so far. Counters of energy start again, so it is called at log steps too."""
        ...

    def resume(self, before: Mapping[str, object]) -> None:
        """Adds what the earlier starts of a run took: `Usage.as_json()`, or nothing."""
        ...


@runtime_checkable
class ResizableSource(Protocol):
    """Protocol of a source whose micro-batches can become smaller during a run."""

    micro_batch_size: int | None


@runtime_checkable
class ComparesExamples(Protocol):
    """Protocol of what can learn from the logits of a whole step, however many micro-batches they come from."""

    @property
    def whole_step(self) -> bool:
        """Whether its loss compares the examples of a step."""
        ...

    def logits(self, model: TorchModel, output: "EncoderOutput") -> "Tensor":
        """Returns what is compared, a row for each sequence."""
        ...

    def losses(self, logits: "Tensor", batch: Batch) -> LossReport:
        """Returns the loss terms of the batch that all micro-batches are together."""
        ...
