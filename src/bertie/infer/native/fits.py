"""Which encoders the native library has layers for, and what it reads and gives for one. Imports no torch."""

from collections.abc import Sequence

import numpy as np

from bertie.infer.native.encoder import NATIVE_ACTIVATIONS, Keep
from bertie.models.config import EncoderConfig
from bertie.models.head_config import LabelConfig
from bertie.models.kinds import Alternating, Full, Learned, Residual, Rotary
from bertie.text.sequences import Int, Sequences

WIDEST_HEAD = 128
MOST_TURNS = 1 << 17  # rotary positions, each with a row of a table
NATIVE_BATCH_TOKENS = 16_384  # many calls of CHUNK tokens at once, so that no thread waits long for the last one


def misfit(config: EncoderConfig) -> str | None:
    """Returns why the native library cannot run an encoder of this shape, or None where it can."""
    width = config.embedding_size or config.hidden_size
    rotary = isinstance(config.positions, Rotary)
    widths = (config.hidden_size, width, config.intermediate_size, config.head_size)
    rules = {
        f"its attention is {config.attention.kind}": isinstance(config.attention, Full | Alternating),
        "its attention is causal": not config.causal,
        "it reads feature vectors too": config.feature_size is None,
        f"its positions are {config.positions.kind}": isinstance(config.positions, Learned | Rotary),
        f"it has more than {MOST_TURNS:,} rotary positions": not rotary or config.max_position_embeddings <= MOST_TURNS,
        f"its layers are {config.layer.kind}": isinstance(config.layer, Residual),
        "its first layer has a convolution": not config.get("conv_kernel_size", 0),
        "its attention scores are not scaled": isinstance(config.layer, Residual) and config.layer.scale_attention,
        f"its activation is {config.hidden_act}": config.hidden_act in NATIVE_ACTIVATIONS,
        "it does not use layer normalization": config.norm_type in ("layer", "unbiased") and config.embedding_norm,
        "its embeddings differ from BERT's": not (config.trigram_embeddings or config.rescale_embeddings),
        "a size is not a multiple of 16": not any(size % 16 for size in widths),
        "its rotary heads are not a multiple of 32 wide": not (rotary and config.head_size % 32),
        f"its attention heads are wider than {WIDEST_HEAD}": config.head_size <= WIDEST_HEAD,
        "its embeddings differ in size from its layers": width <= config.hidden_size,
        "it has no layers": config.num_hidden_layers > 0,
        "it is an encoder-decoder model": config.num_decoder_layers is None,
    }
    return next((reason for reason, fine in rules.items() if not fine), None)


def rows_read(config: EncoderConfig, outputs: Sequence[str]) -> Keep:
    """Returns the rows that outputs are computed of: means, first tokens, or all."""
    if set(outputs) == {"mean"}:
        return "means"
    of_first = {"cls", "pooler_output", *(("sequence", "pair") if config.heads.label == LabelConfig() else ())}
    return "firsts" if of_first.issuperset(outputs) else "tokens"


def positions_of(config: EncoderConfig, ids: Sequences) -> Int:
    """Returns each token's position. -> (T,)"""
    if not config.position_offset:
        return np.arange(len(ids.input_ids)) - np.repeat(ids.starts[:-1], ids.lengths)
    real = ids.input_ids != config.pad_token_id
    count = np.cumsum(real)
    before = np.repeat(np.concatenate([[0], count])[ids.starts[:-1]], ids.lengths)
    positions: Int = (count - before) * real + config.pad_token_id
    return positions
