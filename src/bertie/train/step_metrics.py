"""The metrics of steps: sums of losses, before division.

Sums are copied from the device while the next step is computed, so that an accelerator does not wait for them. Then
they are checked and added to a `MetricsWindow`, which makes the next line of metrics.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field

import torch
from torch import Tensor

from bertie.errors import Diverged
from bertie.files import JsonObject
from bertie.models.batch import Batch
from bertie.models.model import TorchModel
from bertie.train.base import Trainable
from bertie.train.step import StepTotals

ADVICE = (
    "The weights are not saved; the last checkpoint is intact. Try a lower optim.lr, a longer optim.warmup, or "
    "train.precision=fp32."
)


@dataclass
class MetricsWindow:
    """Sums since the last train line. It is part of every checkpoint as JSON, so that a line may span a resume."""

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    totals: dict[str, float] = field(default_factory=dict)
    correct: dict[str, float] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)

    def add(self, sums: StepTotals, values: list[float], counts: Mapping[str, float], tokens: int = 0) -> None:
        """Adds one step: its sums, with `values` as their numbers; counts: predictions by loss name."""
        totals, correct = sums.read(values)
        self.steps += 1
        self.weights |= sums.weights
        self.tokens += tokens
        for mine, more in ((self.totals, totals), (self.correct, correct), (self.counts, counts)):
            for name, value in more.items():
                mine[name] = mine.get(name, 0) + value

    def means(self) -> dict[str, float]:
        """Returns loss, and <name>_loss and <name>_accuracy of each term."""
        losses = {name: total / (self.counts[name] or 1) for name, total in self.totals.items()}
        shares = {name: right / (self.counts[name] or 1) for name, right in self.correct.items()}
        return {
            "loss": math.fsum(self.weights.get(name, 1.0) * loss for name, loss in losses.items()),
            **{f"{name}_loss": loss for name, loss in losses.items()},
            **{f"{name}_accuracy": share for name, share in shares.items()},
        }

    def state(self) -> JsonObject:
        """Returns the arguments of an equal `MetricsWindow`."""
        return asdict(self)


@dataclass(frozen=True)
class PendingStep:
    """A completed step. values: waits for its sums over all ranks, then the gradient norm."""

    step: int
    sums: StepTotals
    values: Callable[[], Tensor]
    counts: Mapping[str, float]
    tokens: int
    samples: list[int]


class MetricAccumulator:
    """The metrics of a run. Those of the last `lag` steps are not read yet."""

    def __init__(self, lag: int) -> None:
        self.window = MetricsWindow()
        self.tokens, self.loss, self.grad_norm = 0, 0.0, 0.0  # all tokens so far; loss and norm of the last step read
        self._lag = lag
        self._unseen: deque[PendingStep] = deque()

    def add(self, unseen: PendingStep) -> None:
        """Adds a step, and reads the one `lag` steps before. Raises Diverged for a value that is not finite."""
        self._unseen.append(unseen)
        self._read(self._lag)

    def settle(self) -> None:
        """Reads all steps. Raises Diverged."""
        self._read(0)

    def _read(self, lag: int) -> None:
        while len(self._unseen) > lag:
            step = self._unseen.popleft()
            *values, self.grad_norm = step.values().tolist()
            totals, _ = step.sums.read(values)
            _check_finite(step, totals, self.grad_norm)
            self.window.add(step.sums, values, step.counts, step.tokens)
            self.tokens += step.tokens
            weights = step.sums.weights
            self.loss = math.fsum(weights[name] * total / (step.counts[name] or 1) for name, total in totals.items())

    def take(self) -> MetricsWindow:
        """Returns the window since the last `take`, and starts a new one. Raises Diverged."""
        self.settle()
        taken, self.window = self.window, MetricsWindow()
        return taken


def check_look(step: int, figures: Mapping[str, float]) -> None:
    """Raises Diverged when the loss of an evaluation is not finite."""
    if not math.isfinite(figures.get("loss", 0.0)):
        raise Diverged(f"Step {step}: the loss of the evaluation is not a finite number. {ADVICE}")


def _check_finite(step: PendingStep, totals: Mapping[str, float], grad_norm: float) -> None:
    wrong = [f"the {name} loss" for name, total in totals.items() if not math.isfinite(total)]
    if not wrong and not math.isfinite(grad_norm):
        wrong = ["the gradient norm"]
    if wrong:
        shown = ", ".join(map(str, step.samples[:64])) + (" ..." if len(step.samples) > 64 else "")
        raise Diverged(
            f"Step {step.step}: {' and '.join(wrong)} is not a finite number. Samples of the step: {shown}. {ADVICE}"
        )


@torch.no_grad()
def measure_batches(model: TorchModel, objective: Trainable, batches: Iterable[Batch]) -> dict[str, float]:
    """Returns loss, and <name>_loss and <name>_accuracy of each term, over all predictions of the batches.

    The mode of the model (training or evaluation) is not changed.
    """
    window = MetricsWindow()
    device = next(model.parameters()).device
    for batch in batches:
        batch = batch.to(device)
        report = objective.loss(model, objective.forward(model, batch), batch)
        sums = StepTotals()
        sums.add(report)
        window.add(sums, sums.tensor().tolist(), {name: part.count for name, part in report.items()})
    return window.means()
