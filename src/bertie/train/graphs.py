"""Training on an NVIDIA GPU: forward pass, loss and backward pass of a micro-batch recorded as CUDA graphs, by shape.

The thousands of kernels of a step take longer to launch than to run, in small models by a multiple. A graph launches
all of them at once. Layers then run as the kernels of nn/fused.py, whose launches alone would cost more than they gain.

Batches have few shapes (models/fixed_shapes.py). A shape is recorded when it occurs for the second time, or later
where a batch can be filled up to a larger one. Until then, a batch runs by the same kernels without a graph. Its masks
of dropout are the same, since they do not depend on its shape. What waits for the GPU runs as on every other device.
This is noticed before it is recorded.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from bertie.console import console
from bertie.models.batch import Batch
from bertie.models.fixed_shapes import SPARE_ROWS_DIVISOR, with_fixed_shape
from bertie.models.loss import LabelAxis, LossReport, LossTerm
from bertie.models.model import TorchModel
from bertie.nn.graphs import can_record, count_sites
from bertie.nn.layout import moved
from bertie.nn.seeds import draw_seeds, using_kernels
from bertie.train.base import Trainable

_MAX_SHAPES = 32  # shapes that are recorded; batches of more shapes run without
_MIN_OCCURRENCES = (
    6  # times that a shape occurs until it is recorded although a larger one serves: recording takes 0.3 s
)


@dataclass(frozen=True)
class RecordedShape:
    """What a recording is for: batches of so many sequences, rows and predictions, as the first of a step or not."""

    longest: int
    texts: int
    rows: int
    predictions: int
    first: bool

    @classmethod
    def of(cls, fixed: Batch, axes: Mapping[str, LabelAxis], first: bool) -> Self:
        """Returns the shape of a fixed batch."""
        predictions = max((len(fixed.labels[name]) for name, axis in axes.items() if axis == "position"), default=0)
        return cls(fixed.layout.max_seqlen, fixed.size, len(fixed.input_ids), predictions, first)

    def holds(self, other: "RecordedShape") -> bool:
        """Whether a batch of another shape can be filled up to this one, with few more rows."""
        same = (self.longest, self.texts, self.first) == (other.longest, other.texts, other.first)
        enough = self.rows >= other.rows and self.predictions >= other.predictions
        return same and enough and self.rows - other.rows <= other.rows // (2 * SPARE_ROWS_DIVISOR)


@dataclass
class Recording:
    """A graph with the tensors that it reads and writes.

    batch, scales, seeds: inputs; report: the loss terms; figures: their sums in one tensor; reached: which parameters
    have a gradient.
    """

    graph: torch.cuda.CUDAGraph
    batch: Batch
    scales: Tensor
    seeds: Tensor
    report: LossReport
    figures: Tensor
    reached: list[int]

    def run(self, batch: Batch, scales: Tensor, seeds: Tensor) -> None:
        """Runs the graph on a batch in main memory, with scales and seeds on the device."""
        for into, tensor in zip(tensors_of(self.batch), tensors_of(batch), strict=True):
            into.copy_(tensor.pin_memory(), non_blocking=True)
        self.scales.copy_(scales)
        self.seeds.copy_(seeds)
        self.graph.replay()


class RecordedPasses:
    """The graphs of a model's training on one objective or task, by the shape of a batch."""

    def __init__(self, model: TorchModel, objective: Trainable, device: torch.device) -> None:
        self.model, self.objective, self.device = model, objective, device
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.vectors = [number for number, parameter in enumerate(self.parameters) if parameter.ndim == 1]
        sizes = [len(self.parameters[number]) for number in self.vectors]
        self.of_vectors = torch.zeros(sum(sizes), device=device)
        """The gradients of biases and norms, one after the other, so that one kernel copies all of them."""
        parts = iter(torch.split(self.of_vectors, sizes))
        self.gradients = [next(parts) if x.ndim == 1 else torch.zeros_like(x) for x in self.parameters]
        self.sites = count_sites(model.config.num_hidden_layers)
        self.recordings: dict[RecordedShape, Recording] = {}
        self.occurred: Counter[RecordedShape] = Counter()
        self.pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        self.why_not = ""
        """Why no pass is recorded any more: one waits for the GPU."""

    @staticmethod
    def fits(model: TorchModel, objective: Trainable, device: torch.device, dtype: torch.dtype) -> bool:
        """Whether passes can be recorded: in half precision, on an NVIDIA GPU, of layers that triton computes."""
        return can_record(device, dtype) and has_fixed_shapes(model, objective)

    def add_gradients(self, batch: Batch, counts: Mapping[str, float]) -> LossReport | None:
        """Adds the gradients of a micro-batch in main memory to the parameters' `.grad`, and returns its loss terms.

        None, with nothing done, for a batch without a fixed shape. counts: as of `step.backward`.
        """
        fixed, axes = self._fixed(batch), self.objective.label_axes
        if fixed is None or axes is None:
            return None
        first = all(parameter.grad is None for parameter in self.parameters)
        if not first:
            self._adopt()
        shape = RecordedShape.of(fixed, axes, first)
        if shape not in self.recordings and self.device.type == "cuda":
            fixed, shape = self._record_or_fill(batch, fixed, shape)
        scales = torch.tensor([1 / (counts[name] or 1) for name in self.objective.counts(batch)])
        scales, seeds = moved(scales, self.device), draw_seeds(self.sites, self.device)
        recording = self.recordings.get(shape)
        if recording is None:
            report, figures, reached = self._pass(fixed.to(self.device), scales, seeds, first)
        else:
            recording.run(fixed, scales, seeds)
            report, reached = recording.report, recording.reached
            figures = recording.figures.clone()  # the next run writes over them
        for number in reached:
            self.parameters[number].grad = self.gradients[number]
        figure = iter(figures)
        return {
            name: LossTerm(next(figure), part.count, None if part.correct is None else next(figure), part.weight)
            for name, part in report.items()
        }

    def _record_or_fill(self, batch: Batch, fixed: Batch, shape: RecordedShape) -> tuple[Batch, RecordedShape]:
        """Records a shape that occurs repeatedly, or returns the batch in a larger recorded shape."""
        larger = min((one for one in self.recordings if one.holds(shape)), key=lambda one: one.rows, default=None)
        self.occurred[shape] += 1
        if self.occurred[shape] == (_MIN_OCCURRENCES if larger else 2) and len(self.recordings) < _MAX_SHAPES:
            self._record(shape, fixed)
        elif larger is not None:
            filled = self._fixed(batch, rows=larger.rows, predictions=larger.predictions)
            if filled is not None:
                return filled, larger
        return fixed, shape

    def _fixed(self, batch: Batch, *, rows: int = 0, predictions: int = 0) -> Batch | None:
        axes = self.objective.label_axes
        if self.why_not or axes is None:
            return None
        return with_fixed_shape(batch, axes, self.model.config.max_length, rows=rows, predictions=predictions)

    def _adopt(self) -> None:
        """Moves gradients that a pass outside the graphs made to where graphs add to them."""
        for parameter, gradient in zip(self.parameters, self.gradients, strict=True):
            if parameter.grad is None:
                gradient.zero_()
            elif parameter.grad is not gradient:
                gradient.copy_(parameter.grad)

    def _record(self, shape: RecordedShape, fixed: Batch) -> None:
        """Records the passes of a batch; where that fails, `why_not` says why. It changes no gradient."""
        batch, first = fixed.to(self.device), shape.first
        scales = torch.ones(len(self.objective.counts(fixed.host)), device=self.device)
        seeds = torch.zeros(self.sites, 2, dtype=torch.int32, device=self.device)
        before, mode = [gradient.clone() for gradient in self.gradients], torch.cuda.get_sync_debug_mode()
        try:
            self._warm_up(batch, scales, seeds, first)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool):
                report, figures, reached = self._pass(batch, scales, seeds, first)
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            self.why_not = str(error).splitlines()[0]
            console.say(f"Steps are not recorded as CUDA graphs: {self.why_not}")
            return
        finally:
            torch.cuda.set_sync_debug_mode(mode)
            for gradient, value in zip(self.gradients, before, strict=True):
                gradient.copy_(value)
        self.recordings[shape] = Recording(graph, batch, scales, seeds, report, figures, reached)

    def _warm_up(self, batch: Batch, scales: Tensor, seeds: Tensor, first: bool) -> None:
        """Runs passes on another stream, as torch asks for. Raises RuntimeError where one waits for the GPU."""
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            self._pass(batch, scales, seeds, first)  # compiles kernels, which may wait
            torch.cuda.set_sync_debug_mode("error")
            self._pass(batch, scales, seeds, first)
        torch.cuda.set_sync_debug_mode("default")
        torch.cuda.current_stream(self.device).wait_stream(stream)

    def _keep(self, gradients: dict[int, Tensor], first: bool) -> None:
        """Writes gradients to where the parameters have them, or adds them. gradients: by number of the parameter."""
        if self.vectors and gradients.keys() >= set(self.vectors):
            vectors = [gradients.pop(number) for number in self.vectors]
            if first:
                torch.cat(vectors, out=self.of_vectors)
            else:
                self.of_vectors.add_(torch.cat(vectors))
        pairs = [(self.gradients[number], gradient) for number, gradient in gradients.items()]
        pairs = [(into, gradient) for into, gradient in pairs if into.data_ptr() != gradient.data_ptr()]
        add = torch._foreach_copy_ if first else torch._foreach_add_
        add([into for into, _ in pairs], [gradient for _, gradient in pairs])

    def _pass(self, batch: Batch, scales: Tensor, seeds: Tensor, first: bool) -> tuple[LossReport, Tensor, list[int]]:
        # what accumulates cannot be written over
        written = dict(zip(map(id, self.parameters), self.gradients, strict=True)) if first else {}
        with using_kernels(seeds, written):
            batch = batch.uncached()
            report = self.objective.loss(self.model, self.objective.forward(self.model, batch), batch)
            means = torch.stack([part.weight * part.total for part in report.values()])
            gradients = torch.autograd.grad((means * scales).sum(), self.parameters, allow_unused=True)
        reached = [number for number, gradient in enumerate(gradients) if gradient is not None]
        self._keep({number: gradients[number] for number in reached}, first)
        sums = [x for part in report.values() for x in (part.total, part.correct) if x is not None]
        figures = torch.stack([x.detach().float() for x in sums])
        report = {
            name: LossTerm(part.total.detach(), part.count, part.correct, part.weight) for name, part in report.items()
        }
        return report, figures, reached


def has_fixed_shapes(model: TorchModel, objective: Trainable) -> bool:
    """Whether all passes of a model on an objective or a task can be recorded."""
    return model.is_plain and objective.label_axes is not None


def tensors_of(batch: Batch) -> list[Tensor]:
    """Returns all tensors of a batch that a model reads."""
    return [batch.input_ids, batch.token_type_ids, batch.packed.cu_seqlens, *batch.labels.values()]
