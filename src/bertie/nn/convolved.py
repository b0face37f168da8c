"""A layer whose output is joined by a convolution over neighboring tokens. He et al. 2021, DeBERTa v2's release."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from bertie.nn.attention_plan import AttentionPlan
from bertie.nn.cache import LayerCache
from bertie.nn.dropout import add_dropout, dropout
from bertie.nn.layer import ACTIVATIONS, Layer
from bertie.nn.layout import Layout
from bertie.nn.linear import LayerNorm


class ConvolvedLayer(Layer):
    """The normalized sum of a layer and a convolution over neighboring tokens (DeBERTa v2's first layer)."""

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
