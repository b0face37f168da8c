"""The passes over memory between the matrix products of a layer, one kernel each on an NVIDIA GPU.

Every function has its formula here, which runs everywhere else and is the reference of the kernels (kernels.py). A bias
is added in the pass that reads the product, so that its gradient is summed in the backward pass that is made anyway.

R rows of tokens · H hidden size · I intermediate size · N heads · D head size
"""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bertie.nn.dropout import Dropout, add_dropout
from bertie.nn.linear import LayerNorm, Linear, RMSNorm, UnbiasedNorm
from bertie.nn.seeds import current_seeds, kernels

LARGEST_ROW = 8192  # columns of a row that one program holds in registers
PROGRAMS = 8  # of a backward pass per processor of the GPU: each sums its rows for the weights
_MAX_SEQUENCE_TOKENS = 128  # tokens of a sequence for our own attention: one program holds all scores of a head
HEAD_SIZES = (16, 32, 64)  # of our own attention, whose tiles have sides of powers of two; 128 needs more registers
_COLUMNS = 1024  # of an activation's program: 120 us on an H200 where 8 x 128 takes 310
_FORWARD_ROWS = 4  # of its forward pass: 77 us, where 2 take 81
_BACKWARD_ROWS, _BACKWARD_PROGRAMS = 1, 24  # of its backward pass, programs per processor: 110 us instead of 125
_FEW_ROWS = 16  # of a table, whose gradient is a product: 54 us for 2 segments, where adding takes 270
FUSED_ACTIVATIONS = {
    "gelu": 0,
    "gelu_tanh": 1,
    "silu": 2,
    "relu": 3,
    "geglu_erf": 0,
    "geglu": 1,
    "swiglu": 2,
    "reglu": 3,
}
"""Name -> number in kernels.py."""
_SUM_TILE = 512, 8  # rows and columns of a program that sums over the parts of a backward pass: 10 us, 128 x 32 15
_Norm = LayerNorm | RMSNorm | UnbiasedNorm


@cache
def has_triton() -> bool:
    """Whether triton is installed: it comes with torch for NVIDIA's GPUs on Linux."""
    return find_spec("triton") is not None


def runs_kernels() -> bool:
    """Whether the kernels run here, and not the formulas (seeds.py)."""
    return current_seeds() is not None


def gathered(table: nn.Embedding, ids: Tensor) -> Tensor:
    """Returns table(ids). ids (...) -> (..., H)"""
    if runs_kernels() and table.padding_idx is None and ids.ndim == 1:
        rows: Tensor = Gathered.apply(table.weight, ids)  # type: ignore[no-untyped-call]
        return rows
    looked_up: Tensor = table(ids)
    return looked_up


class Gathered(torch.autograd.Function):
    """Rows of a table, whose gradient is added up without sorting the rows first. weight (V, H), ids (R,) -> (R, H)

    In a table of few rows, all would be added to the same numbers one after another, so that a product is faster.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor) -> Tensor:
        """See the class."""
        ctx.save_for_backward(ids)
        ctx.rows = len(weight)
        return F.embedding(ids, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        """The gradient of the table."""
        (ids,) = ctx.saved_tensors
        if ctx.rows <= _FEW_ROWS:
            return (ids == torch.arange(ctx.rows, device=ids.device)[:, None]).to(grad.dtype) @ grad, None
        return grad.new_zeros(ctx.rows, grad.shape[-1]).index_add_(0, ids, grad), None


def norm(x: Tensor, module: nn.Module) -> Tensor:
    """Returns module(x), for a norm. (..., H) -> (..., H)"""
    if runs_kernels() and isinstance(module, _Norm) and x.shape[-1] <= LARGEST_ROW:
        return _add_norm(None, x, None, module, 0.0)
    normed: Tensor = module(x)
    return normed


def add_norm(residual: Tensor, x: Tensor, bias: Tensor | None, module: nn.Module, p: float, training: bool) -> Tensor:
    """Returns norm(residual + dropout(x + bias)). residual, x (..., H), bias (H) -> (..., H)"""
    if runs_kernels() and isinstance(module, _Norm) and x.shape[-1] <= LARGEST_ROW:
        return _add_norm(residual, x, bias, module, p if training else 0.0)
    normed: Tensor = module(add_dropout(residual, biased(x, bias), p, training))
    return normed


class Skipped:
    """The gradient that reaches a norm's output through the residual connection around the layers above it.

    The norm above leaves it here, and the norm's own pass adds it to the gradient from those layers, which comes later.
    torch would add the two in a pass of its own.
    """

    def __init__(self) -> None:
        self.gradient: Tensor | None = None

    def take(self) -> Tensor | None:
        """Returns the gradient and forgets it."""
        gradient, self.gradient = self.gradient, None
        return gradient


def _add_norm(residual: Tensor | None, x: Tensor, bias: Tensor | None, module: _Norm, p: float) -> Tensor:
    shift = module.bias if isinstance(module, LayerNorm) else None
    own, below = Skipped(), getattr(residual, "skipped", None)
    y: Tensor = AddNorm.apply(  # type: ignore[no-untyped-call]
        residual,
        x,
        bias,
        module.weight,
        shift,
        module.eps,
        not isinstance(module, RMSNorm),
        Dropout.next(p),
        own,
        below,
    )
    y.skipped = own  # type: ignore[attr-defined]
    return y


def unbiased(linear: nn.Module, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Returns x's product with a linear layer, and the bias to add to it: where no kernel adds it, None is left."""
    if isinstance(linear, Linear) and linear.bias is not None and runs_kernels():
        return linear.without_bias(x), linear.bias
    return linear(x), None


def biased(x: Tensor, bias: Tensor | None) -> Tensor:
    """x + bias, in x's dtype. (..., H), (H) -> (..., H)"""
    return x if bias is None else x + bias.to(x.dtype)


class AddNorm(torch.autograd.Function):
    """norm(residual + dropout(x + bias)), or norm(x) without a residual."""

    @staticmethod
    def forward(
        ctx: Any,
        residual: Tensor | None,
        x: Tensor,
        bias: Tensor | None,
        weight: Tensor,
        shift: Tensor | None,
        eps: float,
        centered: bool,
        dropout: Dropout,
        own: Skipped,
        below: Skipped | None,
    ) -> Tensor:
        """See the class."""
        x = x.contiguous()
        size = x.shape[-1]
        rows, block = x.numel() // size, _power_of_two(size)
        total = x if residual is None else torch.empty_like(x)
        y = torch.empty_like(x)
        mean, rstd = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
        kernels().add_norm_forward[(rows,)](
            x, bias, None if residual is None else residual.contiguous(), weight, shift, total, y, mean, rstd,
            size, eps, *dropout.arguments, RESIDUAL=residual is not None, BIAS=bias is not None,
            SHIFT=shift is not None, CENTERED=centered, DROPOUT=dropout.on, BLOCK=block, num_warps=_warps(block),
        )  # fmt: skip
        ctx.save_for_backward(total, weight, mean, rstd)
        ctx.centered, ctx.dropout, ctx.own, ctx.below = centered, dropout, own, below
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> Any:
        """The gradients of residual, x, bias, weight and shift."""
        total, weight, mean, rstd = ctx.saved_tensors
        size = total.shape[-1]
        rows, block = total.numel() // size, _power_of_two(size)
        programs = min(rows, PROGRAMS * _processors(total))
        grad_residual = torch.empty_like(total)
        grad_x = torch.empty_like(total) if ctx.dropout.on else grad_residual
        partial = torch.empty(programs, 3, size, dtype=torch.float32, device=total.device)
        more = ctx.own.take()
        kernels().add_norm_backward[(programs,)](
            grad_y.contiguous(), more, total, weight, mean, rstd, grad_residual, grad_x, partial,
            rows, size, *ctx.dropout.arguments, MORE=more is not None, CENTERED=ctx.centered,
            DROPOUT=ctx.dropout.on, BLOCK=block, num_warps=_warps(block),
        )  # fmt: skip
        of_weight, of_shift, of_bias = _column_sums(partial.view(programs, -1)).view(3, size)
        needed = ctx.needs_input_grad
        if ctx.below is not None:
            ctx.below.gradient = grad_residual
        return (
            grad_residual if needed[0] and ctx.below is None else None,
            grad_x,
            of_bias if needed[2] else None,
            of_weight,
            of_shift if needed[4] else None,
            None,
            None,
            None,
            None,
            None,
        )


def bias_act(x: Tensor, bias: Tensor | None, name: str, act: Callable[[Tensor], Tensor], *, gated: bool) -> Tensor:
    """Returns act(x + bias), or act(gate) * up of its halves. x (..., I or 2 I) -> (..., I)

    name: of the activation in the table of layers; act: the function itself.
    """
    if runs_kernels() and name in FUSED_ACTIVATIONS:
        y: Tensor = BiasAct.apply(x, bias, FUSED_ACTIVATIONS[name], gated)  # type: ignore[no-untyped-call]
        return y
    x = biased(x, bias)
    if not gated:
        return act(x)
    gate, up = x.chunk(2, -1)
    return act(gate) * up


class BiasAct(torch.autograd.Function):
    """The activation of a feed-forward network with the bias before it, and its gate where there is one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, act: int, gated: bool) -> Tensor:
        """See the class."""
        x = x.contiguous()
        size = x.shape[-1] // (2 if gated else 1)
        rows = x.numel() // x.shape[-1]
        y = x.new_empty(*x.shape[:-1], size)
        kernels().bias_act_forward[(-(-rows // _FORWARD_ROWS), -(-size // _COLUMNS))](
            x, bias, y, rows, size,
            BIAS=bias is not None, GATED=gated, ACT=act, ROWS=_FORWARD_ROWS, COLUMNS=_COLUMNS, num_warps=4,
        )  # fmt: skip
        ctx.save_for_backward(x, bias)
        ctx.facts = act, gated
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> Any:
        """The gradients of x and bias."""
        x, bias = ctx.saved_tensors
        act, gated = ctx.facts
        width = x.shape[-1]
        size, rows = width // (2 if gated else 1), x.numel() // width
        columns = -(-size // _COLUMNS)
        programs = max(1, min(-(-rows // _BACKWARD_ROWS), _BACKWARD_PROGRAMS * _processors(x) // columns))
        each = -(-rows // programs)
        grad_x = torch.empty_like(x)
        partial = torch.empty(programs, width if bias is not None else 0, dtype=torch.float32, device=x.device)
        kernels().bias_act_backward[(programs, columns)](
            grad_y.contiguous(), x, bias, grad_x, partial, rows, size, each,
            BIAS=bias is not None, GATED=gated, ACT=act, ROWS=_BACKWARD_ROWS, COLUMNS=_COLUMNS, num_warps=4,
        )  # fmt: skip
        return grad_x, None if bias is None else _column_sums(partial), None, None


def fits_short(longest: int, head_size: int) -> bool:
    """Whether `short_attention` computes sequences of at most `longest` tokens."""
    return longest <= _MAX_SEQUENCE_TOKENS and head_size in HEAD_SIZES


def short_attention(
    qkv: Tensor,
    bias: Tensor | None,
    cu_seqlens: Tensor,
    *,
    num_heads: int,
    longest: int,
    radius: int | None,
    scaled: bool,
    dropout_p: float,
) -> Tensor:
    """`ShortAttention` by name: `longest` tokens in a sequence, not over `_MAX_SEQUENCE_TOKENS`.

    qkv (R, 3 N D) -> (R, N D) radius: how far a token sees to each side; None: to the ends.
    """
    scale = (qkv.shape[-1] // (3 * num_heads)) ** -0.5 if scaled else 1.0
    context: Tensor = ShortAttention.apply(  # type: ignore[no-untyped-call]
        qkv, bias, cu_seqlens, num_heads, longest, radius, scale, Dropout.next(dropout_p)
    )
    return context


class ShortAttention(torch.autograd.Function):
    """softmax(q k^T / sqrt(D)) v of packed sequences of at most 128 tokens, with the bias of queries, keys and values.

    qkv (R, 3 N D), bias (3 N D), cu_seqlens (B + 1) int32 -> (R, N D). All scores of a sequence and a head are in one
    program, in both passes, so that nothing is written but the results.
    """

    @staticmethod
    def forward(
        ctx: Any,
        qkv: Tensor,
        bias: Tensor | None,
        cu_seqlens: Tensor,
        num_heads: int,
        longest: int,
        radius: int | None,
        scale: float,
        dropout: Dropout,
    ) -> Tensor:
        """See the class."""
        qkv = qkv.contiguous()
        size = qkv.shape[-1] // (3 * num_heads)
        context = qkv.new_empty(len(qkv), num_heads * size)
        lse = torch.empty(len(qkv), num_heads, dtype=torch.float32, device=qkv.device)
        tile = max(16, _power_of_two(longest))
        for part, above in _tiles(tile):
            kernels().attention_forward[(len(cu_seqlens) - 1, num_heads)](
                qkv, bias, context, lse, cu_seqlens, radius or 0, scale, *dropout.arguments, N=num_heads, D=size,
                BIAS=bias is not None, WINDOW=radius is not None, DROPOUT=dropout.on, S=part, ABOVE=above, MOST=tile,
                num_warps=8 if part > 64 else 4,
            )  # fmt: skip
        ctx.save_for_backward(qkv, bias, context, lse, cu_seqlens)
        ctx.facts = num_heads, tile, radius, scale, dropout
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        """The gradients of qkv and bias."""
        qkv, bias, context, lse, cu_seqlens = ctx.saved_tensors
        num_heads, tile, radius, scale, dropout = ctx.facts
        width = qkv.shape[-1]
        grad_qkv = torch.empty_like(qkv)
        sequences, grad = len(cu_seqlens) - 1, grad.contiguous()
        partial = torch.zeros(sequences, width if bias is not None else 0, dtype=torch.float32, device=qkv.device)
        for part, above in _tiles(tile):
            kernels().attention_backward[(sequences, num_heads)](
                qkv, bias, context, lse, grad, grad_qkv, partial, cu_seqlens, radius or 0, scale,
                *dropout.arguments, N=num_heads, D=width // (3 * num_heads), BIAS=bias is not None,
                WINDOW=radius is not None, DROPOUT=dropout.on, S=part, ABOVE=above, MOST=tile,
                num_warps=8 if part > 64 else 4,
            )  # fmt: skip
        return grad_qkv, None if bias is None else _column_sums(partial), None, None, None, None, None, None


def _tiles(tile: int) -> list[tuple[int, int]]:
    """Tiles of attention, and the length that its sequences are above: short ones are apart, in fewer registers."""
    return [(tile // 2, 0), (tile, tile // 2)] if tile > 64 else [(tile, 0)]


class Rotate(torch.autograd.Function):
    """Queries and keys of packed rows turned by their positions, in place. qkv (R, 3 N D), cos and sin (R, D / 2)"""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, cos: Tensor, sin: Tensor, num_heads: int) -> Tensor:
        """See the class."""
        ctx.mark_dirty(qkv)
        ctx.save_for_backward(cos, sin)
        ctx.num_heads = num_heads
        return _rotate(qkv, qkv, cos, sin, num_heads, 1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        """The gradient, turned back."""
        grad = grad.contiguous()
        cos, sin = ctx.saved_tensors
        return _rotate(grad, torch.empty_like(grad), cos, sin, ctx.num_heads, -1.0), None, None, None


def _rotate(qkv: Tensor, turned: Tensor, cos: Tensor, sin: Tensor, num_heads: int, sign: float) -> Tensor:
    half = cos.shape[-1]
    kernels().rotate[(len(qkv),)](
        qkv, turned, cos, sin, sign, N=num_heads, C=half, VALUES=turned is not qkv,
        HEADS=_power_of_two(2 * num_heads), CELLS=_power_of_two(half), num_warps=4,
    )  # fmt: skip
    return turned


def _column_sums(partial: Tensor) -> Tensor:
    """The sums of programs' parts. (P, W) float32 -> (W,). torch's sum takes twice as long for so few columns."""
    rows, width = partial.shape
    sums = partial.new_empty(width)
    kernels().column_sums[(-(-width // _SUM_TILE[1]),)](
        partial, sums, rows, width, ROWS=_SUM_TILE[0], COLUMNS=_SUM_TILE[1], num_warps=8
    )
    return sums


def _power_of_two(size: int) -> int:
    return 1 << (size - 1).bit_length()


def _warps(block: int) -> int:
    return min(16, max(1, block // 256))


def _processors(x: Tensor) -> int:
    return torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 2
