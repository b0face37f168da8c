"""The key-value cache of a causal model, so that a new token needs one row of attention.

B sequences · N heads · K tokens in the cache, as columns of the padded layout · D head size
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

_Pair = tuple[Tensor, Tensor]


@dataclass
class LayerCache:
    """The cache of one layer. read: keys and values (B, N, K, D); memory: those of the encoder's output."""

    read: _Pair | None = None
    memory: _Pair | None = None

    def extend(self, k: Tensor, v: Tensor) -> _Pair:
        """Adds keys and values of new tokens (B, N, Q, D). -> all of them (B, N, K + Q, D)"""
        if self.read is not None:
            k, v = torch.cat([self.read[0], k], 2), torch.cat([self.read[1], v], 2)
        self.read = k, v
        return k, v


@dataclass
class Cache:
    """The caches of all layers, and the mask of real tokens: shorter prompts leave gaps that no token attends to."""

    layers: list[LayerCache] = field(default_factory=list)
    read: Tensor | None = None  # (B, K) bool

    def layer(self, i: int) -> LayerCache:
        """Returns the cache of the i-th layer in the order of computation."""
        if i == len(self.layers):
            self.layers.append(LayerCache())
        return self.layers[i]

    def mask(self) -> Tensor:
        """Returns the mask (B, K) bool, true for real tokens."""
        if self.read is None:
            raise ValueError("Nothing has been read.")
        return self.read

    def extend(self, mask: Tensor) -> Tensor:
        """Adds the mask of new tokens (B, Q). -> their positions (B, Q) in their sequences"""
        before = mask.new_zeros(len(mask), 0) if self.read is None else self.read
        self.read = torch.cat([before, mask], 1)
        return before.sum(1, keepdim=True) + torch.arange(mask.shape[1], device=mask.device)

    def reorder(self, rows: Tensor) -> None:
        """Row i continues the tokens of row rows[i] of the same prompt, with which it shares the memory. rows (B,)"""
        self.read = self.mask()[rows]
        for layer in self.layers:
            if layer.read is not None:
                layer.read = layer.read[0][rows], layer.read[1][rows]
