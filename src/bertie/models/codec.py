"""A family's config.json: config -> file -> the same config, for all values of its fields.

    config  --keys, values-->  the public keys, which other programs read too
            --the rest-->      "bertie": {"norm": "pre"}, which only Bertie reads; marked in the file's model_type

Unknown keys of config.json are kept and written back.

The names of weights in Hugging Face format are tables, read in both directions. A row is (our name, public name). `*`
is the last part (weight, bias), `{}` a layer's number. Where the public format separates what is fused here, the public
side is a tuple in the order of the fused rows. A pattern lists matrices that it stores transposed. A second table has
names in older files: (pattern, current public name). Imports no torch.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from bertie.errors import BertieError, DataError, UsageError
from bertie.files import Json, JsonObject
from bertie.models.config import EncoderConfig
from bertie.models.flat import NotRepresentable, built, place_settings
from bertie.models.heads import own_classes

WeightRow = tuple[str, str | tuple[str, ...]]

_HEADS_PREFIX = "heads."
ENCODER, IN_HEADS, OURS = "encoder.", re.compile(r"\.(pool|reader)\."), "bertie."
"""Weights that the family's format does not have (for settings in models/codec.py) are saved under our names."""


@dataclass(frozen=True)
class WeightTable:
    """The names of a family's weights.

    `old`: (pattern, current name); `ignored`: patterns of entries that are not weights; `transposed`: pattern of the
    public names whose matrices are stored as (in, out).
    """

    rows: tuple[WeightRow, ...]
    base: str = ""  # "bert.": prefix of the encoder's names in a model with heads
    old: tuple[tuple[str, str], ...] = ()
    ignored: tuple[str, ...] = ()
    transposed: str = ""

    def public(self, name: str) -> tuple[str, ...]:
        """Returns the public name of our name, or several names in fused order. Raises KeyError for an unknown head."""
        for ours, theirs in self.rows:
            if match := _pattern(ours).fullmatch(name):
                parts = (theirs,) if isinstance(theirs, str) else theirs
                return tuple(_fill(part, match.groups()) for part in parts)
        if name.startswith(ENCODER) or IN_HEADS.search(name):
            return (f"{OURS}{name}",)
        if name.startswith(tuple(f"{_HEADS_PREFIX}{head}." for heads in own_classes().values() for head in heads)):
            return (name.removeprefix(_HEADS_PREFIX),)  # of no public layout
        raise KeyError(name)

    def turned(self, public: str) -> bool:
        """Returns whether the public format stores this weight transposed."""
        return bool(self.transposed and re.search(self.transposed, public))

    def __contains__(self, name: object) -> bool:
        """Returns whether a row has our name."""
        try:
            return not self.public(str(name))[0].startswith(OURS)
        except KeyError:
            return False

    def today(self, stored: str) -> str | None:
        """Returns the current public name, with the base, of a name in a file; None: it is not a weight."""
        if any(re.search(pattern, stored) for pattern in self.ignored):
            return None
        for pattern, name in self.old:
            stored = re.sub(pattern, name, stored)
        return stored


def check_public_names(names: Iterable[str], table: WeightTable, family: str) -> None:
    """Raises UsageError unless each weight of a model has a unique public name. Called when a model is built."""
    taken: dict[str, str] = {}
    for name in names:
        try:
            publics = table.public(name)
        except KeyError:
            raise UsageError(
                f"The format of {family} has no place for {name}, so this model could not be saved. Choose a "
                "family with this head: bertie families"
            ) from None
        for public in publics:
            if (other := taken.setdefault(public, name)) != name:
                raise UsageError(
                    f"The format of {family} has the same place for {other} and {name} ({public}), so this "
                    "model could not be saved. Choose one of the two heads."
                )


@cache
def _pattern(ours: str) -> re.Pattern[str]:
    """Returns a pattern for our side of a row: {} is a number, * a word. Cached, since all names are searched in all
    rows."""
    return re.compile(re.escape(ours).replace(r"\{\}", r"(\d+)").replace(r"\*", r"(\w+)"))


def _fill(template: str, parts: Iterable[str]) -> str:
    for part in parts:
        template = re.sub(r"\{\}|\*", part, template, count=1)
    return template


CONFIG = "config.json"
QUANTIZATION = "quantization_config"  # a key of it
OWN_KEY = "bertie"
"""The key of config.json for fields that the family's public keys cannot express."""
OWN_TYPE = "bertie-"
"""The prefix of model_type in a file with such fields, so that other programs do not misread it."""
BY_WEIGHTS = frozenset({"pooler"})
"""Fields that are determined by the weights, not by the file."""
Names = tuple[tuple[object, object], ...]
ACTIVATIONS: Names = (
    *(("gelu", name) for name in ("gelu", "gelu_python")),
    *(("gelu_tanh", f"gelu_{name}") for name in ("new", "pytorch_tanh", "python_tanh", "fast", "accurate")),
    *(("silu", name) for name in ("silu", "swish")),
    *((name, name) for name in ("relu", "quick_gelu", "tanh", "sigmoid", "linear")),
)
VALUES: Mapping[str, Names] = {"hidden_act": ACTIVATIONS}


def model_type(public: Mapping[str, object]) -> Any:
    """Returns the family of a config.json, with or without the prefix."""
    type_name = public.get("model_type")
    return type_name.removeprefix(OWN_TYPE) if isinstance(type_name, str) else type_name


def only_here(own: Json) -> str:
    """Returns a message about settings under OWN, or an empty text without such settings."""
    said = ", ".join(f"{name}={value}" for name, value in own.items())
    return f"Only Bertie can open this model: other programs do not know {said}." if own else ""


def same(*names: str) -> dict[str, str]:
    """Fields of EncoderConfig with the same name in config.json."""
    return {name: name for name in names}


def as_it_is(public: Mapping[str, object]) -> Mapping[str, object]:
    """Returns config.json unchanged. The functions of a family have names, so that its models can be pickled."""
    return public


@dataclass(frozen=True, kw_only=True)
class Codec:
    """How a family's config is read and written. Fields have their flat names (models/flat.py)."""

    model_type: str
    base: EncoderConfig  # what a config.json means that leaves keys out; what no key says is the family's own
    unpooled: frozenset[str] = frozenset()  # fields whose public keys mean another model where there is a pooler
    keys: Mapping[str, str]  # field -> key of config.json; several fields may share one
    implied: Mapping[str, tuple[int, str]] = field(default_factory=dict)  # field left out -> a multiple of another
    values: Mapping[str, Names] = field(default_factory=lambda: VALUES)
    """Field -> its values as (ours, public); of several public names the first is written."""
    flattened: Callable[[Json], Json] = as_it_is
    """config.json with what it nests under keys of its own; raises DataError for what no field says."""
    fixed: Json  # keys of config.json that must have this value, where present, and are written with it

    def config(self, public: Json, where: str) -> EncoderConfig:
        """config.json -> EncoderConfig. Raises DataError naming the key that is of the wrong type, size or kind."""
        try:
            public = self.flattened(public)
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
        for key, value in self.fixed.items():
            if public.get(key, value) not in (value, None):
                raise DataError(
                    f"{where}: {key} is {public[key]!r}; only {value!r} is supported for {self.model_type}."
                )
        fields = {ours: public[key] for ours, key in self.keys.items() if public.get(key) is not None}
        for name in self.values.keys() & fields.keys():
            fields[name] = self._ours(name, fields[name], where)
        for name, (times, other) in self.implied.items():
            if name not in fields and isinstance(fields.get(other), int):
                fields[name] = fields[other] if times == 1 else times * fields[other]
        own = public.get(OWN_KEY, {})
        if not isinstance(own, dict):
            raise DataError(f"{where}: {OWN_KEY} is a {type(own).__name__}, not an object of keys and values.")
        try:
            config = built(type(self.base), place_settings(self.base, fields, lenient=True))
            return built(type(self.base), place_settings(config, own)) if own else config
        except NotRepresentable as misfit:
            raise DataError(f"{where}: {self._shown(misfit)}") from None
        except BertieError as error:
            raise DataError(f"{where}: {error}") from None

    def _shown(self, misfit: NotRepresentable) -> str:
        key = self.keys.get(misfit.name, misfit.name)
        return str(misfit).replace(misfit.name, key, 1) if misfit.name else str(misfit)

    def _ours(self, name: str, value: object, where: str) -> object:
        for ours, public in self.values[name]:
            if public == value and type(public) is type(value):  # True is not 1
                return ours
        known = ", ".join(str(public) for _, public in self.values[name])
        raise DataError(f"{where}: {self.keys[name]} is {str(value)[:80]!r}. Known: {known}.")

    def public(self, config: EncoderConfig, original: Json) -> JsonObject:
        """Converts an EncoderConfig to config.json, on top of the `original` one. Without it, every key is written."""
        written, own = self._written(config), self.own(config)
        fields: JsonObject = (
            {"model_type": OWN_TYPE + self.model_type, OWN_KEY: own} if own else {"model_type": self.model_type}
        )
        if not original:
            return {**fields, **self.fixed, "dtype": "float32", **written}
        public_keys = {key: value for key, value in original.items() if key != OWN_KEY}
        meant, flat = self.config(public_keys, CONFIG).flat(), config.flat()
        differing = {key for ours, key in self.keys.items() if meant.get(ours) != flat.get(ours)}
        changed = {key: value for key, value in written.items() if key in differing}
        original = self.flattened(original) if changed else original
        for key in ("dtype", "torch_dtype"):
            if original.get(key) not in (None, "float32"):
                changed[key] = "float32"  # what is saved, whatever was read
        merged = {**original, **changed, **fields}
        return merged if own else {key: value for key, value in merged.items() if key != OWN_KEY}

    def _written(self, config: EncoderConfig) -> dict[str, object]:
        """Returns the fields that public keys can express. Of several fields with one key, the last one counts."""
        flat = config.flat()
        if config.pooler:
            flat |= {name: self.base.get(name) for name in self.unpooled}
        written = {key: flat[ours] for ours, key in self.keys.items() if ours in flat}
        for name in self.values.keys() & self.keys.keys() & flat.keys():
            names = [public for ours, public in self.values[name] if ours == flat[name]]
            written[self.keys[name]] = names[0] if names else None
        return written

    def check(self, config: EncoderConfig) -> None:
        """Raises UsageError unless reading the written config.json returns the config. Called when a model is built."""
        again = self.config(json.loads(json.dumps(self.public(config, {}))), CONFIG).flat()
        for name, value in config.flat().items():
            if name not in BY_WEIGHTS and again.get(name) != value:
                raise UsageError(
                    f"{name}={value!r} would be lost: the config.json of a {self.model_type} restores "
                    f"{again.get(name)!r}. Omit it, or choose another family: bertie families"
                )

    def own(self, config: EncoderConfig) -> JsonObject:
        """Returns the fields, by flat names, that the family's public keys cannot express."""
        said = self.config({**self.fixed, **self._written(config)}, CONFIG).flat()
        if self.base.type_vocab_size and not config.type_vocab_size:
            del said["type_vocab_size"]  # `transformers` always adds the embedding of a segment
        missing = object()
        return {
            name: value
            for name, value in config.flat().items()
            if name not in BY_WEIGHTS and said.get(name, missing) != value
        }
