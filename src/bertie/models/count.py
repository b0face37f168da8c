"""The cost of a config, computed without building the model: parameters by part, bytes, operations. Imports no torch.

Other encoders (xlnet.py, elmo.py) register the cost of their own config class.

L layers · h hidden size · s tokens per sequence · p fraction of predicted positions · V vocabulary
"""

from functools import singledispatch

from bertie.models.config import EncoderConfig
from bertie.models.kinds import (
    GATED_ACTIVATIONS,
    Bottleneck,
    Convolutional,
    Disentangled,
    Frames,
    Groups,
    Learned,
    LearnedRelative,
    Recurrent,
    Regions,
    Relative,
    Residual,
    Window,
)

GATES = {"lstm": 4, "gru": 3}  # matrices of a cell's inputs
NORM = {"layer": 2, "rms": 1, "affine": 2, "unbiased": 1}  # parameters a feature


@singledispatch
def parameters(config: EncoderConfig) -> dict[str, int]:
    """Returns the parameters of the encoder by part. Shared layers count once."""
    h = config.hidden_size
    e = config.embedding_size or h
    summed = h if config.trigram_embeddings else e
    layers = config.num_hidden_layers
    if isinstance(config.sharing, Groups):
        layers = config.sharing.num_hidden_groups * config.sharing.inner_group_num
    projected = e != h or config.project_embeddings or config.trigram_embeddings
    read = 3 * e if config.trigram_embeddings else e
    return {
        "word embeddings": config.vocab_size * e,
        **_positions(config, summed),
        "segment embeddings": config.type_vocab_size * summed,
        "embedding norm": NORM[config.norm_type] * summed * config.embedding_norm,
        **({"embedding projection": _linear(read, h)} if projected else {}),
        **_features(config),
        "layers": layers * _layer(config) + _first(config),
        **({"final norm": NORM[config.norm_type] * h} if config.layer.norm == "pre" else {}),
        **({"pooler": _linear(h, h)} if config.pooler and config.pooler_dense else {}),
    }


@singledispatch
def predictions_per_token(config: EncoderConfig) -> float:
    """Predictions per token by the vocabulary head in pre-training: BERT's fraction, about that of T5's decoder too."""
    return 1.0 if config.causal else 0.15


def decoder_parameters(config: EncoderConfig) -> dict[str, int]:
    """Returns the parameters of a decoder by part, including its output matrix; none for other models."""
    if config.num_decoder_layers is None:
        return {}
    h = config.hidden_size
    attention = _attention(config)
    return {
        **{f"decoder {part}": number for part, number in _positions(config, 0).items()},
        "decoder layers": config.num_decoder_layers * (_layer(config) + attention + NORM[config.norm_type] * h),
        "decoder final norm": NORM[config.norm_type] * h,
        **({} if config.heads.lm.lm_tied else {"next-token head": config.vocab_size * h}),
    }


def _linear(inputs: int, outputs: int, bias: bool = True) -> int:
    return inputs * outputs + outputs * bias


def _positions(config: EncoderConfig, width: int) -> dict[str, int]:
    """Positions that are learned, by part; those added to embeddings are `width` wide."""
    positions, sizes = config.positions, {}
    if isinstance(positions, Relative | LearnedRelative):
        sizes["relative positions"] = positions.relative_attention_num_buckets * config.num_attention_heads
    if isinstance(positions, Disentangled):
        rows = 2 * (positions.position_buckets or positions.max_relative_positions)
        sizes["relative positions"] = (rows + 2 * positions.relative_norm) * config.hidden_size
    if isinstance(positions, Learned | LearnedRelative) and width:
        sizes["position embeddings"] = config.max_position_embeddings * width
    return sizes


def _features(config: EncoderConfig) -> dict[str, int]:
    """Parameters of the embedding of regions or frames."""
    inputs, h = config.inputs, config.hidden_size
    if isinstance(inputs, Regions):
        rows = config.type_vocab_size + config.max_position_embeddings
        return {"region embeddings": _linear(inputs.visual_embedding_dim, h) + rows * h}
    return {"frame embeddings": _linear(inputs.frame_size, h) + h} if isinstance(inputs, Frames) else {}


def _first(config: EncoderConfig) -> int:
    """Differences of the first layer: a convolution, or no norm before its attention."""
    layer, h = config.layer, config.hidden_size
    if not (isinstance(layer, Residual) and config.num_hidden_layers):
        return 0
    conv = layer.conv_kernel_size * h * h + h + NORM["layer"] * h if layer.conv_kernel_size else 0
    return conv - (0 if layer.first_attention_norm else NORM[config.norm_type] * h)


def _attention(config: EncoderConfig) -> int:
    assert isinstance(config.layer, Residual)
    h, width, bias = config.hidden_size, config.attention_size, config.layer.bias
    return 3 * _linear(h, width, bias and config.layer.attention_bias) + _linear(width, h, bias)


def _layer(config: EncoderConfig) -> int:
    h, i, layer = config.hidden_size, config.intermediate_size, config.layer
    norm = NORM[config.norm_type]
    if isinstance(layer, Recurrent):
        return GATES[layer.recurrent_cell] * (h + h // 2 + 2) * h
    if isinstance(layer, Convolutional):
        return sum(h // len(layer.filter_widths) * (h * width + 1) for width in layer.filter_widths)
    if isinstance(layer, Residual):
        bias = layer.bias and layer.attention_bias
        of_global = 3 * _linear(h, config.attention_size, bias) if isinstance(config.attention, Window) else 0
        feed_forward = _ups(config) * _linear(h, i, layer.bias) + _linear(i, h, layer.bias)
        return _attention(config) + of_global + feed_forward + 2 * norm * h
    b = layer.bottleneck_size
    query, value = layer.attention_inputs(h)
    narrow = (1 + layer.shared_bottleneck) * (_linear(h, b) + norm * b)
    attention = 2 * _linear(query, b) + _linear(value, b) + _linear(b, b) + norm * b
    feed_forward = layer.num_feedforward_networks * (_linear(b, i) + _linear(i, b) + norm * b)
    return narrow + attention + feed_forward + _linear(b, h) + norm * h


def _ups(config: EncoderConfig) -> int:
    """Returns the number of matrices that expand in the feed-forward network: 2 with a gate."""
    return 2 if config.hidden_act in GATED_ACTIVATIONS else 1


@singledispatch
def forward_flops(
    config: EncoderConfig, *, length: float, predicted: float = 0.0, decoded: float | None = None
) -> dict[str, float]:
    """Returns the floating-point operations of a forward pass per real token, by part. Training takes three times as
    many.

    length: tokens per sequence, averaged over tokens; predicted: fraction of positions for the vocabulary head. With i
    = 4 h, the sum is 24 L h^2 + 4 L h s + p (2 h^2 + 2 h V). Global tokens of windowed models are not counted.
    decoded: tokens that a decoder reads or generates per encoder token, by default `predicted`; it attends to `length`
    tokens of both kinds. 0: the decoder is not used.
    """
    h, layer, sharing = config.hidden_size, config.layer, config.sharing
    again = sharing.inner_group_num if isinstance(sharing, Groups) else 1
    rounds = config.num_hidden_layers * again
    e, width = config.embedding_size or h, config.attention_size
    projections, inside, networks = 4 * h * width, h, 1
    if isinstance(layer, Bottleneck):
        b = inside = layer.bottleneck_size
        networks = layer.num_feedforward_networks
        query, value = layer.attention_inputs(h)
        narrow = 1 if layer.bottleneck_attention else 1 + layer.shared_bottleneck
        projections = (narrow + 1) * h * b + (2 * query + value + b) * b
    read = h if config.heads.mlm.mlm_widened else e
    head = {"masked-LM head": predicted * (2 * h * read + 2 * read * config.vocab_size)}
    if not config.heads.lm.lm_transform:
        head = {"next-token head": predicted * 2 * h * config.vocab_size}
    if isinstance(layer, Recurrent | Convolutional):
        return {"layers": 2.0 * rounds * _layer(config), **head}
    return {
        "projections": 2 * rounds * projections,
        "feed-forward": 2 * rounds * (1 + _ups(config)) * inside * config.intermediate_size * networks,
        "attention": 4
        * width
        * again
        * sum(config.attention.tokens_seen(i, length) for i in range(config.num_hidden_layers)),
        **_decoder_flops(config, length, predicted if decoded is None else decoded),
        **head,
    }


def _decoder_flops(config: EncoderConfig, length: float, written: float) -> dict[str, float]:
    """Returns the operations of a decoder for `written` tokens. Keys and values of the input are computed once per
    token."""
    layers, h, width = config.num_decoder_layers or 0, config.hidden_size, config.attention_size
    if not layers or not written:
        return {}
    return {
        "decoder projections": 2 * layers * h * width * (6 * written + 2),
        "decoder feed-forward": 2 * layers * (1 + _ups(config)) * h * config.intermediate_size * written,
        "decoder attention": 4 * layers * width * 2 * length * written,
    }
