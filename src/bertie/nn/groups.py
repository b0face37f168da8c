"""Attention for training on a CPU: sequences of similar length form a padded group of the smallest possible width.

    packed rows -> one copy -> cells of all groups -> attention, group by group -> cells -> one copy -> packed rows

A group's width is a multiple of 32, the size of a vector register in bf16. The softmax of a row of 56 takes three times
as long as that of one of 64. Few widths mean few compiled kernels (benchmarks/log). The reference implementation is
`attention.formula` on the padded (B, S) layout (tests/twins/test_grouped_attention.py).

T tokens · R rows, T or some more · B sequences · b of them in a group, S its width · N heads · D head size
"""

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from bertie.nn.dropout import DropoutMask
from bertie.nn.layout import Packed

_REGISTER_NUMBERS = 32  # of bf16 numbers in a register of 512 bits
_SCORES = 1 << 22  # scores worked on at a time: 8 MiB in bf16


@dataclass(frozen=True)
class Group:
    """b sequences, padded to width S. first: cells of the groups before. bias (b, 1, 1, S): hides padding."""

    first: int
    size: int
    width: int
    bias: Tensor | None


@dataclass(frozen=True)
class LayoutGroups:
    """The groups of a packed layout, and the origin of each cell and row, of head size D each, int32.

    A cell of queries, keys and values is at (group, which of the three, b, N, S), one of context at (group, b, N, S).
    """

    groups: list[Group]
    layout: Packed
    num_heads: int
    cells: int  # of context, all groups
    qkv_cells: Tensor  # (3 cells,) rows of (R, 3, N)
    context_cells: Tensor  # (cells,) rows of (R, N)
    qkv_rows: Tensor  # (T * 3 * N,) the inverse
    context_rows: Tensor  # (T * N,)
    padding: Tensor  # cells of context that no token is at

    @classmethod
    def of(cls, layout: Packed, num_heads: int, dtype: torch.dtype) -> "LayoutGroups":
        """Returns groups by increasing width; within a width in the order of the batch. dtype: of the scores"""
        lengths_B, starts_B = layout.lengths.numpy(), layout.cu_seqlens[:-1].numpy().astype(np.int64)
        widths_B = -(-lengths_B // _REGISTER_NUMBERS) * _REGISTER_NUMBERS
        heads_N1 = np.arange(num_heads)[:, None]
        parts_3111 = num_heads * np.arange(3)[:, None, None, None]
        context_TN = np.empty((layout.num_tokens, num_heads), np.int64)
        qkv_T3N = np.empty((layout.num_tokens, 3, num_heads), np.int64)
        groups: list[Group] = []
        qkv_cells, context_cells, padding = [], [], []
        cells = 0
        for width in np.unique(widths_B[widths_B > 0]).tolist():  # a sequence of no tokens has no cells
            alike = np.flatnonzero(widths_B == width)
            most = max(1, _SCORES // (num_heads * width * width))
            for sequences in np.split(alike, range(most, len(alike), most)):
                size = len(sequences)
                real_bS = np.arange(width) < lengths_B[sequences, None]
                token_bS = np.where(real_bS, starts_B[sequences, None] + np.arange(width), 0)
                token_b1S = token_bS[:, None]
                context_cells.append((token_b1S * num_heads + heads_N1).ravel())
                qkv_cells.append((token_b1S * 3 * num_heads + heads_N1 + parts_3111).ravel())
                cell_bNS = np.arange(size * num_heads * width).reshape(size, num_heads, width)
                cell_bSN = cell_bNS.transpose(0, 2, 1)
                tokens = token_bS[real_bS]
                context_TN[tokens] = cells + cell_bSN[real_bS]
                qkv_T3N[tokens] = 3 * cells + cell_bSN[real_bS][:, None] + cell_bNS.size * np.arange(3)[:, None]
                padding.append((cells + cell_bSN[~real_bS]).ravel())
                bias = torch.zeros(size, 1, 1, width, dtype=dtype)
                bias.masked_fill_(torch.from_numpy(~real_bS)[:, None, None], torch.finfo(dtype).min)
                groups.append(Group(cells, size, width, None if real_bS.all() else bias))
                cells += cell_bNS.size
        return cls(
            groups,
            layout,
            num_heads,
            cells,
            _index(np.concatenate(qkv_cells)),
            _index(np.concatenate(context_cells)),
            _index(qkv_T3N.ravel()),
            _index(context_TN.ravel()),
            torch.from_numpy(np.concatenate(padding)),
        )

    def attention(self, qkv: Tensor, *, scaled: bool = True, dropout_p: float = 0.0) -> Tensor:
        """Self-attention of each sequence. qkv (R, 3 N D) -> context (R, N D), zeros after the last token"""
        size = qkv.shape[1] // (3 * self.num_heads)
        context: Tensor = _GroupedAttention.apply(qkv, self, 1 / sqrt(size) if scaled else 1.0, dropout_p)  # type: ignore[no-untyped-call]
        return context

    @property
    def scores(self) -> int:
        """The number of cells of all groups."""
        return self.num_heads * sum(group.size * group.width**2 for group in self.groups)

    @property
    def largest(self) -> int:
        """The number of cells of the largest group."""
        return self.num_heads * max(group.size * group.width**2 for group in self.groups)


def _index(numbers: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(numbers.astype(np.int32))


def group_layout(layout: Packed, hidden: Tensor, num_heads: int) -> LayoutGroups | None:
    """Returns the groups of a layout where grouped attention is the fastest: on a CPU, with gradients."""
    quick = hidden.device.type == "cpu" and torch.is_grad_enabled() and not torch.compiler.is_compiling()
    return LayoutGroups.of(layout, num_heads, hidden.dtype) if quick else None


class _GroupedAttention(torch.autograd.Function):
    """softmax(scale q k^T) v of each group. `scale` and dropout's are factors of products: no pass over the scores."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, groups: LayoutGroups, scale: float, dropout_p: float) -> Tensor:
        heads = groups.num_heads
        size = qkv.shape[1] // (3 * heads)
        cells = qkv.reshape(-1, size).index_select(0, groups.qkv_cells)
        probs, work = qkv.new_empty(groups.scores), qkv.new_empty(groups.largest)
        keep = DropoutMask(dropout_p) if dropout_p else None
        masks = []
        context = qkv.new_empty(groups.cells, size)
        done = 0
        for group in groups.groups:
            shape = group.size * heads, group.width, group.width
            here = slice(done, done := done + shape[0] * shape[1] * shape[2])
            q_XSD, k_XSD, v_XSD = _qkv(cells, group, heads)
            work_XSS, probs_XSS = work[: here.stop - here.start].view(shape), probs[here].view(shape)
            torch.baddbmm(work_XSS, q_XSD, k_XSD.mT, beta=0, alpha=scale, out=work_XSS)
            if group.bias is not None:
                work_XSS.view(group.size, heads, group.width, group.width).add_(group.bias)
            torch.softmax(work_XSS, -1, out=probs_XSS)
            context_XSD = _cells(context, group, heads)
            if keep is None:
                torch.bmm(probs_XSS, v_XSD, out=context_XSD)
            else:
                masks.append(keep.draw(shape, qkv.dtype))
                torch.mul(probs_XSS, masks[-1], out=work_XSS)
                torch.baddbmm(context_XSD, work_XSS, v_XSD, beta=0, alpha=keep.scale, out=context_XSD)
        ctx.groups, ctx.scale, ctx.dropout_scale = groups, scale, keep.scale if keep else 1.0
        ctx.save_for_backward(cells, probs, *masks)
        return _to_rows(context, groups.context_rows, groups.layout).view(len(qkv), -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        groups: LayoutGroups = ctx.groups
        cells, probs, *masks = ctx.saved_tensors
        heads, size = groups.num_heads, cells.shape[1]
        grad_context = grad.reshape(-1, size).index_select(0, groups.context_cells)
        grad_context.index_fill_(0, groups.padding, 0)
        grads, work, grad_work = torch.empty_like(cells), grad.new_empty(groups.largest), grad.new_empty(groups.largest)
        done = 0
        for number, group in enumerate(groups.groups):
            shape = group.size * heads, group.width, group.width
            here = slice(done, done := done + shape[0] * shape[1] * shape[2])
            q_XSD, k_XSD, v_XSD = _qkv(cells, group, heads)
            grad_q_XSD, grad_k_XSD, grad_v_XSD = _qkv(grads, group, heads)
            grad_XSD, probs_XSS = _cells(grad_context, group, heads), probs[here].view(shape)
            work_XSS, grad_XSS = (x[: here.stop - here.start].view(shape) for x in (work, grad_work))
            dropped_XSS = torch.mul(probs_XSS, masks[number], out=work_XSS) if masks else probs_XSS
            torch.baddbmm(grad_v_XSD, dropped_XSS.mT, grad_XSD, beta=0, alpha=ctx.dropout_scale, out=grad_v_XSD)
            torch.baddbmm(work_XSS, grad_XSD, v_XSD.mT, beta=0, alpha=ctx.dropout_scale, out=work_XSS)
            if masks:
                work_XSS.mul_(masks[number])
            torch.ops.aten._softmax_backward_data.out(work_XSS, probs_XSS, -1, grad.dtype, grad_input=grad_XSS)
            torch.baddbmm(grad_q_XSD, grad_XSS, k_XSD, beta=0, alpha=ctx.scale, out=grad_q_XSD)
            torch.baddbmm(grad_k_XSD, grad_XSS.mT, q_XSD, beta=0, alpha=ctx.scale, out=grad_k_XSD)
        return _to_rows(grads, groups.qkv_rows, groups.layout).view(len(grad), -1), None, None, None


def _cells(x: Tensor, group: Group, heads: int) -> Tensor:
    """A group's cells of (cells, D) -> (b N, S, D), a view"""
    rows = group.size * heads * group.width
    return x[group.first : group.first + rows].view(group.size * heads, group.width, -1)


def _qkv(x: Tensor, group: Group, heads: int) -> tuple[Tensor, ...]:
    """A group's cells of (3 cells, D) -> three views (b N, S, D)"""
    rows = group.size * heads * group.width
    start = 3 * group.first
    return x[start : start + 3 * rows].view(3, group.size * heads, group.width, -1).unbind(0)


def _to_rows(cells: Tensor, index: Tensor, layout: Packed) -> Tensor:
    """(cells, D) -> the parts of R rows, zeros after the last token's"""
    real = len(index)
    rows = cells.new_empty(real // layout.num_tokens * layout.num_rows, cells.shape[1])
    torch.index_select(cells, 0, index, out=rows[:real])
    rows[real:] = 0
    return rows
