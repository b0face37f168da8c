"""Keys and values of what a left-to-right model has read, so that a new token costs one row of attention.

B sequences · N heads · K tokens read, in columns of the rectangle · D head size
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]


@dataclass
class LayerCache:
    """One layer's. read: keys and values (B, N, K, D); memory: those of the encoder's output, for cross-attention."""

    read: Pair | None = None
    memory: Pair | None = None

    def extend(self, k: Tensor, v: Tensor) -> Pair:
        """Add keys and values of new tokens (B, N, Q, D). -> all of them (B, N, K + Q, D)"""
        if self.read is not None:
            k, v = torch.cat([self.read[0], k], 2), torch.cat([self.read[1], v], 2)
        self.read = k, v
        return k, v


@dataclass
class Cache:
    """All layers', and which columns hold real tokens: shorter prompts leave holes, which nobody sees."""

    layers: list[LayerCache] = field(default_factory=list)
    read: Tensor | None = None  # (B, K) bool

    def layer(self, i: int) -> LayerCache:
        """The cache of the i-th layer that a token passes."""
        if i == len(self.layers):
            self.layers.append(LayerCache())
        return self.layers[i]

    def mask(self) -> Tensor:
        """(B, K) bool, true on real tokens."""
        assert self.read is not None, "nothing has been read"
        return self.read

    def extend(self, mask: Tensor) -> Tensor:
        """Announce new tokens by their mask (B, Q). -> their positions (B, Q) in their sequences"""
        before = mask.new_zeros(len(mask), 0) if self.read is None else self.read
        self.read = torch.cat([before, mask], 1)
        return before.sum(1, keepdim=True) + torch.arange(mask.shape[1], device=mask.device)

    def reorder(self, rows: Tensor) -> None:
        """Row i goes on from what row rows[i] has read; both of one prompt, whose memory they share. rows (B,)"""
        self.read = self.mask()[rows]
        for layer in self.layers:
            if layer.read is not None:
                layer.read = layer.read[0][rows], layer.read[1][rows]
