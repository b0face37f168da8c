"""MobileBERT's layer: wide vectors between layers, narrow ones inside. Sun et al. 2020, figure 1 (c).

    hidden H ──┬─> narrow b ───────────────> + ─> feed-forward networks ─> widen ─> + ─> hidden H
               ├─> narrow b ─> query, key ─┐ ^                                      ^
               └─────────────> value ──────┴─┘ attention                            │
               └────────────────────────────────────────────────────────────────────┘

H hidden size · b bottleneck size · T tokens · B sequences · S longest sequence · N heads · Q, K query and key positions
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from bertie.nn.attention import LayerCache, attend, split_heads
from bertie.nn.dropout import add_dropout
from bertie.nn.layout import Layout
from bertie.nn.linear import NORMS, Linear, NormType

_Activation = Callable[[Tensor], Tensor]


class BottleneckLayer(nn.Module):
    """As nn/layer.py's Layer, but attention and several feed-forward networks have the size `bottleneck_size`.

    attention_inputs: sizes of what queries and keys are made of, and of what values are made of: H or b. With b twice,
    all pass the bottleneck (the paper's tiny model). shared: whether queries and keys may pass one of their own. With
    neither, and b > H, the layer is that of the paper's teacher, figure 1 (b).
    """

    def __init__(
        self,
        hidden_size: int,
        bottleneck_size: int,
        num_heads: int,
        intermediate_size: int,
        *,
        activation: _Activation,
        num_feedforward: int = 4,
        attention_inputs: tuple[int, int],
        shared: bool = True,
        norm_type: NormType = "affine",
        eps: float = 1e-12,
        dropout_p: float = 0.0,
        attention_dropout_p: float = 0.1,
    ) -> None:
        super().__init__()

        def norm(size: int) -> nn.Module:
            return NORMS[norm_type](size, eps)

        self.activation, self.dropout_p = activation, dropout_p
        self.narrow_attention = attention_inputs == (bottleneck_size, bottleneck_size)
        self.input, self.input_norm = Linear(hidden_size, bottleneck_size), norm(bottleneck_size)
        # where attention is narrow, public files have this one all the same and nobody reads it
        self.shared = Linear(hidden_size, bottleneck_size) if shared else None
        self.shared_norm = norm(bottleneck_size) if shared else None
        self.attention = BottleneckAttention(
            bottleneck_size, attention_inputs, num_heads, dropout_p=attention_dropout_p
        )
        self.attention_norm = norm(bottleneck_size)
        self.ffn = nn.ModuleList(
            _FeedForward(bottleneck_size, intermediate_size, activation, norm(bottleneck_size))
            for _ in range(num_feedforward - 1)
        )
        self.up = Linear(bottleneck_size, intermediate_size)
        self.down = Linear(intermediate_size, bottleneck_size)
        self.output_norm = norm(bottleneck_size)
        self.widen, self.widen_norm = Linear(bottleneck_size, hidden_size), norm(hidden_size)

    def forward(
        self,
        hidden: Tensor,
        layout: Layout,
        bias: Tensor | None,
        *,
        cache: LayerCache | None = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """hidden (T, H) or (B, S, H) -> the same shape, or the layout's part; the probabilities on request."""
        narrow = self.input_norm(self.input(hidden))
        if self.narrow_attention:
            seeking, values = narrow, narrow
        elif self.shared is not None and self.shared_norm is not None:
            seeking, values = self.shared_norm(self.shared(hidden)), hidden
        else:
            seeking, values = hidden, hidden
        x, probs = self.attention(seeking, values, layout, bias, cache=cache, output_attentions=output_attentions)
        x = self.attention_norm(layout.kept(narrow) + x)
        for feed_forward in self.ffn:
            x = feed_forward(x)
        x = self.output_norm(x + self.down(self.activation(self.up(x))))
        return self.widen_norm(add_dropout(layout.kept(hidden), self.widen(x), self.dropout_p, self.training)), probs


class BottleneckAttention(nn.Module):
    """Self-attention with queries and keys from one vector, and values from another. inputs: the sizes of both."""

    def __init__(self, size: int, inputs: tuple[int, int], num_heads: int, *, dropout_p: float = 0.0) -> None:
        super().__init__()
        self.num_heads, self.dropout_p = num_heads, dropout_p
        self.qk = Linear(inputs[0], 2 * size, parts=2)
        self.value = Linear(inputs[1], size)
        self.output = Linear(size, size)

    def forward(
        self,
        seeking: Tensor,
        values: Tensor,
        layout: Layout,
        bias: Tensor | None,
        *,
        cache: LayerCache | None = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """seeking (..., b or H), values (..., b or H) -> (..., b), and the probabilities (B, N, Q, K) on request."""
        fused = torch.cat([self.qk(seeking), self.value(values)], -1)
        q_BNQD, k_BNKD, v_BNKD = split_heads(layout.rectangle(fused), 3, self.num_heads)
        if cache is not None:
            k_BNKD, v_BNKD = cache.extend(k_BNKD, v_BNKD)
        dropout_p = self.dropout_p if self.training else 0.0
        context_BNQD, probs = attend(
            q_BNQD, k_BNKD, v_BNKD, bias, dropout_p=dropout_p, output_attentions=output_attentions
        )
        return self.output(layout.flat(context_BNQD.transpose(1, 2).flatten(2))), probs


class _FeedForward(nn.Module):
    def __init__(self, size: int, intermediate_size: int, activation: _Activation, norm: nn.Module) -> None:
        super().__init__()
        self.activation = activation
        self.up, self.down, self.norm = Linear(size, intermediate_size), Linear(intermediate_size, size), norm

    def forward(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(x + self.down(self.activation(self.up(x))))
        return normed
