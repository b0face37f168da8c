"""The layout of the sequences of a batch in memory: `Packed`, concatenated, or `Padded`, one per row.

Only attention depends on the layout. Every token-wise layer runs on any leading dimensions of the hidden states:
(T, H) when packed, (B, S, H) when padded.

A packed batch has another T each time, and libraries of matrix products compile or tune again for each new shape. So
the encoder runs on T rounded up to one of few sizes: `rounded` computes it, and `Packed.roomy` adds the rows.

B sequences · T real tokens of the batch · S longest sequence · H hidden size
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from bertie.errors import UsageError


def rounded(rows: int, sizes: int = 16) -> int:
    """Returns the next of `sizes` sizes, a power of two, from each power of two to the next.

    Of 16 it is at most a sixteenth more, a fortieth on average.
    """
    step = 1 << max(0, rows.bit_length() - sizes.bit_length())
    return -(-rows // step) * step


def with_rows(x: Tensor, rows: int) -> Tensor:
    """x (N, ...) -> (rows, ...), zeros from N on; x itself where rows is N."""
    return x if len(x) == rows else F.pad(x, (0, 0) * (x.ndim - 1) + (0, rows - len(x)))


def on_rounded(rowwise: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Returns rowwise(x) for packed tokens x (T, H), computed on `rounded(T)` rows; other shapes are left as they are.

    For heads that read all tokens: a library compiles an activation for each number of rows, and keeps it. What is kept
    lies between the activations of a step, so memory that was freed cannot be used again.
    """
    if x.ndim != 2 or torch.compiler.is_compiling() or torch.compiler.is_exporting():
        return rowwise(x)
    return rowwise(with_rows(x, rounded(len(x))))[: len(x)]


def moved(x: Tensor, device: torch.device | str) -> Tensor:
    """Returns x on a device. Pinned memory is copied while a GPU computes; a copy of other memory waits for it."""
    if x.device.type == "cpu" and torch.device(device).type == "cuda":
        x = x.pin_memory()
    return x.to(device, non_blocking=True)


def copied_to_host(x: Tensor) -> Callable[[], Tensor]:
    """Starts a copy of x to main memory, and returns what waits for it alone: a GPU may have more work by then."""
    if not x.is_cuda:
        copy = x.cpu()
        return lambda: copy
    pinned = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
    pinned.copy_(x, non_blocking=True)
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record()

    def wait() -> Tensor:
        copied.synchronize()
        return pinned

    return wait


def where(mask: Tensor, device: torch.device) -> Tensor:
    """Returns the flattened positions where a mask in main memory is true, on `device`. -> (N,) int64

    Indexing with a mask on an accelerator would wait for it, to know N.
    """
    return moved(mask.flatten().nonzero()[:, 0], device)


@dataclass(frozen=True)
class _Computed:
    """part: flattened positions (N,) int64 of the tokens whose states a layer returns, without repeats; None: all.

    Attention reads all tokens in any case. The states of a part have `rounded(N)` rows, zeros from N on.
    """

    part: Tensor | None = field(default=None, kw_only=True)

    def kept(self, tokens: Tensor) -> Tensor:
        """Returns the rows of the part. tokens (num_rows, H) or (B, S, H) -> (rounded(N), H); without a part, tokens"""
        return tokens if self.part is None else _take(tokens.flatten(0, -2), self.part, rounded(len(self.part)))

    def spread(self, rows: Tensor, like: Tensor) -> Tensor:
        """The inverse of `rows`, in the shape of `like`: zeros where no token of the part is."""
        if self.part is None:
            return rows
        whole = like.new_zeros(like.shape).view(-1, like.shape[-1])
        return whole.index_copy(0, self.part, rows[: len(self.part)]).view(like.shape)


@dataclass(frozen=True)
class Padded(_Computed):
    """A padded layout of B rows. attention_mask (B, S) bool, true for real tokens, which are first in their row."""

    attention_mask: Tensor

    def __post_init__(self) -> None:
        if self.attention_mask.device.type == "cpu":
            self._check()

    @classmethod
    def of(cls, input_ids: Tensor, attention_mask: Tensor | None) -> "Padded":
        """Returns the layout of a user's batch; without a mask (B, S), all tokens are real.

        Raises UsageError for padding before a token. On an accelerator, this is checked outside of training only, where
        waiting for the result does no harm.
        """
        layout = cls(input_ids.new_ones(input_ids.shape[:2]) if attention_mask is None else attention_mask)
        if attention_mask is not None and attention_mask.device.type != "cpu" and not torch.is_grad_enabled():
            layout._check()
        return layout

    def _check(self) -> None:
        mask_BS = self.attention_mask.bool()
        if torch.compiler.is_compiling() or mask_BS.is_meta or isinstance(mask_BS, FakeTensor):
            return  # no numbers to look at
        if bool((mask_BS[:, 1:] & ~mask_BS[:, :-1]).any()):
            raise UsageError(
                "The attention_mask has padding before a token. [CLS] is read from the first position, so "
                "pad on the right: tokenizer.padding_side = 'right' in transformers."
            )

    @property
    def max_seqlen(self) -> int:
        """The width S of the rows."""
        return self.attention_mask.shape[1]

    @cached_property
    def full(self) -> bool:
        """Whether no row has padding. It is not checked on an accelerator, since that would wait, nor in an export."""
        if torch.compiler.is_exporting():
            return False
        return self.attention_mask.device.type == "cpu" and bool(self.attention_mask.all())

    def to(self, device: torch.device | str) -> "Padded":
        """Returns the same layout on another device."""
        return Padded(moved(self.attention_mask, device))

    def position_ids(self) -> Tensor:
        """Returns positions 0, 1, 2 ... of every row. -> (1, S) int64"""
        return torch.arange(self.attention_mask.shape[1], device=self.attention_mask.device)[None]

    def roomy(self) -> "Padded":
        """Returns the layout that an encoder runs on, which is this one."""
        return self

    def fill(self, tokens: Tensor) -> Tensor:
        """Returns tokens unchanged, since there are no additional rows."""
        return tokens

    def real(self, tokens: Tensor) -> Tensor:
        """The inverse of `fill`."""
        return tokens

    def first(self, hidden: Tensor) -> Tensor:
        """Returns the hidden state of each sequence's first token, [CLS]. hidden (B, S, H) -> (B, H)"""
        return hidden[:, 0]

    def last(self, hidden: Tensor) -> Tensor:
        """Returns the hidden state of each sequence's last token. hidden (B, S, H) -> (B, H)"""
        ends = self.mask().sum(1) - 1
        return hidden[torch.arange(ends.shape[0], device=ends.device), ends]  # not len(), which an export would freeze

    def ends(self, *, last: bool) -> Tensor:
        """Returns the flattened position of each sequence's last or first token. -> (B,) int64"""
        mask_BS = self.mask()
        starts = torch.arange(len(mask_BS), device=mask_BS.device) * mask_BS.shape[1]
        return starts + mask_BS.sum(1).sub(1).clamp(min=0) if last else starts

    def mask(self) -> Tensor:
        """Returns the mask (B, S) bool, true for real tokens."""
        return self.attention_mask.bool()

    def rectangle(self, tokens: Tensor) -> Tensor:
        """tokens (B, S, ...) -> (B, S, ...): a padded batch does not change."""
        return tokens

    def flat(self, rectangle: Tensor) -> Tensor:
        """The inverse of `rectangle`; with a part, its tokens. -> (B, S, ...) or (rounded(N), ...)"""
        return self.kept(rectangle)


@dataclass(frozen=True)
class Packed(_Computed):
    """B sequences, concatenated without padding. cu_seqlens (B + 1,) int32, starts and the end T; max_seqlen = S.

    num_rows: rows of a tensor of tokens, T or more. Rows after T belong to no sequence, interact with no other token
    and have no gradient.
    """

    cu_seqlens: Tensor
    max_seqlen: int
    num_tokens: int = -1  # T; read from cu_seqlens when left out
    num_rows: int = -1  # T when left out
    fixed: bool = False  # whether its shapes are those of other batches (models/fixed_shapes.py)

    def __post_init__(self) -> None:
        if self.num_tokens < 0:
            object.__setattr__(self, "num_tokens", int(self.cu_seqlens[-1]))
        if self.num_rows < 0:
            object.__setattr__(self, "num_rows", self.num_tokens)

    @classmethod
    def from_lengths(cls, lengths: Tensor) -> "Packed":
        """lengths (B,) int -> the layout of sequences of these lengths."""
        ends = torch.cumsum(lengths, 0, dtype=torch.int32)
        return cls(torch.cat([ends.new_zeros(1), ends]), int(lengths.max()) if len(lengths) else 0)

    def to(self, device: torch.device | str) -> "Packed":
        """Returns the same layout on another device."""
        return replace(self, cu_seqlens=moved(self.cu_seqlens, device))

    def roomy(self) -> "Packed":
        """Returns the layout that an encoder runs on, with the next of few numbers of rows."""
        return self if self.fixed else replace(self, num_rows=rounded(self.num_tokens))

    def fill(self, tokens: Tensor) -> Tensor:
        """tokens (T, ...) -> (num_rows, ...), zeros after them."""
        return with_rows(tokens, self.num_rows)

    def real(self, tokens: Tensor) -> Tensor:
        """The inverse of `fill`. tokens (num_rows, ...) -> (T, ...), a view"""
        return tokens[: self.num_tokens]

    @property
    def full(self) -> bool:
        """Whether all sequences have the same length, so that the padded layout has no padding."""
        return self.num_tokens == (len(self.cu_seqlens) - 1) * self.max_seqlen

    @cached_property
    def lengths(self) -> Tensor:
        """The number of tokens of each sequence (B,) int64."""
        return self.cu_seqlens.diff().long()

    @cached_property
    def _row(self) -> Tensor:
        rows = torch.arange(len(self.lengths), device=self.cu_seqlens.device)
        return torch.repeat_interleave(rows, self.lengths, output_size=self.num_tokens)

    @cached_property
    def _position(self) -> Tensor:
        return torch.arange(len(self._row), device=self.cu_seqlens.device) - self.cu_seqlens[:-1].long()[self._row]

    @cached_property
    def _cell(self) -> Tensor:
        """The index of each token in the flattened padded layout (B, S). -> (T,)"""
        return self._row * self.max_seqlen + self._position

    @cached_property
    def _mask(self) -> Tensor:
        return torch.arange(self.max_seqlen, device=self.cu_seqlens.device)[None] < self.lengths[:, None]

    def position_ids(self) -> Tensor:
        """Returns positions 0, 1, 2 ... of every sequence. -> (num_rows,) int64"""
        return self.fill(self._position)

    def first(self, hidden: Tensor) -> Tensor:
        """Returns the hidden state of each sequence's first token, [CLS]. hidden (T, H) -> (B, H)"""
        return hidden[self.cu_seqlens[:-1].long()]

    def last(self, hidden: Tensor) -> Tensor:
        """Returns the hidden state of each sequence's last token. hidden (T, H) -> (B, H)"""
        return hidden[self.cu_seqlens[1:].long() - 1]

    def ends(self, *, last: bool) -> Tensor:
        """Returns the position of each sequence's last or first token. -> (B,) int64"""
        ends_B = self.cu_seqlens[1:] - 1 if last else self.cu_seqlens[:-1]
        return ends_B.long().clamp(0, max(0, self.num_tokens - 1))  # a sequence of no tokens has none

    def mask(self) -> Tensor:
        """Returns the mask (B, S) bool, true for real tokens."""
        return self._mask

    def rectangle(self, tokens: Tensor) -> Tensor:
        """tokens (num_rows, ...) -> (B, S, ...), zeros after the end of a sequence; a view where all have the same
        length."""
        shape = (len(self.cu_seqlens) - 1, self.max_seqlen, *tokens.shape[1:])
        tokens = self.real(tokens)
        if self.full:
            return tokens.view(shape)
        cells = tokens.new_zeros(shape[0] * shape[1], *shape[2:])
        return cells.index_copy(0, self._cell, tokens).view(shape)

    def flat(self, rectangle: Tensor) -> Tensor:
        """The inverse of `rectangle`; with a part, its tokens. (B, S, ...) -> (num_rows, ...) or (rounded(N), ...)"""
        cells = rectangle.flatten(0, 1)
        if self.part is not None:
            return _take(cells, self.part if self.full else self._cell[self.part], rounded(len(self.part)))
        return self.fill(cells) if self.full else _take(cells, self._cell, self.num_rows)


class _Take(torch.autograd.Function):
    """cells[index], and zeros up to `rows`. The index has no repeats, so the gradient is a copy; torch's own would
    add."""

    @staticmethod
    def forward(ctx: Any, cells: Tensor, index: Tensor, rows: int) -> Tensor:
        ctx.save_for_backward(index)
        ctx.shape = cells.shape
        taken = cells.new_empty(rows, *cells.shape[1:])
        torch.index_select(cells, 0, index, out=taken[: len(index)])
        taken[len(index) :] = 0
        return taken

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (index,) = ctx.saved_tensors
        return grad.new_zeros(ctx.shape).index_copy_(0, index, grad[: len(index)]), None, None


def _take(cells: Tensor, index: Tensor, rows: int) -> Tensor:
    taken: Tensor = _Take.apply(cells, index, rows)  # type: ignore[no-untyped-call]
    return taken


def rows_at(tokens: Tensor, positions: Tensor) -> Tensor:
    """Returns tokens[positions], whose positions have no repeats, so that its gradient adds nothing up. -> (N, H)"""
    return _take(tokens, positions, len(positions))


Layout = Packed | Padded
