"""The computation of one optimizer step: its micro-batches, and the gradients of their loss.

A loss is the sum over all micro-batches and ranks, divided once by the count over all of them. So one batch of 64 has
the gradients of 4 of 16 and of 2 ranks of 32, whatever the masks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import torch
from torch import Tensor

from bertie.models.batch import Batch
from bertie.models.loss import LossReport
from bertie.models.model import TorchModel
from bertie.order import key
from bertie.train.base import BatchSource, ComparesExamples, Trainable
from bertie.train.distributed import World

if TYPE_CHECKING:
    from bertie.models.encoder import EncoderOutput
    from bertie.train.graphs import RecordedPasses

_T = TypeVar("_T")


@dataclass(frozen=True)
class RankBatch:
    """A rank's part of a step: its micro-batches, their numbers of predictions by loss name, and of real tokens."""

    batches: list[Batch]
    counts: dict[str, float]
    tokens: int

    @property
    def samples(self) -> list[int]:
        """The numbers of the samples."""
        return [i for batch in self.batches for i in batch.sample_ids.tolist()]


def share(source: BatchSource, objective: Trainable, step: int, world: World) -> RankBatch:
    """Returns this rank's part of step `step`, from 0. It uses no device, since other threads call it ahead of time."""
    batches = source.batches(step, rank=world.rank, world=world.size)
    counts = dict[str, float]()
    for batch in batches:
        for name, count in objective.counts(batch).items():
            counts[name] = counts.get(name, 0) + count
    return RankBatch(batches, counts, sum(batch.tokens for batch in batches))


class StepTotals:
    """The sums over the micro-batches of a step, on their device."""

    def __init__(self) -> None:
        self._totals: dict[str, Tensor] = {}
        self._correct: dict[str, Tensor] = {}
        self.weights: dict[str, float] = {}

    def add(self, report: LossReport) -> None:
        """Adds a micro-batch."""
        for name, part in report.items():
            _add(self._totals, name, part.total)
            self.weights[name] = part.weight
            if part.correct is not None:
                _add(self._correct, name, part.correct)

    def tensor(self) -> Tensor:
        """Returns all sums in one float32 tensor, for one transfer."""
        return torch.stack([*self._totals.values(), *self._correct.values()])

    def read(self, values: list[float]) -> tuple[dict[str, float], dict[str, float]]:
        """Converts `tensor()`, possibly summed over ranks, to summed losses and numbers of correct predictions by loss
        name."""
        cut = len(self._totals)
        return dict(zip(self._totals, values[:cut], strict=True)), dict(zip(self._correct, values[cut:], strict=True))


def _add(sums: dict[str, Tensor], name: str, value: Tensor) -> None:
    value = value.detach().float()
    sums[name] = sums[name] + value if name in sums else value


class ForwardRunner(Protocol):
    """Protocol of a function that runs a forward pass."""

    def __call__(self, forward: Callable[[], _T], /) -> _T:
        """Returns what `forward` returns."""
        ...


def backward(
    model: TorchModel,
    objective: Trainable,
    batches: list[Batch],
    counts: Mapping[str, float],
    *,
    seed: tuple[int, ...],
    device: torch.device,
    passes: int = 0,
    recorded: "RecordedPasses | None" = None,
    run: ForwardRunner = lambda forward: forward(),
) -> StepTotals:
    """Adds the gradients of a step's loss to the parameters' `.grad`, one micro-batch at a time.

    counts: predictions by loss name over all micro-batches and ranks. Dropout is drawn from (seed, micro-batch), so a
    step that is repeated after a resume has the same dropout. passes: the minimum number of passes, for ranks that run
    in step; additional passes repeat the last micro-batch with weight 0. recorded: runs the passes that it has graphs
    for. run: calls a forward pass. A CPU's own generator is seeded: torch.manual_seed writes down the stack thrice.
    """
    sums = StepTotals()
    compared = _compared(model, objective, batches, counts, seed=seed, device=device, passes=passes, sums=sums)
    if getattr(model.encoder, "graphs", None) is not None and max(passes, len(batches)) > 1:
        for parameter in model.encoder.layers.parameters():  # or graphs would write over the first gradients
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
    for micro in range(max(passes, len(batches))):
        (torch.default_generator if device.type == "cpu" else torch).manual_seed(int(key(*seed, micro)))
        again = micro >= len(batches)
        host = batches[min(micro, len(batches) - 1)]
        if recorded is not None and not again and (done := recorded.add_gradients(host, counts)) is not None:
            sums.add(done)
            continue
        batch = host.to(device)

        def forward(batch: Batch = batch, micro: int = micro) -> tuple[Tensor, LossReport]:
            output = objective.forward(model, batch)
            if compared is not None:
                return compared.loss(model, output, micro), {}
            report = objective.loss(model, output, batch)
            return _mean_loss(report, counts), report

        loss, report = run(forward)
        (0 * loss if again else loss).backward()  # type: ignore[no-untyped-call]
        if not again:
            sums.add(report)
        del loss, report  # with what they keep of this pass, the next one could not be recorded
    return sums


def _mean_loss(report: LossReport, counts: Mapping[str, float]) -> Tensor:
    """The loss of a step or of a part of it: sums, divided by the counts of the whole step."""
    return torch.stack([part.weight * part.total / (counts[name] or 1) for name, part in report.items()]).sum()


@dataclass(frozen=True)
class _Compared:
    """The gradient of a step's loss by the logits of each of its micro-batches.

    Their passes need no more memory than one (Gao et al. 2021, arXiv:2101.06983): the logits of all are computed
    without gradients, then the loss of the step and its gradient by them, then each pass again, with the same dropout.
    """

    objective: ComparesExamples
    gradients: Sequence[Tensor]

    def loss(self, model: TorchModel, output: "EncoderOutput", micro: int) -> Tensor:
        """Returns a number whose gradient is that of the step's loss. micro: the micro-batch of the output."""
        logits = self.objective.logits(model, output).float()
        return (logits * self.gradients[min(micro, len(self.gradients) - 1)]).sum()


def _compared(
    model: TorchModel,
    objective: Trainable,
    batches: list[Batch],
    counts: Mapping[str, float],
    *,
    seed: tuple[int, ...],
    device: torch.device,
    passes: int,
    sums: StepTotals,
) -> _Compared | None:
    """Returns the gradients by the logits of several micro-batches where the loss compares their examples. Adds the
    losses to `sums`."""
    if max(len(batches), passes) < 2 or not (isinstance(objective, ComparesExamples) and objective.whole_step):
        return None
    logits = list[Tensor]()
    for micro in range(max(passes, len(batches))):
        (torch.default_generator if device.type == "cpu" else torch).manual_seed(int(key(*seed, micro)))
        batch = batches[min(micro, len(batches) - 1)].to(device)
        with torch.no_grad():
            logits.append(objective.logits(model, objective.forward(model, batch)).float())
    logits = [one.requires_grad_() for one in logits[: len(batches)]]
    parts = [batch.sequences for batch in batches if batch.sequences is not None]
    report = objective.losses(torch.cat(logits), Batch.of(*parts).to(device))
    sums.add(report)
    return _Compared(objective, torch.autograd.grad(_mean_loss(report, counts), logits))
