"""Positions without a table: sines, and a bias of attention scores by distance (Raffel et al. 2020, 2.1).

Each small distance has its own bucket, larger distances share increasingly wide buckets, and the last bucket has all
others:

    distance   0  1  2 ... 7 | 8-11 | 12-15 | 16-22 | ... | 91 and more

Q, K query and key positions · N heads
"""

from math import log
from typing import ClassVar

import torch
from torch import Tensor, nn


def sines(positions: Tensor, size: int) -> Tensor:
    """(...) -> (..., size) float32: sines, then cosines, of wavelengths from 2 pi to 20,000 pi. Vaswani et al. 2017."""
    frequencies = 1 / 10_000 ** (torch.arange(0, size, 2, device=positions.device) / size)
    waves = positions[..., None] * frequencies  # rounded as `transformers` rounds it
    return torch.cat([waves.sin(), waves.cos()], -1)[..., :size]


def relative_buckets(distance: Tensor, *, both_sides: bool, num_buckets: int, max_distance: int) -> Tensor:
    """Key position minus query position, int64 -> bucket, the same shape.

    both_sides: whether half of the buckets are for keys on the right; otherwise these have the bucket of distance 0.
    """
    right = torch.zeros_like(distance)
    if both_sides:
        num_buckets //= 2
        right = (distance > 0).long() * num_buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp_min(0)
    exact = num_buckets // 2
    # float32 as in the release, where a border falls on the side that its rounding says
    part = torch.log(distance.clamp_min(1).float() / exact) / log(max_distance / exact)
    wide = (exact + (part * (num_buckets - exact)).long()).clamp_max(num_buckets - 1)
    return right + torch.where(distance < exact, distance, wide)


def slopes(num_heads: int) -> list[float]:
    """Returns the slope of each head: from one to the next, 8 / N powers of two less. Press et al. 2022, 3.

    Of a number of heads that is no power of two: those of the next lower power, and every second one of the next
    higher, as in their release.
    """
    power = 1 << (num_heads.bit_length() - 1)
    own = [2 ** (-8 * head / power) for head in range(1, power + 1)]
    return own if power == num_heads else own + slopes(2 * power)[::2][: num_heads - power]


class LinearBiases(nn.Module):
    """Minus the distance times the slope of each head, in all layers."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.slopes = slopes(num_heads)

    def added(self, bias: Tensor | None, queries: int, keys: int, mask_BK: Tensor | None, dtype: torch.dtype) -> Tensor:
        """As `RelativePositions.added`. Only in main memory is there nothing to hide, and so no bias."""
        device = None if bias is None else bias.device
        place_BK = torch.arange(keys, device=device)[None] if mask_BK is None else mask_BK.cumsum(1)
        distance_B1QK = (place_BK[:, None, :] - place_BK[:, keys - queries :, None]).abs()[:, None]
        distances = (-torch.tensor(self.slopes, device=device)[:, None, None] * distance_B1QK).to(dtype)
        return distances if bias is None else bias + distances


class ScoreBias(nn.Embedding):
    """A table of numbers that are added to scores."""

    biases: ClassVar = ("weight",)


class RelativePositions(nn.Module):
    """The bias of every distance; one table serves all layers."""

    def __init__(self, num_heads: int, *, both_sides: bool, num_buckets: int = 32, max_distance: int = 128) -> None:
        super().__init__()
        self.both_sides, self.num_buckets, self.max_distance = both_sides, num_buckets, max_distance
        self.bias = ScoreBias(num_buckets, num_heads)

    def added(self, bias: Tensor | None, queries: int, keys: int, mask_BK: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Returns what is added to the scores, in the compute dtype: the mask (`bias`) and the biases of distances."""
        distances: Tensor = self(queries, keys, mask_BK).to(dtype)
        return distances if bias is None else bias + distances

    def forward(self, queries: int, keys: int, mask_BK: Tensor | None = None) -> Tensor:
        """-> (1 or B, N, Q, K) float32; the queries are the last of the keys. mask_BK: the tokens of rows with gaps."""
        device = self.bias.weight.device
        place_BK = torch.arange(keys, device=device)[None] if mask_BK is None else mask_BK.cumsum(1)
        buckets_BQK = relative_buckets(
            place_BK[:, None, :] - place_BK[:, keys - queries :, None],
            both_sides=self.both_sides,
            num_buckets=self.num_buckets,
            max_distance=self.max_distance,
        )
        bias: Tensor = self.bias(buckets_BQK).permute(0, 3, 1, 2)
        return bias
