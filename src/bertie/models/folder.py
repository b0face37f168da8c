"""Model folders in the public layout: config.json, model.safetensors, tokenizer files, README.md (the model card)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import torch
import xxhash
from torch import nn

from bertie.errors import DataError, UsageError
from bertie.files import file_hash, write_bytes, write_json
from bertie.folders import ANYTHING, Kind
from bertie.models.config import EncoderConfig
from bertie.models.heads import HEADS, LABELLED, VOCABULARY
from bertie.models.kinds import Unshared
from bertie.models.model import Model
from bertie.models.variant import CONFIG, PROBLEM_TYPES, Variant, read_labels, read_public, write_labels
from bertie.models.weights import INDEX, WEIGHTS, LoadReport, WeightsFolder, load_weights, save_weights, weight_files
from bertie.nn.init import initialize
from bertie.text.vocabulary import TOKENIZER_FOLDER

Heads = Mapping[str, nn.Module] | Callable[[EncoderConfig], Mapping[str, nn.Module]] | None
"""Heads by name, or what makes them from a config (an objective's or task's `heads`)."""

MODEL_FOLDER = Kind(
    "model",
    begins=(WEIGHTS, INDEX),
    files=(
        *(CONFIG, WEIGHTS, INDEX, "model-*.safetensors", "README.md"),
        *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "score.json"),
        *TOKENIZER_FOLDER.files,
    ),
    folders={"1_Pooling": Kind("pooling", ("",), ("config.json",)), "2_Normalize": ANYTHING, "onnx": ANYTHING},
)

POOLER = "encoder.pooler.weight"
WORD = "encoder.embeddings.word.weight"
OWN_DECODER = "heads.lm.weight"
MAY_BE_FRESH = r"heads\.|encoder\.pooler\."  # all else must be in the file


class SavesTokenizer(Protocol):
    """What a folder needs of a tokenizer."""

    @property
    def vocab_size(self) -> int:
        """Entries of the vocabulary."""
        ...

    def save(self, folder: Path, *, segments: int | None = None) -> None:
        """Write the tokenizer's files beside a model of so many segments."""
        ...


def build(variant: Variant, config: EncoderConfig, *, heads: Heads = None, seed: int = 0) -> Model:
    """A model with random weights: the same seed gives the same encoder, whatever its heads."""
    modules = _make(variant, heads, config)
    config = config.replace(pooler=config.pooler or _read_pooler(modules))
    model = Model(variant.encoder(config), modules, variant=variant)
    _initialize(model, variant, seed)
    return model


def load(
    variant: Variant, folder: Path, *, heads: Heads = None, seed: int = 0, fresh_heads: bool = False
) -> tuple[Model, LoadReport]:
    """The model in a folder, in evaluation mode, and what of it was loaded, starts fresh (by `seed`), was not used.

    heads None: those the folder's own class has. fresh_heads: the heads start fresh, whatever is stored (the classifier
    of another task has the same name); a decoder, which is half of a model, does not. Only heads and the pooler may be
    fresh. Raises DataError: files missing or damaged, or config.json and the weights not of one model; nothing is
    allocated before that is known.
    """
    public, where = read_public(folder), str(folder / CONFIG)
    config = variant.config(public, where)
    with WeightsFolder(folder, variant.table) as weights:
        config = _agree(variant, config, weights, where)
        labels = read_labels(public, where)
        with torch.device("meta"):
            heads_or_own = _own_heads(variant, public, weights, labels, where) if heads is None else heads
            modules = _make(variant, heads_or_own, config)
            config = config.replace(pooler=_read_pooler(modules) or _stored(variant, POOLER, weights))
            model = Model(variant.encoder(config), modules, variant=variant, public=public)
        fill = partial(_initialize, model, variant, seed)
        dropped = _without_heads(model, variant, weights) if fresh_heads else []
        report = load_weights(model, weights, may_be_fresh=MAY_BE_FRESH, fill=fill)
    if heads is None:
        model.labels = labels
        model.problem_type = _problem_type(public, where)
    return model.eval(), replace(report, dropped=tuple(dropped))


def _without_heads(model: Model, variant: Variant, weights: WeightsFolder) -> list[str]:
    """Take the weights of the model's heads out of those that are stored; their names."""
    names = [f"heads.{name}" for name, _ in model.heads.named_parameters() if not name.startswith("decoder.")]
    found = {public for name in names for public in variant.table.public(name) if public in weights}
    for public in found:
        del weights.stored[public]
    return sorted(found)


def fingerprint(folder: Path) -> str:
    """Changes with any byte of a folder's weights or config. Raises DataError where there are none."""
    read_public(folder)
    return xxhash.xxh3_128_hexdigest(" ".join(map(file_hash, [folder / CONFIG, *weight_files(folder)])).encode())


def _initialize(model: Model, variant: Variant, seed: int, only: set[str] | None = None) -> None:
    config = model.config
    initialize(model, std=config.initializer_range, stds=variant.stds(config), seed=seed, only=only)


def _make(variant: Variant, heads: Heads, config: EncoderConfig) -> Mapping[str, nn.Module]:
    made = heads(config) if callable(heads) else heads or {}
    return {"decoder": HEADS["decoder"](config, 0), **made} if variant.needs_decoder(made) else made


def _read_pooler(heads: Mapping[str, nn.Module]) -> bool:
    return any(getattr(head, "reads_pooler", False) for head in heads.values())


def _public(variant: Variant, name: str) -> str:
    return variant.table.public(name)[0]


def _stored(variant: Variant, name: str, weights: WeightsFolder) -> bool:
    return name in variant.table and _public(variant, name) in weights


def _agree(variant: Variant, config: EncoderConfig, weights: WeightsFolder, where: str) -> EncoderConfig:
    """Compare the sizes config.json gives with those of the weights before a module of such sizes is made."""
    base = variant.table.base
    if weights.stored and not any(name.startswith(base) for name in weights.stored):
        raise DataError(
            f"{where}: model_type is {variant.model_type!r}, whose weights are named {base}*; the folder's are named "
            f"otherwise ({min(weights.stored)}). Is model_type that of another model?"
        )
    if isinstance(config.sharing, Unshared):
        _agree_on(config, "num_hidden_layers", _count(variant, "encoder.layers.{}.down.weight", weights), where)
    else:
        _agree_on(config, "num_hidden_groups", _count(variant, "encoder.layers.{}.0.down.weight", weights), where)
        _agree_on(config, "inner_group_num", _count(variant, "encoder.layers.0.{}.down.weight", weights), where)
    if config.num_decoder_layers is not None:
        found = _count(variant, "heads.decoder.layers.{}.down.weight", weights)
        if found:  # 0: an encoder alone, whose config.json still speaks of the decoder it came from
            _agree_on(config, "num_decoder_layers", found, where)
    stored = _stored(variant, WORD, weights)
    if stored and (rows := weights.shape(_public(variant, WORD))[:1]) != (config.vocab_size,):
        raise DataError(
            f"{where}: vocab_size is {config.vocab_size:,}; the weights have {rows[0] if rows else 0:,} rows. "
            "Use the config.json saved beside the weights."
        )
    return config.replace(lm_tied=_tied(variant, config, weights))


def _tied(variant: Variant, config: EncoderConfig, weights: WeightsFolder) -> bool:
    """Whether the next-token head is the word embeddings: where the file has a matrix for it, that decides."""
    if not _stored(variant, OWN_DECODER, weights):
        return config.lm_tied
    own, word = (_public(variant, name) for name in (OWN_DECODER, "encoder.embeddings.word.weight"))
    tied = word in weights and torch.equal(weights.read(own), weights.read(word))
    if tied:
        weights.stored[word] += weights.stored.pop(own)  # a copy
    return tied


def _count(variant: Variant, name: str, weights: WeightsFolder) -> int:
    return next(i for i in count() if _public(variant, name.format(i)) not in weights)


def _agree_on(config: EncoderConfig, field: str, found: int, where: str) -> None:
    if (said := config.get(field)) != found:
        raise DataError(f"{where}: {field} is {said:,}; the weights have {found:,}.")


def _own_heads(
    variant: Variant, public: Mapping[str, Any], weights: WeightsFolder, labels: tuple[str, ...], where: str
) -> Heads:
    """The heads the class in config.json has; where it names none that we know, those whose weights are there."""
    names = variant.heads(public)
    if names is None:
        names = () if public.get("architectures") else _guessed_heads(variant, weights)
    outputs = 0
    for name in set(LABELLED) & set(names):
        weight = _public(variant, f"heads.{name}.classifier.weight")
        if weight not in weights:
            raise DataError(f"{where} names a classifier, but the weights have none ({weight}).")
        outputs = weights.shape(weight)[0] if weights.shape(weight) else 0
        if labels and len(labels) != outputs:
            raise DataError(f"{where}: id2label names {len(labels):,} labels; the classifier has {outputs:,} outputs.")
    return lambda config: {name: HEADS[name](config, outputs) for name in names}


def _guessed_heads(variant: Variant, weights: WeightsFolder) -> tuple[str, ...]:
    """The heads whose weights are in the file; of those that share their names (a classifier's), the first."""
    found: dict[str, str] = {}
    for name, _ in HEADS.items():
        if _stored(variant, mark := f"heads.{name}.{'bias' if name in VOCABULARY else 'classifier.weight'}", weights):
            found.setdefault(_public(variant, mark), name)
    return tuple(found.values())


def _problem_type(public: Mapping[str, Any], where: str) -> str | None:
    kind = public.get("problem_type")
    if kind is not None and kind not in PROBLEM_TYPES:
        raise DataError(f"{where}: problem_type is {str(kind)[:80]!r}. Known: {', '.join(PROBLEM_TYPES)}.")
    return kind


def save(
    model: Model,
    folder: Path,
    *,
    tokenizer: SavesTokenizer | None = None,
    labels: tuple[str, ...] | None = None,
    problem_type: str | None = None,
    card: str | None = None,
) -> None:
    """Write a model folder that opens here and in transformers; what is left out is taken from the model.

    `card` is the whole README.md, YAML header included; by default one is written from the config.
    """
    variant = model.variant
    if variant is None:
        raise UsageError(
            "This model belongs to no variant, so its weights have no public names; make it with families.build."
        )
    tokenizer = tokenizer or model.tokenizer
    labels = model.labels if labels is None else tuple(labels)
    public = variant.public(model.config, model.public)
    public["architectures"] = [variant.architecture(tuple(model.heads), model.public), *_more(public)]
    problem_type = problem_type or model.problem_type
    if (labels, problem_type) != (read_labels(model.public, CONFIG), model.public.get("problem_type")):
        public |= write_labels(labels, problem_type)
    folder.mkdir(parents=True, exist_ok=True)
    save_weights(model, folder / WEIGHTS, variant.table, base=variant.based(public))
    if tokenizer is not None:
        check_vocabulary(tokenizer, model.config, folder)
        tokenizer.save(folder, segments=model.config.type_vocab_size)
    write_bytes(folder / "README.md", (card or default_card(model, variant, public, labels)).encode())
    write_json(folder / CONFIG, public)  # last: a folder without it is not a model


def _more(public: Mapping[str, Any]) -> list[Any]:
    return list(public.get("architectures") or [])[1:]


def check_vocabulary(tokenizer: SavesTokenizer, config: EncoderConfig, folder: Path) -> None:
    """Raise DataError unless the tokenizer's vocabulary and the word embeddings are as long as one another.

    Embeddings padded up to the next multiple of 128 rows are fine: many models have a few for speed.
    """
    entries, rows = tokenizer.vocab_size, config.vocab_size
    if not rows - 128 < entries <= rows:
        raise DataError(
            f"{folder}: the vocabulary has {entries:,} entries, the weights have {rows:,} rows: the vocabulary of "
            "another model? Use the one saved beside the weights."
        )


def default_card(model: Model, variant: Variant, public: Mapping[str, Any], labels: tuple[str, ...]) -> str:
    """A model card that says what is known without being told: sizes and labels."""
    config = model.config
    pipeline = {
        "sequence": "text-classification",
        "token": "token-classification",
        "span": "question-answering",
        "choice": "multiple-choice",
        "mlm": "fill-mask",
        "decoder": "text2text-generation",
        "lm": "text-generation",
        "plm": "text-generation",
    }
    tag = next((pipeline[head] for head in pipeline if head in model.heads), "feature-extraction")
    parameters = sum(parameter.numel() for parameter in model.parameters())
    label_line = f"\nLabels: {', '.join(labels)}.\n" if labels else ""
    return f"""---
library_name: bertie
pipeline_tag: {tag}
tags:
- {variant.model_type}
---

# {public["architectures"][0]}

{config.num_hidden_layers} layers, hidden size {config.hidden_size}, {config.num_attention_heads} heads,
vocabulary of {config.vocab_size:,}: {parameters:,} parameters.
{label_line}
```python
import bertie

model = bertie.load("path/to/this/folder")
```
"""
