"""One encoder layer: attention, then the feed-forward network, each with a residual connection and a norm."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertie.nn.attention import LayerCache
from bertie.nn.disentangled import Distances
from bertie.nn.dropout import add_dropout, dropout
from bertie.nn.fused import add_norm, bias_act, biased, norm, runs_kernels, unbiased
from bertie.nn.groups import LayoutGroups
from bertie.nn.layout import Layout
from bertie.nn.linear import NORMS, LayerNorm, Linear, NormType
from bertie.nn.rotary import Views
from bertie.nn.varlen import Varlen
from bertie.nn.window import WindowMask

AttentionPlan = Tensor | LayoutGroups | Varlen | WindowMask | Distances | Views | None
"""Which tokens attend to which, made once for all layers: a bias of scores (None: nothing is hidden), attention without
padding, a window, distances, or rotary positions."""


def _quick_gelu(x: Tensor) -> Tensor:  # a function with a name, so that a model can be pickled
    return x * (1.702 * x).sigmoid()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "quick_gelu": _quick_gelu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "linear": torch.positive,
}
GATES: dict[str, Callable[[Tensor], Tensor]] = {  # act(gate) * up, Shazeer 2020
    "geglu": partial(F.gelu, approximate="tanh"),  # the tanh, as in T5 1.1
    "reglu": F.relu,
    "swiglu": F.silu,
    "geglu_erf": F.gelu,
}
ACTIVATIONS |= GATES  # where there is no gate, as in a head: the gate's own


class Layer(nn.Module):
    """A transformer encoder layer. norm "post": norm(x + f(x)), as BERT; "pre": x + f(norm(x)).

    attention: one of attention.py, window.py or blocks.py, which reads the plan. dropout_inside: between the
    feed-forward network's two matrices too. attended_dropout_p: after attention's output, by default dropout_p;
    fed_dropout: whether one follows the other half.
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        *,
        attention: nn.Module,
        activation: str = "gelu",
        norm: Literal["post", "pre"] = "post",
        norm_type: NormType = "layer",
        eps: float = 1e-12,
        bias: bool = True,
        dropout_p: float = 0.1,
        dropout_inside: bool = False,
        attended_dropout_p: float | None = None,
        fed_dropout: bool = True,
        attention_norm: bool = True,
    ) -> None:
        super().__init__()
        self.pre_norm, self.dropout_p = norm == "pre", dropout_p
        self.inner_dropout_p = dropout_p if dropout_inside else 0.0
        self.attended_dropout_p = dropout_p if attended_dropout_p is None else attended_dropout_p
        self.fed_dropout_p = dropout_p if fed_dropout else 0.0
        self.gated, self.activation_name = activation in GATES, activation
        self.activation = GATES[activation] if self.gated else ACTIVATIONS[activation]
        self.attention = attention
        self.attention_norm = NORMS[norm_type](hidden_size, eps) if attention_norm else nn.Identity()
        if self.gated:
            self.gate_up = Linear(hidden_size, 2 * intermediate_size, bias, parts=2)
        else:
            self.up = Linear(hidden_size, intermediate_size, bias)
        self.down = Linear(intermediate_size, hidden_size, bias)
        self.output_norm = NORMS[norm_type](hidden_size, eps)

    def forward(
        self,
        hidden: Tensor,
        layout: Layout,
        plan: AttentionPlan,
        *,
        cache: LayerCache | None = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """hidden (T, H) or (B, S, H) -> the same shape, or the layout's part; the probabilities on request."""
        hidden, probs = self.attend(hidden, layout, plan, cache=cache, output_attentions=output_attentions)
        return self.feed_forward(hidden), probs

    def attend(
        self,
        hidden: Tensor,
        layout: Layout,
        plan: AttentionPlan,
        *,
        cache: LayerCache | None,
        output_attentions: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """The first half, as `forward`."""
        x = norm(hidden, self.attention_norm) if self.pre_norm else hidden
        reads = {} if cache is None else {"cache": cache}  # full attention alone has one
        x, probs = self.attention(x, layout, plan, output_attentions=output_attentions, **reads)
        return self.joined(layout.kept(hidden), x), probs

    def joined(self, hidden: Tensor, x: Tensor) -> Tensor:
        """The residual connection around attention, whose output is x. Both (..., H) -> (..., H)"""
        bias = self.attention.output_bias() if runs_kernels() else None  # type: ignore[operator]
        if self.pre_norm:
            return add_dropout(hidden, biased(x, bias), self.attended_dropout_p, self.training)
        return add_norm(hidden, x, bias, self.attention_norm, self.attended_dropout_p, self.training)

    def feed_forward(self, hidden: Tensor) -> Tensor:
        """The second half. (..., H) -> (..., H)"""
        x = norm(hidden, self.output_norm) if self.pre_norm else hidden
        x = self.activated(*unbiased(self.rise, x))
        x = dropout(x, self.inner_dropout_p, self.training)
        if self.pre_norm:
            return add_dropout(hidden, self.down(x), self.fed_dropout_p, self.training)
        return add_norm(hidden, *unbiased(self.down, x), self.output_norm, self.fed_dropout_p, self.training)

    @property
    def rise(self) -> nn.Module:
        """The first matrix of the feed-forward network, with the gate where there is one."""
        return self.gate_up if self.gated else self.up

    def activated(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """What the second matrix reads, from the output of the first. (..., I or 2 I) -> (..., I)

        bias: of the first, where its output is without.
        """
        return bias_act(x, bias, self.activation_name, self.activation, gated=self.gated)


class ConvolvedLayer(Layer):
    """The normalized sum of a layer and a convolution over neighboring tokens: DeBERTa v2's first layer. He et al.
    2021."""

    def __init__(self, *sizes: int, kernel_size: int, conv_act: str, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.conv = nn.Conv1d(sizes[0], sizes[0], kernel_size, padding=(kernel_size - 1) // 2)
        self.conv_norm, self.conv_activation = LayerNorm(sizes[0], options["eps"]), ACTIVATIONS[conv_act]

    def forward(
        self,
        hidden: Tensor,
        layout: Layout,
        plan: AttentionPlan,
        *,
        cache: LayerCache | None = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As `Layer.forward`."""
        output, probs = super().forward(hidden, layout, plan, output_attentions=output_attentions)
        rectangle_BSH = layout.rectangle(hidden) * layout.mask()[..., None]
        weight, bias = self.conv.weight.to(hidden.dtype), self.conv.bias
        assert bias is not None
        near_BHS = F.conv1d(rectangle_BSH.mT, weight, bias.to(hidden.dtype), padding=self.conv.padding)
        near = self.conv_activation(dropout(layout.flat(near_BHS.mT), self.dropout_p, self.training))
        return self.conv_norm(add_dropout(output, near, 0.0, self.training)), probs


class DecoderLayer(Layer):
    """A layer that attends to an encoder's output (its memory) between its halves. Pre-norm. Raffel et al. 2020."""

    def __init__(self, hidden_size: int, intermediate_size: int, *, cross_attention: nn.Module, **options: Any) -> None:
        super().__init__(hidden_size, intermediate_size, **options)
        self.cross_attention = cross_attention
        self.cross_norm = NORMS[options["norm_type"]](hidden_size, options["eps"])

    def decode(
        self,
        hidden: Tensor,
        layout: Layout,
        bias: Tensor | None,
        memory: Tensor,
        memory_layout: Layout,
        memory_bias: Tensor | None,
        *,
        cache: LayerCache | None = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """As `forward`, with the memory (B, K, H); the probabilities of both attentions on request."""
        hidden, probs = self.attend(hidden, layout, bias, cache=cache, output_attentions=output_attentions)
        x, cross_probs = self.cross_attention(
            self.cross_norm(hidden),
            layout,
            memory,
            memory_layout,
            memory_bias,
            cache=cache,
            output_attentions=output_attentions,
        )
        hidden = add_dropout(hidden, x, self.dropout_p, self.training)
        return self.feed_forward(hidden), probs, cross_probs
