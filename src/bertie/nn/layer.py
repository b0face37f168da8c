"""One encoder layer: attention, then the feed-forward network, each with a residual connection and a norm."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from bertie.nn.dropout import add_dropout
from bertie.nn.layout import Layout
from bertie.nn.linear import LayerNorm, Linear

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


class Layer(nn.Module):
    """A transformer encoder layer. norm "post": norm(x + f(x)), as BERT; "pre": x + f(norm(x)).

    attention: which tokens see which (attention.py, window.py, blocks.py), which reads `seen`.
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        *,
        attention: nn.Module,
        activation: str = "gelu",
        norm: Literal["post", "pre"] = "post",
        eps: float = 1e-12,
        dropout_p: float = 0.1,
    ) -> None:
        super().__init__()
        self.pre_norm, self.dropout_p = norm == "pre", dropout_p
        self.activation = ACTIVATIONS[activation]
        self.attention = attention
        self.attention_norm = LayerNorm(hidden_size, eps)
        self.up = Linear(hidden_size, intermediate_size)
        self.down = Linear(intermediate_size, hidden_size)
        self.output_norm = LayerNorm(hidden_size, eps)

    def forward(
        self, hidden: Tensor, layout: Layout, seen: object, *, output_attentions: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """hidden (T, H) or (B, S, H) -> the same shape, and the attention probabilities when asked for."""
        x = self.attention_norm(hidden) if self.pre_norm else hidden
        x, probs = self.attention(x, layout, seen, output_attentions=output_attentions)
        hidden = add_dropout(hidden, x, self.dropout_p, self.training)
        hidden = hidden if self.pre_norm else self.attention_norm(hidden)

        x = self.output_norm(hidden) if self.pre_norm else hidden
        x = self.down(self.activation(self.up(x)))
        hidden = add_dropout(hidden, x, self.dropout_p, self.training)
        return hidden if self.pre_norm else self.output_norm(hidden), probs
