"""What a config's layers are made of: which attention, which norm, how wide."""

from typing import Any

import torch
from torch import Tensor, nn

from bertie.models.config import EncoderConfig
from bertie.nn.attention import CrossAttention, SelfAttention
from bertie.nn.blocks import BlockSparseAttention
from bertie.nn.bottleneck import BottleneckLayer
from bertie.nn.layer import ACTIVATIONS, DecoderLayer, Layer
from bertie.nn.linear import NORMS
from bertie.nn.positions import RelativePositions
from bertie.nn.window import WindowAttention


def make_layer(config: EncoderConfig, number: int) -> nn.Module:
    """An encoder's layer; its number decides the window and the random blocks."""
    if config.bottleneck_size is not None:
        return BottleneckLayer(
            config.hidden_size,
            config.bottleneck_size,
            config.num_attention_heads,
            config.intermediate_size,
            activation=ACTIVATIONS[config.hidden_act],
            num_feedforward=config.num_feedforward_networks,
            narrow_attention=config.bottleneck_attention,
            norm_type=config.norm_type,
            eps=config.layer_norm_eps,
            dropout_p=config.hidden_dropout_prob,
            attention_dropout_p=config.attention_probs_dropout_prob,
        )
    return Layer(config.hidden_size, config.intermediate_size, attention=_attention(config, number), **_options(config))


def make_decoder_layer(config: EncoderConfig) -> DecoderLayer:
    """A layer that attends to a memory too."""
    return DecoderLayer(
        config.hidden_size,
        config.intermediate_size,
        attention=SelfAttention(config.hidden_size, config.num_attention_heads, **_heads(config)),
        cross_attention=CrossAttention(config.hidden_size, config.num_attention_heads, **_heads(config)),
        **_options(config),
    )


def _options(config: EncoderConfig) -> dict[str, Any]:
    return {
        "activation": config.hidden_act,
        "norm": config.norm,
        "norm_type": config.norm_type,
        "eps": config.layer_norm_eps,
        "bias": config.bias,
        "dropout_p": config.hidden_dropout_prob,
        "dropout_inside": config.dropout_inside,
    }


def _heads(config: EncoderConfig) -> dict[str, Any]:
    return {
        "head_size": config.attention_head_size,
        "bias": config.bias and config.attention_bias,
        "output_bias": config.bias,
        "scaled": config.scale_attention,
        "dropout_p": config.attention_probs_dropout_prob,
    }


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
    return SelfAttention(size, heads, **_heads(config))


def final_norm(config: EncoderConfig) -> nn.Module:
    """The norm behind the last of the pre-norm layers."""
    norm: nn.Module = NORMS[config.norm_type](config.hidden_size, config.layer_norm_eps)
    return norm


def relative_positions(config: EncoderConfig, *, both_sides: bool) -> RelativePositions | None:
    """The table of distances, where the config has one."""
    if config.positions != "relative":
        return None
    return RelativePositions(
        config.num_attention_heads,
        both_sides=both_sides,
        num_buckets=config.relative_attention_num_buckets,
        max_distance=config.relative_attention_max_distance,
    )


def with_distances(bias: Tensor | None, distances: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to the scores, in the compute dtype: what may not be seen, and how far it is."""
    return distances.to(dtype) if bias is None else bias + distances.to(dtype)
