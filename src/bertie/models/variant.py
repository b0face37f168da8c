"""`Variant`: a family as a value. models/codec.py reads and writes its config.json.

Files that change the answers of a model in other programs and are not read here are refused by name:

    adapter_config.json       an adapter of peft (LoRA and others), which `transformers` applies when it opens it
    config.json, "adapters"   an adapter of the library `adapters`
    generation_config.json    settings of generation, of a model that generates text

Custom code (auto_map) is refused with config.json, unknown modules of sentence-transformers with modules.json.
"""

import os
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from bertie.console import console
from bertie.errors import DataError, MissingFile, UsageError, model_hint
from bertie.files import Json, JsonObject, read_json
from bertie.folders import check_folder_kind
from bertie.models.codec import ACTIVATIONS, CONFIG, QUANTIZATION, VALUES, Codec, WeightTable, same
from bertie.models.config import EncoderConfig
from bertie.models.heads import own_classes
from bertie.models.int8 import FORMATS

ADAPTER, GENERATION = "adapter_config.json", "generation_config.json"
ADAPTERS = (ADAPTER, "adapter_model.safetensors", "adapter_model.bin", "pytorch_adapter.bin")
NEUTRAL: Mapping[str, tuple[object, ...]] = {  # settings that change a greedy answer -> the values that do not
    "num_beams": (1,),
    "num_beam_groups": (1,),
    "do_sample": (False,),
    "repetition_penalty": (1, 1.0),
    "encoder_repetition_penalty": (1, 1.0),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "bad_words_ids": ([],),
    "force_words_ids": ([],),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "sequence_bias": ({},),
    "exponential_decay_length_penalty": (),
    "guidance_scale": (1, 1.0),
}
_IDS = ("eos_token_id", "pad_token_id", "decoder_start_token_id")


def check_adapter(folder: Path) -> None:
    """Raises DataError for a folder with an adapter, alone or beside a model."""
    name = next((name for name in ADAPTERS if (folder / name).is_file()), "")
    if not name:
        return
    adapter = read_json(folder / ADAPTER) if (folder / ADAPTER).is_file() else {}
    base = adapter.get("base_model_name_or_path") if isinstance(adapter, dict) else None
    raise refused_adapter(str(folder), name, str(base or "")[:200], alone=not (folder / "config.json").is_file())


def base_of(folder: Path, find: Callable[[str], Path]) -> Path:
    """Returns the folder of the base that an adapter names. find: the folder of a model by its name.

    Raises DataError where it is not here.
    """
    public = read_json(folder / ADAPTER)
    base = str(public.get("base_model_name_or_path") or "") if isinstance(public, dict) else ""
    place = find(base) if base else Path()
    if not base or not (place / "config.json").is_file():
        raise DataError(
            f"{folder} is an adapter of {base or 'a model that it does not name'!r}, which is not here. Pass its base: "
            f"bertie convert BASE --adapter {folder} -o NEW."
        )
    return place


def refused_adapter(where: str, name: str, base: str = "", *, alone: bool) -> DataError:
    """Returns the error about an adapter. where: its folder or repository; name: its file; base: the model it is of."""
    of = f" of {base!r}" if base else ""
    why = f"{where} is an adapter{of} without its model" if alone else f"{where} has an adapter{of} beside the model"
    return DataError(
        f"{why} ({name}). Adapters are not read: the answers would be those of the model without it. Merge it into the "
        "model with peft, and use that folder: PeftModel.from_pretrained(model, "
        f"{where!r}).merge_and_unload().save_pretrained(NEW)."
    )


def check_no_adapter(repository: str, files: Container[str]) -> None:
    """Raises DataError for a repository with an adapter, alone or beside a model."""
    if adapter := next((name for name in ADAPTERS if name in files), ""):
        raise refused_adapter(repository, adapter, alone="config.json" not in files)


def check_own_adapters(public: Mapping[str, object], where: str) -> None:
    """Raises DataError for a config.json with adapters of the library `adapters`."""
    adapters = public.get("adapters")
    if isinstance(adapters, dict) and adapters.get("adapters"):
        raise DataError(
            f"{where} names adapters of the library adapters, which are not read. Merge one into the model there: "
            "model.merge_adapter(NAME), and save it without adapters."
        )


def check_generation(folder: Path, public: Mapping[str, object]) -> None:
    """Raises DataError where a folder's settings of generation would change the answers of a model. public: its
    config.json."""
    if not (folder / GENERATION).is_file():
        return
    settings = read_json(folder / GENERATION)
    if not isinstance(settings, dict):
        raise DataError(f"{folder / GENERATION} holds a {type(settings).__name__}; an object of settings was expected.")
    odd = [
        name for name, neutral in NEUTRAL.items() if settings.get(name) is not None and settings[name] not in neutral
    ]
    odd += [
        name for name in _IDS if None not in (settings.get(name), public.get(name)) and settings[name] != public[name]
    ]
    if odd:
        shown = ", ".join(f"{name}={str(settings[name])[:40]}" for name in odd[:5])
        raise DataError(
            f"{folder / GENERATION} sets {shown}, which is not read. Remove the file, and pass what you need as "
            "options of bertie write, such as --beams 4."
        )


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
    random_rate: float | None = None  # the learning rate of tasks from random weights; None: it is pre-trained first
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


def read_public(folder: Path) -> JsonObject:
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
