"""Attention whose queries and keys are turned by their positions, and which may see no further than a window.

    (q_i turned by i) . (k_j turned by j) depends on i - j alone        Su et al. 2021, 3.4

The turn is made on real tokens, before a batch is laid out as a rectangle. A layer with a window computes chunks where
texts are long (window.py), and a band of the whole where they are short.

B sequences · T real tokens · S longest sequence · Q, K queries and keys · N heads · D head size
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from bertie.nn.attention import LayerCache, SelfAttention, lowest_where, split_heads
from bertie.nn.fused import Rotate, runs_kernels
from bertie.nn.groups import LayoutGroups
from bertie.nn.layout import Layout
from bertie.nn.varlen import Varlen
from bertie.nn.window import WindowMask, mask_window, window_attention

CHUNKED_FROM = 4  # windows' radii in a sequence, from where chunks cost less than the whole


@dataclass(frozen=True)
class Views:
    """Inputs of layers: the mask of all tokens (`whole`), the window, and the rotations by their base."""

    whole: Tensor | LayoutGroups | Varlen | None
    window: WindowMask
    turns: Mapping[float, tuple[Tensor, Tensor]]
    bands: dict[tuple[int, torch.dtype], Tensor] = field(default_factory=dict)

    def band(self, queries: int, radius: int, dtype: torch.dtype) -> Tensor:
        """A window as what is added to the scores, made once for all layers. -> (B, 1, Q, K)"""
        if (radius, dtype) not in self.bands:
            self.bands[radius, dtype] = lowest_where(~mask_window(self.window, queries, radius=radius), dtype)
        return self.bands[radius, dtype]


def turns(position_ids: Tensor, head_size: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine of each position's angles. position_ids (...) -> two of (..., D / 2) float32"""
    share = torch.arange(0, head_size, 2, dtype=torch.float32, device=position_ids.device) / head_size
    angles = position_ids[..., None].float() / theta**share
    return angles.cos(), angles.sin()


class TurnedAttention(SelfAttention):
    """Self-attention with rotary positions of base theta (None: without), within a radius (None: to all)."""

    @staticmethod
    def turns(places: Tensor, size: int, theta: float) -> tuple[Tensor, Tensor]:
        """Returns the cosines and sines of the angles of places. See `turns`."""
        return turns(places, size, theta)

    def __init__(self, *sizes: int, theta: float | None = None, radius: int | None = None, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.theta, self.radius = theta, radius

    def forward(  # type: ignore[override]
        self,
        hidden: Tensor,
        layout: Layout,
        bias: Views,
        *,
        cache: LayerCache | None = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As `SelfAttention.forward`."""
        qkv = self.qkv(hidden)
        if self.theta is not None:
            qkv = self.turned(qkv, *bias.turns[self.theta])
        any_length = cache is not None or torch.compiler.is_exporting()  # a graph has one path for all lengths
        if self.radius is None or (not any_length and layout.max_seqlen <= self.radius + 1):  # it hides nothing
            return self.attended(qkv, layout, bias.whole, cache=cache, output_attentions=output_attentions)
        if isinstance(bias.whole, Varlen):
            return self.attended(qkv, layout, replace(bias.whole, radius=self.radius))
        if any_length or output_attentions or layout.max_seqlen <= CHUNKED_FROM * self.radius:
            band = bias.band(layout.max_seqlen, self.radius, hidden.dtype)
            return self.attended(qkv, layout, band, cache=cache, output_attentions=output_attentions)
        q_BNSD, k_BNSD, v_BNSD = split_heads(layout.rectangle(qkv), 3, self.num_heads)
        dropout_p = self.dropout_p if self.training else 0.0
        context_BNSD, _ = window_attention(
            q_BNSD, k_BNSD, v_BNSD, bias.window, radius=self.radius, scaled=self.scaled, dropout_p=dropout_p
        )
        return self.output(layout.flat(context_BNSD.transpose(1, 2).flatten(2))), None

    def turned(self, qkv: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Queries and keys turned, values as they are. qkv (..., 3 N D), cos and sin (..., D / 2) -> (..., 3 N D)"""
        if runs_kernels():
            rotated: Tensor = Rotate.apply(qkv, cos, sin, self.num_heads)  # type: ignore[no-untyped-call]
            return rotated
        parts = qkv.view(*qkv.shape[:-1], 3, self.num_heads, 2 * cos.shape[-1])
        first, second = parts[..., :2, :, :].chunk(2, -1)
        cos, sin = cos[..., None, None, :], sin[..., None, None, :]
        turned = torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(qkv.dtype)
        return torch.cat([turned, parts[..., 2:, :, :]], -3).flatten(-3)
