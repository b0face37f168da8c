"""A model folder in the native engine, without torch: the few seconds that importing torch takes are saved.

    config.json -> EncoderConfig -> public names of the weights -> NativeEncoder; the head in NumPy

What is not read here is left to torch, which opens every folder and says what is wrong: `open_native_engine` then gives
None. T tokens · B sequences · N positions · H hidden size · L outputs · V vocabulary
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import erf
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from bertie.errors import BertieError, TextTooLong
from bertie.files import check_readable
from bertie.infer.engine import Array, Facts
from bertie.infer.native.encoder import (
    EncoderWeights,
    FloatLinear,
    Int8Linear,
    LayerWeights,
    NativeEncoder,
    NativeLinear,
    NativePrecision,
)
from bertie.infer.native.fits import NATIVE_BATCH_TOKENS, misfit, positions_of, rows_read
from bertie.infer.native.library import thread_count
from bertie.models.codec import CONFIG, WeightTable, model_type
from bertie.models.config import EncoderConfig
from bertie.models.facts import POOLED, parse_layer_output
from bertie.models.head_config import LabelConfig
from bertie.models.int8 import Floats, Int8Weight, PackedWeight, find_weight_format, fused
from bertie.models.kinds import Full, Groups, Learned
from bertie.models.sentence import SentenceModules, read_sentence
from bertie.models.variant import PROBLEM_TYPES, Variant, plain_encoder, read_labels, read_public
from bertie.registry import Registry
from bertie.text.sequences import Sequences
from bertie.training_facts import TrainingFacts, read_training_facts

_WEIGHTS = "model.safetensors"
_VectorFunction = Callable[[Array], Array]


class NotHere(Exception):
    """The folder has something that only torch reads."""


@dataclass
class Stored:
    """The arrays of a folder by today's public names, read when they are asked for; shapes are checked."""

    file: Any
    table: WeightTable
    names: Mapping[str, str]
    read: set[str] = field(default_factory=set)

    def array(self, public: str, *shape: int | None) -> Floats:
        """A weight in float32. shape: what it must have; None: anything."""
        if find_weight_format(public, self.names):
            values: NDArray[Any] = self.packed(public).dequantized()
        else:
            values = self._raw(public)
            values = values.T if self.table.turned(public) else values
        if values.dtype.kind != "f" or len(values.shape) != len(shape):
            raise NotHere(public)
        if any(expected not in (None, size) for expected, size in zip(shape, values.shape, strict=True)):
            raise NotHere(public)
        values = np.ascontiguousarray(values, np.float32)
        if not np.isfinite(values).all():
            raise NotHere(public)
        return values

    def packed(self, public: str) -> PackedWeight:
        """A weight in few bits a number."""
        kind = find_weight_format(public, self.names)
        if kind is None:
            raise NotHere(public)
        try:
            return kind.of(self._raw(public), {part: self._raw(f"{public}_{part}") for part in kind.PARTS})
        except ValueError:
            raise NotHere(public) from None

    def linear(self, name: str, outputs: int, inputs: int) -> NativeLinear:
        """Our name of a matrix with its bias -> both, fused where they are fused here."""
        publics, biases = self.table.public(f"{name}.weight"), self.table.public(f"{name}.bias")
        rows = outputs // len(publics)
        absent = [bias not in self.names for bias in biases]
        if any(absent) and not all(absent):
            raise NotHere(name)
        parts = [np.zeros(rows, np.float32) if absent[0] else self.array(bias, rows) for bias in biases]
        bias = np.concatenate(parts)
        if all(find_weight_format(public, self.names) is Int8Weight for public in publics):
            try:
                weight = fused([self.packed(public) for public in publics])
            except ValueError:
                raise NotHere(name) from None
            assert isinstance(weight, Int8Weight)
            if weight.values.shape != (outputs, inputs):
                raise NotHere(name)
            return Int8Linear(weight, bias)
        return FloatLinear(np.concatenate([self.array(public, rows, inputs) for public in publics]), bias)

    def one(self, name: str, *shape: int | None) -> Floats:
        """A weight by our name."""
        (public,) = self.table.public(name)
        return self.array(public, *shape)

    def __contains__(self, name: str) -> bool:
        return all(public in self.names for public in self.table.public(name))

    def _raw(self, public: str) -> NDArray[np.generic]:
        if public not in self.names:
            raise NotHere(public)
        if self.file.get_slice(self.names[public]).get_dtype() == "BF16":  # which numpy does not have
            raise NotHere(public)
        self.read.add(public)
        values: NDArray[np.generic] = self.file.get_tensor(self.names[public])
        return values


@dataclass(frozen=True)
class NativeHead:
    """What is computed from the hidden states: rows of `outputs` each."""

    rows: str
    outputs: int
    run: _VectorFunction


@dataclass
class FolderEngine:
    """An engine of arrays alone. The protocol is `Engine`'s."""

    name: ClassVar = "native"

    config: EncoderConfig
    native: NativeEncoder
    pooler: _VectorFunction | None
    heads: Mapping[str, NativeHead]
    labels: tuple[str, ...]
    problem_type: str | None
    sentence: SentenceModules = field(default_factory=SentenceModules)
    training_facts: TrainingFacts = field(default_factory=TrainingFacts)
    threads: int = field(default_factory=thread_count)

    def with_threads(self, threads: int) -> Self:
        """Returns the engine with another number of threads. It shares the weights."""
        return replace(self, threads=threads)

    @property
    def facts(self) -> Facts:
        """The facts of the folder and of the engine."""
        return Facts(
            self.config.max_length,
            self.config.hidden_size,
            {name: head.outputs for name, head in self.heads.items()},
            self.labels,
            self.problem_type,
            "cpu",
            f"{self.native.precision} ({self.native.target})",
            {name: head.rows for name, head in self.heads.items()},  # type: ignore[misc]
            batch_tokens=NATIVE_BATCH_TOKENS,
            sentence=self.sentence,
            training_facts=self.training_facts,
            layers=self.config.num_hidden_layers,
        )

    def run(self, ids: Sequences, outputs: Sequence[str]) -> Mapping[str, Array]:
        """The arrays of one batch, as `Engine.run` has them."""
        longest, most = int(ids.lengths.max(initial=0)), self.config.max_length
        if longest > most:
            raise TextTooLong(f"A sequence of {longest:,} tokens is longer than the model's {most:,} positions.")
        segments = ids.token_type_ids if self.config.type_vocab_size > 1 else None
        inputs = ids.input_ids, segments, positions_of(self.config, ids), ids.lengths
        layers = {name: parse_layer_output(name) for name in outputs}
        arrays = {
            name: self.native.run(*inputs, threads=self.threads, layers=n)
            for name, n in layers.items()
            if n is not None
        }
        if others := [name for name, n in layers.items() if n is None]:
            keep = rows_read(self.config, others)
            hidden = self.native.run(*inputs, threads=self.threads, keep=keep)
            if keep == "means":
                return {**arrays, "mean": hidden}
            first = hidden if keep == "firsts" else hidden[ids.starts[:-1]]
            arrays |= {name: self._array(name, hidden, first, ids) for name in others}
        return arrays

    def _array(self, name: str, hidden: Array, first: Array, ids: Sequences) -> Array:
        if name == "last_hidden_state":
            return hidden
        if name in ("cls", "last"):
            return first if name == "cls" else hidden[ids.starts[1:] - 1]
        if name in POOLED:
            if name == "max":
                return np.asarray(np.maximum.reduceat(hidden, ids.starts[:-1]), np.float32)
            position = np.arange(len(hidden)) - np.repeat(ids.starts[:-1], ids.lengths) + 1
            weighted = hidden * position[:, None] if name == "weighted_mean" else hidden
            whole = ids.lengths * (ids.lengths + 1) / 2 if name == "weighted_mean" else ids.lengths
            divisor = np.sqrt(whole) if name == "mean_sqrt_len" else whole
            return np.asarray(np.add.reduceat(weighted, ids.starts[:-1]) / divisor[:, None], np.float32)
        if name == "pooler_output":
            assert self.pooler is not None, "the model has no pooler"
            return self.pooler(first)
        head = self.heads[name]
        if head.rows == "position":
            return head.run(hidden[ids.positions])
        return head.run(hidden if head.rows == "token" else first)


def open_native_engine(folder: Path, precision: NativePrecision, variants: Registry[Variant]) -> FolderEngine | None:
    """The engine of a model folder of one of the families; None where torch is needed. precision: of weights that are
    not int8."""
    with suppress(NotHere, BertieError, SafetensorError, OSError, ValueError, KeyError):
        return _opened(folder, precision, variants)
    return None


def _opened(folder: Path, precision: NativePrecision, variants: Registry[Variant]) -> FolderEngine:
    public = read_public(folder)
    variant, where = variants[model_type(public)], str(folder / CONFIG)
    config = variant.config(public, where)
    names = variant.heads(public)
    other_labels = config.heads.label != LabelConfig()
    kinds = (config.attention, type(config.positions), config.layer.norm)
    like_bert = kinds == (Full(), Learned, "post") and config.hidden_act in ACTIVATIONS
    if names is None or variant.encoder is not plain_encoder or misfit(config) or not like_bert or other_labels:
        raise NotHere(str(folder))
    check_readable(folder / _WEIGHTS)
    with safe_open(str(folder / _WEIGHTS), framework="numpy") as file:
        stored_names = {today: name for name in file.keys() if (today := variant.table.today(name)) is not None}  # noqa: SIM118
        stored = Stored(file, variant.table, stored_names)
        if "mlm" in names and "heads.mlm.weight" in variant.table and "heads.mlm.weight" in stored:
            raise NotHere("mlm")  # a copy of the word embeddings, or a matrix of its own
        weights = _encoder(config, stored)
        whole = any(isinstance(layer.qkv, Int8Linear) for layer in weights.layers)
        pooler = _dense(stored, "encoder.pooler", config, np.tanh) if "encoder.pooler.weight" in stored else None
        heads = {name: _HEADS[name](config, stored, pooler, weights) if name in _HEADS else _no(name) for name in names}
        if any(
            name.startswith(variant.table.base) and "pooler" not in name for name in stored_names.keys() - stored.read
        ):
            raise NotHere(where)  # more layers than config.json says, or another encoder: torch refuses it, or warns
    labels, kind = read_labels(public, where), public.get("problem_type")
    labelled = [head.outputs for name, head in heads.items() if name in ("sequence", "token")]
    if kind not in (None, *PROBLEM_TYPES) or (labels and any(count != len(labels) for count in labelled)):
        raise NotHere(where)
    native = NativeEncoder(weights, "int8" if whole else precision)
    sentence, facts = read_sentence(folder, public), read_training_facts(folder)
    return FolderEngine(config, native, pooler, heads, labels, kind, sentence, facts)


def _no(name: str) -> NativeHead:
    raise NotHere(name)


def _encoder(config: EncoderConfig, stored: Stored) -> EncoderWeights:
    width, size, inner = config.embedding_size or config.hidden_size, config.hidden_size, config.intermediate_size
    rounds, sharing = config.num_hidden_layers, config.sharing
    layer_names = [str(i) for i in range(rounds)]
    if isinstance(sharing, Groups):
        groups = [i * sharing.num_hidden_groups // rounds for i in range(rounds)]
        layer_names = [f"{group}.{i}" for group in groups for i in range(sharing.inner_group_num)]

    def norm(name: str, features: int) -> tuple[Floats, Floats]:
        return stored.one(f"{name}.weight", features), stored.one(f"{name}.bias", features)

    def layer(name: str) -> LayerWeights:
        at = f"encoder.layers.{name}"
        return LayerWeights(
            stored.linear(f"{at}.attention.qkv", 3 * config.attention_size, size),
            stored.linear(f"{at}.attention.output", size, config.attention_size),
            stored.linear(f"{at}.up", inner, size),
            stored.linear(f"{at}.down", size, inner),
            norm(f"{at}.attention_norm", size),
            norm(f"{at}.output_norm", size),
        )

    layers = {name: layer(name) for name in dict.fromkeys(layer_names)}
    at, types = "encoder.embeddings", config.type_vocab_size
    projected = width != size or config.project_embeddings
    return EncoderWeights(
        word=stored.one(f"{at}.word.weight", config.vocab_size, width),
        position=stored.one(f"{at}.position.weight", config.max_position_embeddings, width),
        segment=stored.one(f"{at}.segment.weight", types, width) if types else None,
        norm=norm(f"{at}.norm", width),
        projection=stored.linear(f"{at}.projection", size, width) if projected else None,
        layers=[layers[name] for name in layer_names],
        num_heads=config.num_attention_heads,
        activation=config.hidden_act,
        eps=config.layer_norm_eps,
    )


# Heads in NumPy -----------------------------------------------------------------------------------------------------


def _gelu(x: Array) -> Array:
    values: Array = x * (0.5 + 0.5 * np.vectorize(erf, otypes=[np.float32])(x / np.float32(2) ** 0.5))
    return values.astype(np.float32)


def _gelu_tanh(x: Array) -> Array:
    values: Array = 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))
    return values


ACTIVATIONS: Mapping[str, _VectorFunction] = {
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


def _matrix(stored: Stored, name: str, inputs: int) -> tuple[_VectorFunction, int]:
    """A matrix with its bias, by our name, and how many outputs it has."""
    weight = stored.one(f"{name}.weight", None, inputs)
    bias = stored.one(f"{name}.bias", len(weight))
    return lambda x: x @ weight.T + bias, len(weight)


def _dense(stored: Stored, name: str, config: EncoderConfig, activation: _VectorFunction) -> _VectorFunction:
    matrix, _ = _matrix(stored, name, config.hidden_size)
    return lambda x: activation(matrix(x))


def _on_sequence(
    config: EncoderConfig, stored: Stored, pooler: _VectorFunction | None, weights: EncoderWeights
) -> NativeHead:
    own = config.heads.sequence
    if own.sequence_matrix_only:
        raise NotHere("sequence")
    if own.sequence_act is None:
        return _pooled("sequence", config, stored, pooler)
    act = config.hidden_act if own.sequence_act == "hidden_act" else own.sequence_act
    return _pooled("sequence", config, stored, _dense(stored, "heads.sequence.dense", config, ACTIVATIONS[act]))


def _pooled(name: str, config: EncoderConfig, stored: Stored, dense: _VectorFunction | None) -> NativeHead:
    if dense is None or not config.pooler_dense:
        raise NotHere(name)
    classifier, outputs = _matrix(stored, f"heads.{name}.classifier", config.hidden_size)
    return NativeHead("sequence", outputs, lambda first: classifier(dense(first)))


def _on_tokens(
    config: EncoderConfig, stored: Stored, pooler: _VectorFunction | None, weights: EncoderWeights
) -> NativeHead:
    classifier, outputs = _matrix(stored, "heads.token.classifier", config.hidden_size)
    return NativeHead("token", outputs, classifier)


def _on_spans(
    config: EncoderConfig, stored: Stored, pooler: _VectorFunction | None, weights: EncoderWeights
) -> NativeHead:
    classifier, outputs = _matrix(stored, "heads.span.classifier", config.hidden_size)
    if config.heads.span.span_layer or outputs != 2:
        raise NotHere("span")
    return NativeHead("token", outputs, classifier)


def _on_masks(
    config: EncoderConfig, stored: Stored, pooler: _VectorFunction | None, weights: EncoderWeights
) -> NativeHead:
    own = config.heads.mlm
    if own.mlm_widened or not own.mlm_tied:
        raise NotHere("mlm")
    dense = _dense(stored, "heads.mlm.dense", config, ACTIVATIONS[own.mlm_act or config.hidden_act])
    width = weights.word.shape[1]
    scale, shift = (stored.one(f"heads.mlm.norm.{part}", width) for part in ("weight", "bias"))
    bias = stored.one("heads.mlm.bias", len(weights.word))

    def run(hidden: Array) -> Array:
        x = dense(hidden)
        x = x - x.mean(1, keepdims=True)
        x = x / np.sqrt((x * x).mean(1, keepdims=True) + config.layer_norm_eps) * scale + shift
        logits: Array = x @ weights.word.T + bias
        return logits

    return NativeHead("position", len(weights.word), run)


_HEADS = {
    "sequence": _on_sequence,
    "pair": lambda config, stored, pooler, _: _pooled("pair", config, stored, pooler),
    "token": _on_tokens,
    "span": _on_spans,
    "mlm": _on_masks,
}
"""Heads that are computed here; the others are torch's."""
