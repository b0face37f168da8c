"""How the sequences of a batch lie in memory: `Packed` end to end, or `Padded` in a rectangle.

Only attention looks at a layout's shape; every token-wise layer runs on whatever leading dimensions the hidden states
have: (T, H) when packed, (B, S, H) when padded.

B sequences · T real tokens of the batch · S longest sequence · H hidden size
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Padded:
    """A rectangle of B rows. attention_mask (B, S) bool, true on real tokens, which stand first in their row."""

    attention_mask: Tensor

    def to(self, device: torch.device | str) -> "Padded":
        """The same layout on another device."""
        return Padded(self.attention_mask.to(device, non_blocking=True))

    def position_ids(self) -> Tensor:
        """Positions 0, 1, 2 ... of every row. -> (1, S) int64"""
        return torch.arange(self.attention_mask.shape[1], device=self.attention_mask.device)[None]

    def first(self, hidden: Tensor) -> Tensor:
        """The hidden state of each sequence's first token, [CLS]. hidden (B, S, H) -> (B, H)"""
        return hidden[:, 0]

    def mask(self) -> Tensor:
        """(B, S) bool, true on real tokens."""
        return self.attention_mask

    def rectangle(self, tokens: Tensor) -> Tensor:
        """tokens (B, S, ...) -> (B, S, ...): a padded batch is one already."""
        return tokens

    def flat(self, rectangle: Tensor) -> Tensor:
        """The inverse of `rectangle`."""
        return rectangle


@dataclass(frozen=True)
class Packed:
    """B sequences end to end without padding. cu_seqlens (B + 1,) int32, starts and the end T; max_seqlen = S."""

    cu_seqlens: Tensor
    max_seqlen: int

    @classmethod
    def from_lengths(cls, lengths: Tensor) -> "Packed":
        """lengths (B,) int -> the layout of sequences of those lengths."""
        ends = torch.cumsum(lengths, 0, dtype=torch.int32)
        return cls(torch.cat([ends.new_zeros(1), ends]), int(lengths.max()) if len(lengths) else 0)

    def to(self, device: torch.device | str) -> "Packed":
        """The same layout on another device."""
        return Packed(self.cu_seqlens.to(device, non_blocking=True), self.max_seqlen)

    @cached_property
    def lengths(self) -> Tensor:
        """(B,) int64 tokens of each sequence."""
        return self.cu_seqlens.diff().long()

    @cached_property
    def _row(self) -> Tensor:
        return torch.repeat_interleave(torch.arange(len(self.lengths), device=self.cu_seqlens.device), self.lengths)

    @cached_property
    def _position(self) -> Tensor:
        return torch.arange(len(self._row), device=self.cu_seqlens.device) - self.cu_seqlens[:-1].long()[self._row]

    @cached_property
    def _cell(self) -> Tensor:
        """(T,) where each token lies in the flattened (B, S) rectangle."""
        return self._row * self.max_seqlen + self._position

    @cached_property
    def _mask(self) -> Tensor:
        return torch.arange(self.max_seqlen, device=self.cu_seqlens.device)[None] < self.lengths[:, None]

    def position_ids(self) -> Tensor:
        """Positions 0, 1, 2 ... of every sequence. -> (T,) int64"""
        return self._position

    def first(self, hidden: Tensor) -> Tensor:
        """The hidden state of each sequence's first token, [CLS]. hidden (T, H) -> (B, H)"""
        return hidden[self.cu_seqlens[:-1].long()]

    def mask(self) -> Tensor:
        """(B, S) bool, true on real tokens."""
        return self._mask

    def rectangle(self, tokens: Tensor) -> Tensor:
        """tokens (T, ...) -> (B, S, ...), zeros where a sequence has ended."""
        shape = (len(self.lengths), self.max_seqlen, *tokens.shape[1:])
        cells = tokens.new_zeros(shape[0] * shape[1], *shape[2:])
        return cells.index_copy(0, self._cell, tokens).view(shape)

    def flat(self, rectangle: Tensor) -> Tensor:
        """The inverse of `rectangle`. rectangle (B, S, ...) -> (T, ...)"""
        return rectangle.flatten(0, 1)[self._cell]


Layout = Packed | Padded
