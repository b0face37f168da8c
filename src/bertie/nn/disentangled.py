"""Attention to content and to distance apart: DeBERTa. He et al. 2020, 3.1; He et al. 2021 (v3).

    score(i, j) = [q_i k_j + q_i K(i - j) + k_j Q(i - j)] / sqrt(3 D)

K and Q are made from a table of distances by the layer's own projections of keys and queries. Both are multiplied with
all distances that a length has, and shifted into place: nothing is gathered, and no score is computed twice for a
length.

B sequences · S longest of them · N heads · D head size · H = N D · R rows of the table · U = 2 S - 1 distances
"""

from dataclasses import dataclass
from math import log, sqrt
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertie.nn.attention import LayerCache, SelfAttention, split_heads
from bertie.nn.dropout import dropout
from bertie.nn.layout import Layout
from bertie.nn.linear import LayerNorm


def log_buckets(distance: Tensor, *, buckets: int, most: int) -> Tensor:
    """Query position minus key position -> its bucket, of the same sign: near ones have their own, far ones share.

    buckets: to each side, 0: each distance has its own. Release file da_utils.py, make_log_bucket_position.
    """
    if buckets <= 0:
        return distance
    middle = buckets // 2
    far = distance.abs().clamp_min(middle)
    # float32 as in the release, where a border falls on the side that its rounding says
    wide = torch.ceil(torch.log(far / middle) / log((most - 1) / middle) * (middle - 1)).long() + middle
    return torch.where(distance.abs() <= middle, distance, wide * distance.sign())


@dataclass(frozen=True)
class Distances:
    """Inputs of layers: the mask of padding, and the table's row of every distance from 1 - S to S - 1. (R, H), (U,)"""

    bias: Tensor | None
    table_RH: Tensor
    rows_U: Tensor


class DistanceTable(nn.Embedding):
    """A vector for each bucket of distances, in all layers the same; normalized where there is a norm."""

    def __init__(self, hidden_size: int, *, buckets: int, most: int, norm_eps: float | None) -> None:
        super().__init__(2 * (buckets if buckets > 0 else most), hidden_size)
        self.buckets, self.most = buckets, most
        self.norm = None if norm_eps is None else LayerNorm(hidden_size, norm_eps)

    def added(
        self, bias: Tensor | None, queries: int, keys: int, mask_BK: Tensor | None, dtype: torch.dtype
    ) -> Distances:
        """Returns the inputs of layers for sequences of this length; `bias` masks padding."""
        weight, side = self.weight if self.norm is None else self.norm(self.weight), len(self.weight) // 2
        key_minus_query = torch.arange(1 - keys, keys, device=weight.device)
        rows_U = log_buckets(-key_minus_query, buckets=self.buckets, most=self.most) + side
        return Distances(bias, weight.to(dtype), rows_U.clamp(0, 2 * side - 1))


class DisentangledAttention(SelfAttention):
    """Self-attention to content and to distance. table_dropout_p: of the table, drawn in each layer."""

    def __init__(self, *sizes: int, table_dropout_p: float = 0.0, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.table_dropout_p = table_dropout_p

    def forward(  # type: ignore[override]
        self,
        hidden: Tensor,
        layout: Layout,
        bias: Distances,
        *,
        cache: LayerCache | None = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As `SelfAttention.forward`."""
        q_BNSD, k_BNSD, v_BNSD = split_heads(layout.rectangle(self.qkv(hidden)), 3, self.num_heads)
        toward_NUD, from_NUD = self._of_distances(bias)
        length, scale = q_BNSD.shape[2], 1 / sqrt(3 * q_BNSD.shape[-1])
        scores_BNSS = shifted(q_BNSD @ toward_NUD.mT, length) + shifted(k_BNSD @ from_NUD.flip(1).mT, length).mT
        scores_BNSS = scores_BNSS * scale
        if bias.bias is not None:
            scores_BNSS = scores_BNSS + bias.bias
        return self._attended((q_BNSD / sqrt(3), k_BNSD, v_BNSD), scores_BNSS, layout, output_attentions)

    def _of_distances(self, bias: Distances) -> tuple[Tensor, Tensor]:
        """The keys and the queries of every distance. -> two of (N, U, D)"""
        size = self.qkv.out_features // 3
        if torch.compiler.is_exporting():  # the number of different rows would become a constant of the graph
            used_RH, of_U = bias.table_RH, bias.rows_U
        else:
            used, of_U = torch.unique(bias.rows_U, return_inverse=True)
            used_RH = bias.table_RH[used]
        table = dropout(used_RH, self.table_dropout_p, self.training)
        weight, shift = self.qkv.weight[: 2 * size].to(table.dtype), self.qkv.bias
        projected = F.linear(table, weight, None if shift is None else shift[: 2 * size].to(table.dtype))[of_U]
        from_U2ND = projected.view(projected.shape[0], 2, self.num_heads, -1)  # len() would fix the length of a graph
        return from_U2ND[:, 1].transpose(0, 1), from_U2ND[:, 0].transpose(0, 1)


def shifted(by_distance: Tensor, length: int) -> Tensor:
    """(..., S, U), of row i and distance j - i -> (..., S, S), of row i and column j: the same numbers, read askew."""
    padded = F.pad(by_distance, (0, 1)).flatten(-2)[..., : length * (2 * length - 1)]
    askew = padded.view(*padded.shape[:-1], length, 2 * length - 1)
    return askew[..., length - 1 :]
