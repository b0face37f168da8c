"""Peak memory of prediction by length and batch: in float32 on a CPU, with one thread, of the whole process.

    runtime + weights + what is held twice while the model is opened
    runtime + weights + what one pass over some texts holds                the larger of the two

Prediction computes texts in passes of a bounded number of tokens, so more texts take more memory only up to there. What
a pass holds is what its widest layer has at once: states of the layer before, queries, keys, values and their products
(_STATES times the hidden size), the inner states of the feed-forward network, and the scores of attention where torch
has no kernel without them. The library of the native engine goes through all layers with about 512 tokens. The
constants are fitted to benchmarks/results/memory.jsonl. Imports no torch.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from bertie import EncoderConfig
from bertie.platform import UsageError

_Config: TypeAlias = Mapping[str, Any]  # the settings of an encoder, by their public names
_RUNTIME = {"torch": 272e6, "native": 66e6}  # Python, libraries and tokenizer; with a torch for CPUs
_WORK = 18e6  # of kernels, at the first pass
_TOKENS = {"torch": 4_096, "native": 16_384}  # of a pass, padding included; one text may be longer
_CHUNK = 512  # tokens that the native library takes through the layers at once, or one text that is longer
_STATES, _AGAIN = 13, 5  # hidden sizes a token; more after other passes, whose memory lies between
_SCORES = {"learned_relative": 0, "disentangled": 4}  # arrays of all scores, by the kind of positions
_WINDOW = 7  # scores a token and head, of each token in the window
_READ_BY_LIBRARY = {"learned", "rotary"}  # positions
_OF_FOLDER = ("full", "learned", "post")  # attention, positions and norm of models that are opened without torch


def memory_at_use(config: _Config, parameters: int, length: int, batch: int) -> dict[str, float]:
    """Returns the peak memory of a process that predicts, in bytes, by engine; none for a kind that was not measured.

    Args:
        config: The settings of the encoder, by their public names.
        parameters: Number of weights.
        length: Tokens of a text.
        batch: Number of texts in one call.
    """
    kinds = (config["attention"], config["positions"], config.get("norm"))
    measured = kinds[0] in ("full", "alternating") and kinds[1] in {*_READ_BY_LIBRARY, *_SCORES}
    if not measured or config["layer"] != "residual" or config["causal"] or config["num_decoder_layers"]:
        return {}
    weights = 4.0 * parameters
    sizes = {"torch": _RUNTIME["torch"] + weights + max(weights, _pass_of_torch(config, length, batch))}
    arena = _arena(config, length, batch)
    if kinds == _OF_FOLDER:  # the weights as they are read, and as the library reads them
        sizes["native"] = _RUNTIME["native"] + weights + max(1.05 * weights, arena)
    elif kinds[1] in _READ_BY_LIBRARY:
        sizes["native"] = _RUNTIME["torch"] + 2 * weights + arena
    return sizes


def known_memory_at_use(config: EncoderConfig, parameters: int, length: int, batch: int) -> dict[str, float]:
    """Returns the same. Raises UsageError for a kind that was not measured, or more tokens than a text can have."""
    if length > config.max_length:
        raise UsageError(f"length is {length:,}; a text of this model has at most {config.max_length:,} tokens.")
    if not (sizes := memory_at_use(config.flat(), parameters, length, batch)):
        raise UsageError("The memory of prediction was not measured for this kind of model. Omit batch.")
    return sizes


def _pass_of_torch(config: _Config, length: int, batch: int) -> float:
    texts = min(batch, max(1, _TOKENS["torch"] // length))
    states = _STATES + _AGAIN * (batch > texts)
    inner = (4 if "glu" in config["hidden_act"] else 2) * config["intermediate_size"]
    scores = _SCORES.get(config["positions"], 0) * length
    if config["attention"] == "alternating" and length > 2 * config["local_attention"]:
        scores = _WINDOW * config["local_attention"]
    numbers: int = states * config["hidden_size"] + inner + scores * config["num_attention_heads"]
    return _WORK + 4.0 * texts * length * numbers


def _arena(config: _Config, length: int, batch: int) -> float:
    tokens = min(max(_CHUNK, length), length * min(batch, max(1, _TOKENS["native"] // length)))
    numbers: int = 6 * config["hidden_size"]
    return _WORK + 4.0 * tokens * numbers
