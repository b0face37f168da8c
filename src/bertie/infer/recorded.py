"""Inference on an NVIDIA GPU: forward passes recorded as CUDA graphs, by the shape of a batch.

The kernels of a small batch take longer to launch than to run. A graph launches all of them at once, and layers run as
the kernels of nn/fused.py. Batches have few shapes (models/fixed_shapes.py). A shape is recorded when it occurs for the
third time, so that a few texts wait for no compiler.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

import torch
from torch import Tensor

from bertie.console import console
from bertie.models.batch import Batch
from bertie.models.fixed_shapes import with_fixed_shape
from bertie.models.model import TorchModel
from bertie.nn.graphs import can_record, count_sites
from bertie.nn.seeds import using_kernels

_MAX_TOKENS = 4096  # of a batch: launches cost larger ones little, and a recording as much as hundreds of passes
_MAX_SHAPES = 64  # shapes that are recorded; batches of more shapes run without
_OCCURRENCES = 3  # of a shape until it is recorded, which takes tenths of a second, and seconds for the first one
Arrays = Mapping[str, Tensor]
Compute = Callable[[Batch, Sequence[str]], Arrays]


@dataclass(frozen=True)
class _Shape:
    """What a recording is for. weights: their addresses, since a graph reads from where they were."""

    longest: int
    sequences: int
    rows: int
    outputs: tuple[str, ...]
    weights: tuple[int, ...]


@dataclass(frozen=True)
class _Recording:
    """A graph, the batch that it reads, and the arrays that it writes."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    arrays: Arrays


class RecordedForwards:
    """The graphs of a model's forward passes, by the shape of a batch. compute: what is recorded."""

    def __init__(self, model: TorchModel, compute: Compute) -> None:
        self.model, self.compute = model, compute
        self.recordings: dict[_Shape, _Recording] = {}
        self.why_not = ""
        """Why no pass is recorded any more."""
        self._occurred: Counter[_Shape] = Counter()
        self._pool = torch.cuda.graph_pool_handle() if torch.cuda.is_available() else None
        self._lock = Lock()
        self._sites = count_sites(model.config.num_hidden_layers)  # seeds of dropout, which is off

    def run(self, batch: Batch, outputs: Sequence[str]) -> Arrays | None:
        """Returns the arrays of a batch in main memory, with the rows of `fixed`, on the device; None: not recorded."""
        model = self.model
        if self.why_not or not can_record(model.device, model.compute_dtype or torch.float32) or not model.is_plain:
            return None
        fixed = self.fixed(batch)
        if fixed is None:
            return None
        weights = tuple(parameter.data_ptr() for parameter in model.parameters())
        rows = len(fixed.input_ids)
        shape = _Shape(fixed.layout.max_seqlen, len(fixed.packed.cu_seqlens) - 1, rows, tuple(outputs), weights)
        with self._lock:
            recording = self.recordings.get(shape) or self._record(shape, fixed)
            if recording is None:
                return None
            for into, tensor in zip(_inputs(recording.batch), _inputs(fixed), strict=True):
                into.copy_(tensor.pin_memory(), non_blocking=True)
            recording.graph.replay()
            return {name: array.clone() for name, array in recording.arrays.items()}  # the next run writes over them

    def fixed(self, batch: Batch) -> Batch | None:
        """Returns a small batch in one of few shapes; None for one that cannot have one."""
        if len(batch.input_ids) > _MAX_TOKENS:
            return None
        return with_fixed_shape(batch, {}, self.model.config.max_length, any_size=True)

    def pass_of(self, batch: Batch, outputs: Sequence[str]) -> Arrays:
        """Returns the arrays of a batch of a fixed shape, by kernels."""
        with using_kernels(torch.zeros(self._sites, 2, dtype=torch.int32, device=batch.input_ids.device)):
            return {name: array.float() for name, array in self.compute(batch.uncached(), outputs).items()}

    def _record(self, shape: _Shape, fixed: Batch) -> _Recording | None:
        """Records the pass of a shape that occurs repeatedly. Where that fails, `why_not` says why."""
        self._occurred[shape] += 1
        if self._occurred[shape] < _OCCURRENCES or len(self.recordings) == _MAX_SHAPES:
            return None
        batch, graph = fixed.to(self.model.device), torch.cuda.CUDAGraph()
        try:
            stream = torch.cuda.Stream(self.model.device)  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream(self.model.device))
            with torch.cuda.stream(stream):
                self.pass_of(batch, shape.outputs)  # compiles kernels
            torch.cuda.current_stream(self.model.device).wait_stream(stream)
            # thread_local: other models of a server run meanwhile
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                arrays = self.pass_of(batch, shape.outputs)
        except Exception as error:  # of a compiler, of a wait for the GPU: the pass runs as on other devices
            self.why_not = str(error).splitlines()[0] if str(error) else type(error).__name__
            console.say(f"Forward passes are not recorded as CUDA graphs: {self.why_not}")
            return None
        recording = self.recordings[shape] = _Recording(graph, batch, arrays)
        return recording


def _inputs(batch: Batch) -> list[Tensor]:
    return [batch.input_ids, batch.token_type_ids, batch.packed.cu_seqlens]
