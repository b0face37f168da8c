"""Writes a model folder in Hugging Face format: config.json, weights, tokenizer files, README.md (the model card).

bertie.json beside them records how the model read texts in its training.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from torch import nn

from bertie.errors import DataError, UsageError
from bertie.files import Json, JsonObject, write_json, write_text
from bertie.models.codec import OWN_KEY, QUANTIZATION, only_here
from bertie.models.config import EncoderConfig
from bertie.models.files import WEIGHTS
from bertie.models.heads import HEADS
from bertie.models.heads.base import Head
from bertie.models.int8 import PackedWeight, quantization
from bertie.models.variant import CONFIG, OF_LABELS, Variant, read_labels, write_labels
from bertie.models.weights import save_weights
from bertie.training_facts import DECIDED, TrainingFacts, decided, write_training_facts


class SavesTokenizer(Protocol):
    """Protocol of a tokenizer that can be saved."""

    @property
    def vocab_size(self) -> int:
        """The number of vocabulary entries."""
        ...

    def special_id(self, role: str) -> int | None:
        """Returns the id of the "cls", "sep", "bos", "eos" ... token, or None."""
        ...

    def save(self, folder: Path, *, segments: int | None = None, max_length: int | None = None) -> None:
        """Writes the tokenizer's files for a model with a number of segments and a length of sequences."""
        ...


class Saved(Protocol):
    """Protocol of a `TorchModel` that can be saved."""

    heads: nn.ModuleDict
    variant: Variant | None
    public: JsonObject
    tokenizer: Any
    labels: tuple[str, ...]
    problem_type: str | None
    training_facts: TrainingFacts

    @property
    def config(self) -> EncoderConfig:
        """The config of the encoder."""
        ...

    def own_parameters(self) -> dict[str, nn.Parameter]:
        """Returns the parameters of encoder and heads, by our names."""
        ...


def save_model(
    model: Saved,
    folder: str | Path,
    *,
    tokenizer: SavesTokenizer | None = None,
    labels: tuple[str, ...] | None = None,
    problem_type: str | None = None,
    card: str | None = None,
    weights: bool = True,
    packed: Mapping[str, PackedWeight] = MappingProxyType({}),
    training_facts: TrainingFacts | None = None,
) -> None:
    """Writes a model folder that opens in Bertie and in transformers. Defaults are taken from the model.

    `card` is the whole README.md, including its YAML header; by default, it is made from the config. weights: False
    writes everything else. packed: parameters stored with 4 or 8 bits per number, which only Bertie opens.
    """
    folder, tokenizer = Path(folder), tokenizer or model.tokenizer
    labels = model.labels if labels is None else tuple(labels)
    facts = training_facts or model.training_facts
    public, variant = public_config(model, labels, problem_type, tokenizer)
    public.pop(QUANTIZATION, None)
    public.pop(DECIDED, None)
    if names := decided(facts):
        public[DECIDED] = names
    if packed:
        public[QUANTIZATION] = quantization(packed.values())
    folder.mkdir(parents=True, exist_ok=True)
    if weights:
        save_weights(model.own_parameters(), folder / WEIGHTS, variant.table, base=variant.based(public), packed=packed)
    if tokenizer is not None:
        check_vocabulary(tokenizer, model.config, folder)
        tokenizer.save(folder, segments=model.config.type_vocab_size, max_length=facts.max_length)
    write_training_facts(folder, facts)
    write_text(folder / "README.md", card or default_card(model, variant, public, labels))
    write_json(folder / CONFIG, public)  # last: a folder without it is not a model


def public_config(
    model: Saved, labels: tuple[str, ...], problem_type: str | None, tokenizer: SavesTokenizer | None
) -> tuple[JsonObject, Variant]:
    """Returns config.json of a model, and its family. Raises UsageError for a model of no family."""
    variant = model.variant
    if variant is None:
        raise UsageError(
            "This model belongs to no family, so its weights have no public names. Make it with families.build."
        )
    public = variant.public(_as_read(model), model.public)
    public["architectures"] = [
        variant.architecture(tuple(model.heads), model.public),
        *(public.get("architectures") or [])[1:],
    ]
    problem_type = problem_type or model.problem_type
    if (labels, problem_type) != (read_labels(model.public, CONFIG), model.public.get("problem_type")):
        old = {*OF_LABELS, variant.label_count}  # of the head of the model that this one was made from
        public = {key: value for key, value in public.items() if key not in old} | write_labels(labels, problem_type)
        public |= {variant.label_count: len(labels)} if variant.label_count and labels else {}
    if tokenizer is not None:
        public |= {**_told_ids(variant, tokenizer), **public}
    return public, variant


def _told_ids(variant: Variant, tokenizer: SavesTokenizer) -> dict[str, int]:
    by_key: dict[str, int] = {}
    for key, roles in variant.told_ids.items():
        ids = [token for role in roles if (token := tokenizer.special_id(role)) is not None]
        by_key |= {key: ids[0]} if ids else {}
    return by_key


def own_settings(model: Saved) -> JsonObject:
    """Returns the settings of a model that only Bertie's own keys can express."""
    return {} if model.variant is None else model.variant.own(_as_read(model))


def _as_read(model: Saved) -> EncoderConfig:
    """Returns the config, with a pooler only if a head reads it."""
    read = any(head.needs.pooler for head in model.heads.values() if isinstance(head, Head))
    return model.config.replace(pooler=read)


def check_vocabulary(tokenizer: SavesTokenizer, config: EncoderConfig, folder: Path) -> None:
    """Raises DataError unless the tokenizer's vocabulary and the word embeddings have the same length.

    Embeddings padded to the next multiple of 128 rows are accepted, since many models have them for speed.
    """
    entries, rows = tokenizer.vocab_size, config.vocab_size
    if not rows - 128 < entries <= rows:
        raise DataError(
            f"{folder}: the vocabulary has {entries:,} entries, but the weights have {rows:,} rows. Use the "
            "vocabulary that was saved with the weights."
        )


def default_card(model: Saved, variant: Variant, public: Json, labels: tuple[str, ...]) -> str:
    """Returns a model card with sizes and labels."""
    config = model.config
    pipelines = (row.pipeline for name, row in HEADS.items() if row.pipeline and name in model.heads)
    tag = next(pipelines, None) or "feature-extraction"
    parameters = sum(parameter.numel() for parameter in model.own_parameters().values())
    label_line = f"\nLabels: {', '.join(labels)}.\n" if labels else ""
    own = only_here(public.get(OWN_KEY, {}))
    label_line += f"\n{own}\n" if own else ""
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
