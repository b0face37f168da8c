"""Training on an NVIDIA GPU: the layers of an encoder recorded as CUDA graphs, one for each shape of a batch.

A step of a small model has hundreds of kernels that take longer to launch than to run. A graph launches all of them at
once, forward or backward. Layers then run as the kernels of fused.py, whose launches alone would cost more than they
gain. The last layer stays outside, since it computes another number of tokens each time.

R rows of a packed batch · H hidden size
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from bertie.nn.fused import fits_short, has_triton
from bertie.nn.layer import AttentionPlan, Layer
from bertie.nn.layout import Packed
from bertie.nn.rotary import Views
from bertie.nn.seeds import draw_seeds, using_kernels
from bertie.nn.varlen import Varlen

_MAX_GRAPHS = 12  # graphs, each with gradients of all weights; batches of more shapes run without
SITES = 6  # of dropout and norms in a layer, at most
_OUTER_SITES = 8  # in embeddings and heads, at most


class Graphed(Protocol):
    """Protocol of an encoder whose layers can be recorded."""

    graphs: "GraphedLayers | None"


@contextmanager
def graphed_layers(encoder: Graphed) -> Iterator[None]:
    """Context in which an encoder records its layers and runs the graphs, in training."""
    encoder.graphs = GraphedLayers()
    # Layers are recorded on another stream; gradients are added up on this one, which torch orders, and warns of.
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    try:
        yield
    finally:
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(True)
        encoder.graphs = None


def can_record(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether layers can be recorded: in half precision, on an NVIDIA GPU, with triton."""
    half = dtype in (torch.bfloat16, torch.float16)
    return half and device.type == "cuda" and torch.version.cuda is not None and has_triton()


def count_sites(layers: int) -> int:
    """Returns how many seeds of dropout a pass through so many layers takes, at most."""
    return SITES * layers + _OUTER_SITES


class GraphedLayers:
    """The graphs of an encoder's layers by the shape of a batch."""

    def __init__(self) -> None:
        self.graphs: dict[object, Callable[..., Tensor]] = {}
        self.pool: Any = None

    def run(
        self, layers: Sequence[nn.Module], hidden: Tensor, plan: AttentionPlan
    ) -> tuple[Sequence[nn.Module], Tensor]:
        """Runs all layers but the last as a graph. -> the layers that are left, and their input (R, H)

        All layers are left where no graph is for them.
        """
        *below, last = layers
        whole = plan.whole if isinstance(plan, Views) else plan
        turns = plan.turns if isinstance(plan, Views) else {}
        plain = below and all(type(layer) is Layer and layer.training for layer in below)
        if not plain or not isinstance(whole, Varlen) or not torch.is_grad_enabled():
            return layers, hidden
        longest = max(16, 1 << (whole.layout.max_seqlen - 1).bit_length())
        cu_seqlens = sequence_bounds(whole.layout, longest)
        inputs = [hidden, cu_seqlens, draw_seeds(SITES * len(below), hidden.device)]
        inputs += [x for pair in turns.values() for x in pair]
        key = (*hidden.shape, hidden.dtype, hidden.requires_grad, len(cu_seqlens), longest)
        if key not in self.graphs:
            if len(self.graphs) == _MAX_GRAPHS:
                return layers, hidden
            self.graphs[key] = self._record(Stack(below, whole.num_heads, longest, tuple(turns)), inputs)
        return [last], self.graphs[key](*inputs)

    def _record(self, stack: "Stack", inputs: Sequence[Tensor]) -> Callable[..., Tensor]:
        if self.pool is None:
            self.pool = torch.cuda.graph_pool_handle()
        sample = tuple(x.detach().clone().requires_grad_(x.requires_grad) for x in inputs)
        graphed = torch.cuda.make_graphed_callables(
            stack, sample, num_warmup_iters=2, allow_unused_input=True, pool=self.pool
        )
        torch.cuda.empty_cache()  # of what warming up took: graphs have memory of their own
        return graphed  # type: ignore[return-value]


class Stack(nn.Module):
    """Layers one after the other as a function of tensors alone. Shared layers (ALBERT) may occur repeatedly."""

    def __init__(self, layers: Sequence[nn.Module], num_heads: int, longest: int, thetas: Sequence[float]) -> None:
        super().__init__()
        distinct = list(dict.fromkeys(layers))
        self.layers = nn.ModuleList(distinct)
        self.order = [distinct.index(layer) for layer in layers]
        self.num_heads, self.longest, self.thetas = num_heads, longest, thetas

    def forward(self, hidden: Tensor, cu_seqlens: Tensor, seeds: Tensor, *turns: Tensor) -> Tensor:
        """hidden (R, H), cu_seqlens to R, seeds (n, 2), cosine and sine of each base (R, D / 2) -> (R, H)"""
        layout = Packed(cu_seqlens, self.longest, len(hidden), len(hidden))
        head_size = hidden.shape[-1] // self.num_heads
        short = fits_short(self.longest, head_size)
        whole = Varlen(layout, self.num_heads, cu_seqlens, short=short)
        pairs: Mapping[float, tuple[Tensor, Tensor]] = dict(
            zip(self.thetas, zip(turns[::2], turns[1::2], strict=True), strict=True)
        )
        plan = Views(whole, None, pairs) if pairs else whole  # type: ignore[arg-type] # no mask without padding
        with using_kernels(seeds):
            for number in self.order:
                hidden, _ = self.layers[number](hidden, layout, plan)
        return hidden


def sequence_bounds(layout: Packed, longest: int) -> Tensor:
    """The starts of the sequences of a batch, and the end R; the rows after T are further ones. -> (B + 1 + n,) int32

    n depends on R alone: `rounded` adds less than a sixteenth.
    """
    rows, count = layout.num_rows, -(-(layout.num_rows // 16 + 1) // longest)
    ends = torch.arange(1, count + 1, dtype=torch.int32, device=layout.cu_seqlens.device) * longest
    return torch.cat([layout.cu_seqlens, (ends + layout.num_tokens).clamp(max=rows)])
