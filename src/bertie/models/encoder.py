"""The encoder. What differs between BERT and its family is in `EncoderConfig`; this file asks for no names.

Token ids become vectors (nn/embeddings.py), pass L layers (nn/layer.py), and come out as `last_hidden_state`. All but
attention runs on real tokens only and does not know how the batch is laid out. Returns hidden states; heads live in
heads.py, losses in objectives/ and tasks/.

B sequences · T real tokens of the batch · S longest sequence · H hidden size · N heads
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from bertie.errors import DataError
from bertie.models.config import EncoderConfig
from bertie.nn.attention import SelfAttention, attention_bias
from bertie.nn.blocks import BlockSparseAttention
from bertie.nn.bottleneck import BottleneckLayer
from bertie.nn.embeddings import Embeddings
from bertie.nn.layer import ACTIVATIONS, Layer
from bertie.nn.layout import Layout, Padded
from bertie.nn.linear import LayerNorm, Linear
from bertie.nn.window import Sight, WindowAttention, sight


@dataclass(frozen=True)
class EncoderOutput:
    """What the encoder found. Hidden states are (T, H) packed or (B, S, H) padded; attentions are (B, N, S, S)."""

    last_hidden_state: Tensor
    layout: Layout
    pooler_output: Tensor | None = None  # (B, H)
    hidden_states: tuple[Tensor, ...] | None = None  # the embeddings, then each layer: L + 1
    attentions: tuple[Tensor, ...] | None = None  # one per layer; of windowed layers nn.window.WindowProbs' parts
    global_attentions: tuple[Tensor, ...] | None = None  # of windowed layers


class Encoder(nn.Module):
    """A bidirectional transformer encoder. Devlin et al. 2018, section 3; release file modeling.py, BertModel.

    Weights stay float32; `compute_dtype = torch.bfloat16` runs everything behind the embeddings in bf16.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.compute_dtype: torch.dtype | None = None  # None: that of the weights
        self.embeddings = Embeddings(
            config.vocab_size,
            config.hidden_size,
            max_positions=config.max_position_embeddings,
            num_segments=config.type_vocab_size,
            embedding_size=config.embedding_size,
            project=config.project_embeddings,
            trigram=config.trigram_embeddings,
            affine_norm=config.affine_norm,
            rescale=config.rescale_embeddings,
            dropout_before_norm=config.dropout_before_norm,
            eps=config.layer_norm_eps,
            dropout_p=config.hidden_dropout_prob,
        )
        if config.num_hidden_groups is None:
            self.layers = nn.ModuleList(_layer(config, i) for i in range(config.num_hidden_layers))
        else:
            self.layers = nn.ModuleList(
                nn.ModuleList(_layer(config, i) for _ in range(config.inner_group_num))
                for i in range(config.num_hidden_groups)
            )
        self.final_norm = LayerNorm(config.hidden_size, config.layer_norm_eps) if config.norm == "pre" else None
        dense = config.pooler and config.pooler_dense
        self.pooler = Linear(config.hidden_size, config.hidden_size) if dense else None

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        layout: Layout | None = None,
        *,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> EncoderOutput:
        """input_ids (T,) with a Packed layout, or (B, S) with a Padded one or an attention_mask (B, S), 1 = real.

        token_type_ids, position_ids: as input_ids; left out, they are zeros and 0, 1, 2 ... in every sequence.
        global_attention_mask: as input_ids, 1 on the tokens that see and are seen by all, where attention is windowed.
        Raises DataError when a sequence is longer than the model has positions.
        """
        if layout is None:
            layout = Padded(torch.ones_like(input_ids) if attention_mask is None else attention_mask)
        self._check_length(layout)
        if position_ids is None:
            position_ids = layout.position_ids() + self.config.position_offset
        hidden = self.embeddings(input_ids, token_type_ids, position_ids, layout)
        hidden = hidden.to(self.compute_dtype or hidden.dtype)
        windowed = self.config.attention_window is not None
        seen: Sight | Tensor | None
        if windowed:
            seen = sight(layout, global_attention_mask)
        else:
            seen = attention_bias(layout, hidden.dtype, causal=self.config.causal)
        hidden_states, attentions = [hidden], []
        for layer in self._in_order():
            hidden, probs = layer(hidden, layout, seen, output_attentions=output_attentions)
            if output_hidden_states:
                hidden_states.append(hidden)
            if output_attentions:
                attentions.append(probs)
        if self.final_norm is not None:
            hidden = self.final_norm(hidden)
        return EncoderOutput(
            last_hidden_state=hidden,
            layout=layout,
            pooler_output=self._pool(layout.first(hidden)),
            hidden_states=tuple(hidden_states) if output_hidden_states else None,
            attentions=tuple(a.window if windowed else a for a in attentions) if output_attentions else None,
            global_attentions=tuple(a.of_global for a in attentions) if output_attentions and windowed else None,
        )

    def _pool(self, first: Tensor) -> Tensor | None:
        if self.pooler is not None:
            return torch.tanh(self.pooler(first))
        return None if self.config.pooler_dense else first

    def _in_order(self) -> Iterator[nn.Module]:
        """The layers as a sequence passes them; those of a group again and again (Lan et al. 2019, 3.1)."""
        groups, rounds = self.config.num_hidden_groups, self.config.num_hidden_layers
        if groups is None:
            yield from self.layers
        else:
            for i in range(rounds):
                yield from cast(nn.ModuleList, self.layers[i * groups // rounds])

    def _check_length(self, layout: Layout) -> None:
        longest, most = layout.max_seqlen, self.config.max_length
        if longest > most:
            raise DataError(
                f"A sequence of {longest:,} tokens does not fit the model's {most:,} positions. "
                f"Truncate or window it: max_length={most}."
            )


def _layer(config: EncoderConfig, number: int) -> nn.Module:
    if config.bottleneck_size is not None:
        return BottleneckLayer(
            config.hidden_size,
            config.bottleneck_size,
            config.num_attention_heads,
            config.intermediate_size,
            activation=ACTIVATIONS[config.hidden_act],
            num_feedforward=config.num_feedforward_networks,
            narrow_attention=config.bottleneck_attention,
            affine_norm=config.affine_norm,
            eps=config.layer_norm_eps,
            dropout_p=config.hidden_dropout_prob,
            attention_dropout_p=config.attention_probs_dropout_prob,
        )
    return Layer(
        config.hidden_size,
        config.intermediate_size,
        attention=_attention(config, number),
        activation=config.hidden_act,
        norm=config.norm,
        eps=config.layer_norm_eps,
        dropout_p=config.hidden_dropout_prob,
    )


def _attention(config: EncoderConfig, number: int) -> SelfAttention:
    size, heads, dropout_p = config.hidden_size, config.num_attention_heads, config.attention_probs_dropout_prob
    if config.attention_window is not None:
        radius, dilation = config.window(number)
        return WindowAttention(size, heads, radius=radius, dilation=dilation, dropout_p=dropout_p)
    if config.attention_type == "block_sparse":
        return BlockSparseAttention(
            size,
            heads,
            block_size=config.block_size,
            num_random=config.num_random_blocks,
            max_length=config.max_length,
            seed=number,
            bias=config.attention_bias,
            dropout_p=dropout_p,
        )
    return SelfAttention(size, heads, bias=config.attention_bias, dropout_p=dropout_p)
