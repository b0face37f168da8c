"""Makes the modules of an encoder's layers from a config."""

from functools import singledispatch
from typing import Any

import torch
from torch import Tensor, nn

from bertie.models.config import EncoderConfig
from bertie.models.kinds import Attention, BlockSparse, Bottleneck, Full, LayerKind, Relative, Residual, Window
from bertie.nn.attention import CrossAttention, SelfAttention
from bertie.nn.blocks import BlockSparseAttention
from bertie.nn.bottleneck import BottleneckLayer
from bertie.nn.layer import ACTIVATIONS, DecoderLayer, Layer
from bertie.nn.linear import NORMS
from bertie.nn.positions import RelativePositions
from bertie.nn.window import WindowAttention


@singledispatch
def make_layer(kind: LayerKind, config: EncoderConfig, number: int) -> nn.Module:
    """Returns a layer of an encoder. Its number determines the window and the random blocks."""
    raise TypeError(type(kind))


@make_layer.register
def _(kind: Residual, config: EncoderConfig, number: int) -> nn.Module:
    attention = make_attention(config.attention, config, number)
    return Layer(config.hidden_size, config.intermediate_size, attention=attention, **_options(config))


@make_layer.register
def _(kind: Bottleneck, config: EncoderConfig, number: int) -> nn.Module:
    return BottleneckLayer(
        config.hidden_size,
        kind.bottleneck_size,
        config.num_attention_heads,
        config.intermediate_size,
        activation=ACTIVATIONS[config.hidden_act],
        num_feedforward=kind.num_feedforward_networks,
        narrow_attention=kind.bottleneck_attention,
        norm_type=config.norm_type,
        eps=config.layer_norm_eps,
        dropout_p=config.hidden_dropout_prob,
        attention_dropout_p=config.attention_probs_dropout_prob,
    )


@singledispatch
def make_attention(kind: Attention, config: EncoderConfig, number: int) -> SelfAttention:
    """Returns the attention of a residual layer."""
    raise TypeError(type(kind))


@make_attention.register
def _(kind: Full, config: EncoderConfig, number: int) -> SelfAttention:
    return SelfAttention(config.hidden_size, config.num_attention_heads, **_heads(config))


@make_attention.register
def _(kind: Window, config: EncoderConfig, number: int) -> SelfAttention:
    radius, dilation = kind.reach(number)
    return WindowAttention(
        config.hidden_size, config.num_attention_heads, radius=radius, dilation=dilation, **_heads(config)
    )


@make_attention.register
def _(kind: BlockSparse, config: EncoderConfig, number: int) -> SelfAttention:
    return BlockSparseAttention(
        config.hidden_size,
        config.num_attention_heads,
        block_size=kind.block_size,
        num_random=kind.num_random_blocks,
        max_length=config.max_length,
        causal=config.causal,
        seed=number,
        **_heads(config),
    )


def make_decoder_layer(config: EncoderConfig) -> DecoderLayer:
    """Returns a layer that attends to a memory too."""
    return DecoderLayer(
        config.hidden_size,
        config.intermediate_size,
        attention=SelfAttention(config.hidden_size, config.num_attention_heads, **_heads(config)),
        cross_attention=CrossAttention(config.hidden_size, config.num_attention_heads, **_heads(config)),
        **_options(config),
    )


def _residual(config: EncoderConfig) -> Residual:
    assert isinstance(config.layer, Residual), "EncoderConfig lets no other layer stand here"
    return config.layer


def _options(config: EncoderConfig) -> dict[str, Any]:
    layer = _residual(config)
    return {
        "activation": config.hidden_act,
        "norm": layer.norm,
        "norm_type": config.norm_type,
        "eps": config.layer_norm_eps,
        "bias": layer.bias,
        "dropout_p": config.hidden_dropout_prob,
        "dropout_inside": layer.dropout_inside,
    }


def _heads(config: EncoderConfig) -> dict[str, Any]:
    layer = _residual(config)
    return {
        "head_size": layer.attention_head_size,
        "bias": layer.bias and layer.attention_bias,
        "output_bias": layer.bias,
        "scaled": layer.scale_attention,
        "dropout_p": config.attention_probs_dropout_prob,
    }


def final_norm(config: EncoderConfig) -> nn.Module:
    """Returns the norm after the last of the pre-norm layers."""
    norm: nn.Module = NORMS[config.norm_type](config.hidden_size, config.layer_norm_eps)
    return norm


def relative_positions(config: EncoderConfig, *, both_sides: bool) -> RelativePositions | None:
    """Returns the table of distances, where the config has one."""
    if not isinstance(config.positions, Relative):
        return None
    return RelativePositions(
        config.num_attention_heads,
        both_sides=both_sides,
        num_buckets=config.positions.relative_attention_num_buckets,
        max_distance=config.positions.relative_attention_max_distance,
    )


def with_distances(bias: Tensor | None, distances: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns what is added to the attention scores, in the compute dtype: the mask, and the bias of distances."""
    return distances.to(dtype) if bias is None else bias + distances.to(dtype)
