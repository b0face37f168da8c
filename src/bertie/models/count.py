"""What a config costs, counted without building it: parameters by part, bytes, operations. Imports no torch.

An encoder of another kind (xlnet.py, elmo.py) registers what its own class of config costs.

L layers · h hidden size · s tokens a sequence · p share of positions with a prediction · V vocabulary
"""

from functools import singledispatch

from bertie.models.config import EncoderConfig

GATED = ("geglu", "reglu", "swiglu")
NORM = {"layer": 2, "rms": 1, "affine": 2}  # parameters a feature


@singledispatch
def parameters(config: EncoderConfig) -> dict[str, int]:
    """Parameters of the encoder by part; those of shared layers count once."""
    h = config.hidden_size
    e = config.embedding_size or h
    summed = h if config.trigram_embeddings else e
    layers = config.num_hidden_layers
    if config.num_hidden_groups is not None:
        layers = config.num_hidden_groups * config.inner_group_num
    projected = e != h or config.project_embeddings or config.trigram_embeddings
    read = 3 * e if config.trigram_embeddings else e
    return {
        "word embeddings": config.vocab_size * e,
        **(
            {"position embeddings": config.max_position_embeddings * summed}
            if config.positions == "learned"
            else {"relative positions": config.relative_attention_num_buckets * config.num_attention_heads}
        ),
        "segment embeddings": config.type_vocab_size * summed,
        "embedding norm": NORM[config.norm_type] * summed * config.embedding_norm,
        **({"embedding projection": _linear(read, h)} if projected else {}),
        "layers": layers * _layer(config),
        **({"final norm": NORM[config.norm_type] * h} if config.norm == "pre" else {}),
        **({"pooler": _linear(h, h)} if config.pooler and config.pooler_dense else {}),
    }


def decoder_parameters(config: EncoderConfig) -> dict[str, int]:
    """Parameters of an encoder-decoder's other half by part, its own output matrix included; none of other models."""
    if config.num_decoder_layers is None:
        return {}
    h, width = config.hidden_size, config.attention_size
    bias = config.bias
    cross = 3 * _linear(h, width, bias and config.attention_bias) + _linear(width, h, bias) + NORM[config.norm_type] * h
    return {
        "decoder relative positions": config.relative_attention_num_buckets * config.num_attention_heads,
        "decoder layers": config.num_decoder_layers * (_layer(config) + cross),
        "decoder final norm": NORM[config.norm_type] * h,
        **({} if config.lm_tied else {"next-token head": config.vocab_size * h}),
    }


def _linear(inputs: int, outputs: int, bias: bool = True) -> int:
    return inputs * outputs + outputs * bias


def _layer(config: EncoderConfig) -> int:
    h, i, b = config.hidden_size, config.intermediate_size, config.bottleneck_size
    if b is None:
        bias, width = config.bias, config.attention_size
        attention = 3 * _linear(h, width, bias and config.attention_bias) + _linear(width, h, bias)
        of_global = 0 if config.attention_window is None else 3 * _linear(h, h)
        feed_forward = _ups(config) * _linear(h, i, bias) + _linear(i, h, bias)
        return attention + of_global + feed_forward + 2 * NORM[config.norm_type] * h
    value = b if config.bottleneck_attention else h
    narrow = 2 * (_linear(h, b) + 2 * b)
    attention = 3 * _linear(b, b) + _linear(value, b) + 2 * b
    feed_forward = config.num_feedforward_networks * (_linear(b, i) + _linear(i, b) + 2 * b)
    return narrow + attention + feed_forward + _linear(b, h) + 2 * h


def _ups(config: EncoderConfig) -> int:
    """Matrices upwards in the feed-forward network: a gate is one more."""
    return 2 if config.hidden_act in GATED else 1


@singledispatch
def forward_flops(config: EncoderConfig, *, length: float, predicted: float = 0.0) -> dict[str, float]:
    """Floating-point operations of a forward pass per real token, by part; training is three times as many.

    length: tokens a sequence, averaged over tokens; predicted: share of positions the vocabulary head runs at. With
    i = 4 h it is 24 L h^2 + 4 L h s + p (2 h^2 + 2 h V). Global tokens of windowed models are left out. A decoder
    writes `predicted` tokens for each that the encoder reads, and attends to `length` of both kinds.
    """
    h, rounds = config.hidden_size, config.num_hidden_layers * config.inner_group_num
    e, b = config.embedding_size or h, config.bottleneck_size
    width = config.attention_size
    projections = 4 * h * width
    if b is not None and config.bottleneck_attention:
        projections = h * b + 4 * b * b + b * h
    elif b is not None:
        projections = 2 * h * b + 3 * b * b + h * b + b * h
    inside, networks = b or h, config.num_feedforward_networks
    decoded = h if config.mlm_widened else e
    head = {"masked-LM head": predicted * (2 * h * decoded + 2 * decoded * config.vocab_size)}
    if not config.lm_transform:
        head = {"next-token head": predicted * 2 * h * config.vocab_size}
    return {
        "projections": 2 * rounds * projections,
        "feed-forward": 2 * rounds * (1 + _ups(config)) * inside * config.intermediate_size * networks,
        "attention": 4 * width * config.inner_group_num * _tokens_seen(config, length),
        **_decoder_flops(config, length, predicted),
        **head,
    }


def _decoder_flops(config: EncoderConfig, length: float, written: float) -> dict[str, float]:
    """A decoder's, for `written` tokens; the keys and values of what was read are made once a token read."""
    layers, h, width = config.num_decoder_layers or 0, config.hidden_size, config.attention_size
    if not layers:
        return {}
    return {
        "decoder projections": 2 * layers * h * width * (6 * written + 2),
        "decoder feed-forward": 2 * layers * (1 + _ups(config)) * h * config.intermediate_size * written,
        "decoder attention": 4 * layers * width * 2 * length * written,
    }


def _tokens_seen(config: EncoderConfig, length: float) -> float:
    """How many tokens a token attends to, summed over the layers."""
    layers = range(config.num_hidden_layers)
    if config.attention_window is not None:
        return sum(min(length, 2 * config.window(i)[0] + 1) for i in layers)
    blocks = 5 + config.num_random_blocks
    if config.attention_type == "block_sparse" and length > (blocks + config.num_random_blocks) * config.block_size:
        length = blocks * config.block_size
    return len(layers) * length
