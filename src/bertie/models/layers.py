"""Makes the modules of an encoder's layers from a config."""

from collections.abc import Callable
from functools import partial, singledispatch
from typing import Any

from torch import nn

from bertie.models.config import EncoderConfig
from bertie.models.kinds import (
    Alibi,
    Alternating,
    Attention,
    BlockSparse,
    Bottleneck,
    Convolutional,
    Disentangled,
    Frames,
    Full,
    LayerKind,
    LearnedRelative,
    Recurrent,
    Regions,
    Relative,
    Residual,
    Rotary,
    Window,
)
from bertie.nn.attention import CrossAttention, SelfAttention
from bertie.nn.blocks import BlockSparseAttention
from bertie.nn.bottleneck import BottleneckLayer
from bertie.nn.disentangled import DisentangledAttention, DistanceTable
from bertie.nn.features import FrameEmbeddings, RegionEmbeddings
from bertie.nn.layer import ACTIVATIONS, ConvolvedLayer, DecoderLayer, Layer
from bertie.nn.linear import NORMS
from bertie.nn.positions import LinearBiases, RelativePositions
from bertie.nn.recurrent import ConvolutionalLayer, RecurrentLayer
from bertie.nn.rotary import TurnedAttention
from bertie.nn.window import WindowAttention


@singledispatch
def make_layer(kind: LayerKind, config: EncoderConfig, number: int) -> nn.Module:
    """Returns a layer of an encoder. Its number determines the window and the random blocks."""
    raise TypeError(type(kind))


@make_layer.register
def _(kind: Residual, config: EncoderConfig, number: int) -> nn.Module:
    build: Callable[..., nn.Module] = Layer
    if number == 0 and kind.conv_kernel_size:
        build = partial(ConvolvedLayer, kernel_size=kind.conv_kernel_size, conv_act=kind.conv_act)
    return build(
        config.hidden_size,
        config.intermediate_size,
        attention=make_attention(config.attention, config, number),
        attention_norm=number > 0 or kind.first_attention_norm,
        **_options(config),
    )


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


@make_layer.register
def _(kind: Recurrent, config: EncoderConfig, number: int) -> nn.Module:
    return RecurrentLayer(config.hidden_size, kind.recurrent_cell, dropout_p=config.hidden_dropout_prob)


@make_layer.register
def _(kind: Convolutional, config: EncoderConfig, number: int) -> nn.Module:
    size, widths, p = config.hidden_size, kind.filter_widths, config.hidden_dropout_prob
    return ConvolutionalLayer(size, widths, config.hidden_act, dropout_p=p)


@singledispatch
def make_attention(kind: Attention, config: EncoderConfig, number: int) -> SelfAttention:
    """Returns the attention of a residual layer."""
    raise TypeError(type(kind))


@make_attention.register
def _(kind: Full, config: EncoderConfig, number: int) -> SelfAttention:
    if isinstance(config.positions, Rotary):
        theta = config.positions.rope_theta
        return TurnedAttention(config.hidden_size, config.num_attention_heads, theta=theta, **_heads(config))
    if isinstance(config.positions, Disentangled):
        table_p = config.hidden_dropout_prob
        return DisentangledAttention(
            config.hidden_size, config.num_attention_heads, table_dropout_p=table_p, **_heads(config)
        )
    return SelfAttention(config.hidden_size, config.num_attention_heads, **_heads(config))


@make_attention.register
def _(kind: Alternating, config: EncoderConfig, number: int) -> SelfAttention:
    radius = kind.radius(number)
    return TurnedAttention(
        config.hidden_size,
        config.num_attention_heads,
        theta=next(iter(rotations(config, windows=radius is not None)), None),
        radius=radius,
        **_heads(config),
    )


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
    assert isinstance(config.layer, Residual), "EncoderConfig allows no other layer here"
    return config.layer


def _options(config: EncoderConfig) -> dict[str, Any]:
    layer = _residual(config)
    attended = {"hidden": None, "attention": config.attention_probs_dropout_prob, "none": 0.0}
    return {
        "activation": config.hidden_act,
        "norm": layer.norm,
        "norm_type": config.norm_type,
        "eps": config.layer_norm_eps,
        "bias": layer.bias,
        "dropout_p": config.hidden_dropout_prob,
        "dropout_inside": layer.dropout_inside,
        "attended_dropout_p": attended[layer.attended_dropout],
        "fed_dropout": layer.fed_dropout,
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


def feature_embeddings(config: EncoderConfig) -> RegionEmbeddings | FrameEmbeddings | None:
    """Returns what embeds the vectors in the place of tokens, where the config has one."""
    if isinstance(config.inputs, Regions):
        return RegionEmbeddings(
            config.inputs.visual_embedding_dim,
            config.hidden_size,
            num_segments=config.type_vocab_size,
            max_positions=config.max_position_embeddings,
        )
    return FrameEmbeddings(config.inputs.frame_size, config.hidden_size) if isinstance(config.inputs, Frames) else None


def final_norm(config: EncoderConfig) -> nn.Module:
    """Returns the norm after the last of the pre-norm layers."""
    norm: nn.Module = NORMS[config.norm_type](config.hidden_size, config.layer_norm_eps)
    return norm


def relative_positions(
    config: EncoderConfig, *, both_sides: bool
) -> RelativePositions | DistanceTable | LinearBiases | None:
    """What adds distances to the scores, where the config has one."""
    if isinstance(config.positions, Alibi):
        return LinearBiases(config.num_attention_heads)
    if isinstance(config.positions, Disentangled):
        positions = config.positions
        return DistanceTable(
            config.hidden_size,
            buckets=positions.position_buckets,
            most=positions.max_relative_positions,
            norm_eps=config.layer_norm_eps if positions.relative_norm else None,
        )
    if not isinstance(config.positions, Relative | LearnedRelative):
        return None
    return RelativePositions(
        config.num_attention_heads,
        both_sides=both_sides,
        num_buckets=config.positions.relative_attention_num_buckets,
        max_distance=config.positions.relative_attention_max_distance,
    )


def rotations(config: EncoderConfig, *, windows: bool | None = None) -> tuple[float, ...]:
    """The bases of rotary positions: of layers that see all, and of those with windows; or of one kind of them."""
    if not isinstance(config.positions, Rotary):
        return ()
    whole, local = config.positions.rope_theta, config.positions.local_rope_theta
    return (whole, local or whole) if windows is None else (local or whole,) if windows else (whole,)
