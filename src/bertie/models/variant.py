"""`Variant`: a family as a value. models/codec.py reads and writes its config.json."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from bertie.console import console
from bertie.errors import DataError, MissingFile, UsageError, model_hint
from bertie.files import Json, read_json
from bertie.folders import check_folder_kind
from bertie.models.beside import check_adapter, check_own_adapters
from bertie.models.codec import ACTIVATIONS, CONFIG, QUANTIZATION, VALUES, Codec, same
from bertie.models.config import EncoderConfig
from bertie.models.heads import own_classes
from bertie.models.names import WeightTable
from bertie.models.packed import FORMATS

__all__ = ["ACTIVATIONS", "CONFIG", "VALUES", "Codec", "Variant", "read_labels", "read_public", "same", "write_labels"]

Stds = Mapping[str, float | tuple[float, ...]]
"""Initialization of weights, by name: nn/init.py."""
CONFIG_BYTES = 16 << 20  # more than any honest one; id2label of a million labels still fits
Tokenization = Literal["wordpiece", "bpe", "byte-bpe", "unigram", "characters"]
OF_2018 = frozenset(
    {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"}
    | {"max_position_embeddings", "type_vocab_size", "hidden_dropout_prob", "attention_probs_dropout_prob"}
)
"""Keys of config.json in BERT's release, which had no model_type (SciBERT, BioBERT)."""
OF_LABELS = ("id2label", "label2id", "num_labels", "_num_labels", "problem_type", "finetuning_task")
"""Keys of config.json about the outputs of a classifier; transformers makes heads of other kinds by them too."""
PROBLEM_TYPES = ("single_label_classification", "multi_label_classification", "regression")


class UnknownHeads(UsageError):
    """Heads that no public class of a family has."""

    def __init__(self, message: str, heads: tuple[str, ...]) -> None:
        super().__init__(message)
        self.heads = heads


def plain_encoder(config: EncoderConfig) -> object:
    """The encoder that most families have, `Encoder`. Families are read without torch, which it needs."""
    from bertie.models.encoder import Encoder

    return Encoder(config)


def no_stds(config: EncoderConfig) -> Stds:
    """Returns nothing: the initialization is that of BERT."""
    return {}


@dataclass(frozen=True, kw_only=True)
class Variant(Codec):
    """A family as a value."""

    about: str  # one line: what it changed in BERT
    source: str  # the paper
    tokenizer: Tokenization
    presets: Mapping[str, EncoderConfig]  # by published name
    table: WeightTable
    architectures: Mapping[str, tuple[str, ...]]  # the class that opens the folder elsewhere -> our heads
    recipe: Json  # the published pre-training run, as keys of PretrainConfig
    encoder: Callable[[Any], Any] = plain_encoder  # what makes the encoder from a config; others answer as Encoder does
    bare: tuple[str, ...] = ()  # classes with heads whose other names have no `table.base` before them all the same
    stds: Callable[[EncoderConfig], Stds] = no_stds  # first values unlike BERT's: nn.init.initialize
    label_count: str | None = None  # the key of config.json with the number of labels, besides their names
    copied: Mapping[str, str] = field(default_factory=dict)  # weights whose first values are those of others
    told_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Token ids in config.json that only other programs read: key -> roles of the tokenizer; the first found counts."""

    def heads(self, public: Json) -> tuple[str, ...] | None:
        """Returns the heads of the first architecture in config.json, or None for an unknown one."""
        names = public.get("architectures")
        first = names[0] if isinstance(names, list) and names else None
        if not isinstance(first, str):
            return None
        return self.architectures[first] if first in self.architectures else own_classes().get(first)

    def based(self, public: Json) -> bool:
        """Returns whether the names of the encoder's weights in config.json's class start with `table.base`."""
        names = public.get("architectures") or [""]
        return self.heads(public) != () and names[0] not in self.bare

    def needs_decoder(self, heads: Iterable[str]) -> bool:
        """Returns whether the public classes with these heads have a decoder."""
        known, asked_heads = [set(theirs) for theirs in self.architectures.values()], set(heads)
        return asked_heads not in known and asked_heads | {"decoder"} in known

    def architecture(self, heads: tuple[str, ...], public: Json) -> str:
        """Returns the public class with exactly these heads. Raises UnknownHeads when there is none."""
        if self.heads(public) == heads:
            return str(public["architectures"][0])
        for name, theirs in (*self.architectures.items(), *own_classes().items()):
            if sorted(theirs) == sorted(heads):
                return name
        known = "; ".join(f"{name} ({', '.join(theirs) or 'none'})" for name, theirs in self.architectures.items())
        raise UnknownHeads(
            f"No public {self.model_type} class has the head{'s' * (len(heads) > 1)} "
            f"{', '.join(sorted(heads))}{' together' * (len(heads) > 1)}. Its classes and their heads: "
            f"{known}.",
            heads,
        )


def read_public(folder: Path) -> dict[str, object]:
    """Reads a folder's config.json. Raises DataError for a missing, damaged or too large file, or one that requires
    code."""
    path = folder / CONFIG
    if not folder.is_dir():
        raise MissingFile(
            f"{folder} is not a folder. A model folder contains config.json and model.safetensors.{model_hint(folder)}"
        )
    check_adapter(folder)
    if not os.path.lexists(path):
        check_folder_kind(folder, "model")
        raise DataError(f"{folder} is not a model folder: it has no config.json. Pass the folder of a model or a run.")
    public = read_json(path, most=CONFIG_BYTES)
    if not isinstance(public, dict):
        raise DataError(f"{path} contains a {type(public).__name__}, not an object of keys and values.")
    check_own_adapters(public, str(path))
    if "auto_map" in public:
        raise DataError(f"{path} requires custom code (auto_map). Bertie never runs code from a model folder.")
    method = method_of(public)
    if method not in (None, *FORMATS):
        raise DataError(
            f"{path}: the weights are quantized with {str(method)[:80]!r}; only {' and '.join(FORMATS)} (bertie "
            "compress) are supported. Use the float model that they were made from."
        )
    if not isinstance(public.get("model_type"), str):
        if not _is_bert(public):
            raise DataError(f'{path} names no model_type. If it is a BERT, add "model_type": "bert".')
        _say_once(f"{path} names no model_type; by its keys it is a BERT, and is read as one.")
        return {**public, "model_type": "bert"}
    return public


def method_of(public: Mapping[str, object]) -> object:
    """Returns the format of quantized weights that config.json names; None: the weights are float."""
    quantization = public.get(QUANTIZATION)
    return quantization.get("quant_method") if isinstance(quantization, dict) else quantization


def _is_bert(public: Mapping[str, object]) -> bool:
    """Whether a config.json of 2019 has BERT's keys, two segments, and none of the keys of those that came after."""
    names = public.get("architectures") or ["Bert"]
    if not isinstance(names, list) or not all(str(name).startswith("Bert") for name in names):
        return False
    later = {"embedding_size", "attention_window", "relative_attention", "num_hidden_groups", "block_size"}
    return public.keys() >= OF_2018 and public["type_vocab_size"] == 2 and not later & public.keys()


@cache
def _say_once(message: str) -> None:
    console.warn(message)


def read_labels(public: Json, where: str) -> tuple[str, ...]:
    """Returns the label names of config.json in the order of the logits, or an empty tuple."""
    id2label = public.get("id2label")
    if id2label is None:
        return ()
    try:
        labels = tuple(id2label[str(i)] for i in range(len(id2label)))
    except (TypeError, KeyError, AttributeError):
        raise DataError(f"{where}: id2label does not map 0, 1, 2 ... to names.") from None
    if not all(isinstance(label, str) for label in labels) or len(set(labels)) != len(labels):
        raise DataError(f"{where}: the names in id2label are not distinct strings.")
    return labels


def write_labels(labels: tuple[str, ...], problem_type: str | None) -> dict[str, object]:
    """Returns label names as in config.json."""
    if not labels:
        return {}
    by_name: dict[str, object] = {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }
    return by_name | ({"problem_type": problem_type} if problem_type else {})
