"""A config by flat names: `attention_window=64` is short for `attention=Window(attention_window=64)`.

Overrides and files are flat, but a config is not. Settings of different unions (models/kinds.py) have different names,
so that a name alone determines its place:

    attention="block_sparse"     another kind, with its defaults
    block_size=32                a setting of the current kind; an error where the kind does not have it
    attention_window=64          a setting without a default selects its kind; None selects the first kind
    mlm_act="relu"               a setting of a head (models/head_config.py)
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, fields
from typing import Any, TypeVar, get_args

from pydantic import TypeAdapter, ValidationError

from bertie.errors import UsageError, nearest
from bertie.models import kinds
from bertie.models.head_config import HeadConfigs

_C = TypeVar("_C")  # an EncoderConfig, which imports this module
UNIONS: dict[str, tuple[Any, ...]] = {
    "positions": get_args(kinds.Positions),
    "attention": get_args(kinds.Attention),
    "layer": get_args(kinds.LayerKind),
    "sharing": get_args(kinds.Sharing),
    "inputs": get_args(kinds.InputKind),
}
_HEADS = {name: head for head, settings in asdict(HeadConfigs()).items() for name in settings}  # setting -> its head
_ALIASES = {"attention_type": "attention"}  # BigBird's name, which people know
ADAPTERS: dict[type, TypeAdapter[Any]] = {}  # what validates a class of configs, made once
PUBLIC_KINDS = {"attention": {"original_full": "full"}}


class NotRepresentable(Exception):
    """A flat name or value that does not apply to a config. name: the flat name."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def flatten_config(config: Any) -> dict[str, object]:
    """Returns every field of a config by its flat name."""
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    for union in UNIONS:
        settings = asdict(values[union])
        values[union] = settings.pop("kind")
        values |= settings
    heads = values.pop("heads")
    return values | {name: getattr(getattr(heads, head), name) for name, head in _HEADS.items()}


def changed(config: _C, changes: Mapping[str, object]) -> _C:
    """Returns the config with other values, by flat names. Raises UsageError for values that do not apply to it."""
    new: Any
    try:
        new = built(type(config), place_settings(config, changes))
    except NotRepresentable as misfit:
        raise UsageError(str(misfit)) from None
    if "max_position_embeddings" in changes and not isinstance(
        new.positions, kinds.Learned | kinds.LearnedRelative | kinds.Rotary
    ):
        raise UsageError(
            "max_position_embeddings is the size of a table that this model does not have: its positions are "
            f"{new.positions.kind}, without a maximum length. Omit it."
        )
    changed: _C = new
    return changed


def built(kind: type[_C], tree: Mapping[str, object]) -> _C:
    """Returns a config from a tree of plain values. Raises NotRepresentable for a value of the wrong type."""
    try:
        adapter = ADAPTERS[kind] = ADAPTERS.get(kind) or TypeAdapter(kind)
        config: _C = adapter.validate_json(json.dumps(tree), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        name = [part for part in first["loc"] if isinstance(part, str) and part in _names(kind)][-1]
        raise NotRepresentable(name, f"{name}: {first['msg']} (the value is {repr(first['input'])[:80]}).") from None
    except TypeError as error:
        raise NotRepresentable("", f"A setting has a type that cannot be written to a file: {error}.") from None
    return config


def place_settings(config: Any, changes: Mapping[str, object], *, lenient: bool = False) -> dict[str, object]:
    """Returns the tree of a config with other values, by flat names.

    lenient: whether to ignore settings of other kinds, which a file may contain. Raises NotRepresentable for a name
    that is unknown, or does not apply to the kinds.
    """
    tree = asdict(config)
    changes = {_ALIASES.get(name, name): value for name, value in changes.items()}
    for union in UNIONS.keys() & changes.keys():
        tree[union] = _of_kind(union, changes[union], tree[union])
    rest = {name: value for name, value in changes.items() if name not in UNIONS}
    for name, value in rest.items():
        for union, member in _choosers(name):
            chosen = tree[union]["kind"] == member.kind
            if value is not None and not chosen and union not in changes:
                tree[union] = {"kind": member.kind, name: value}
            elif value is None and chosen:
                tree[union] = {"kind": UNIONS[union][0].kind}
    for name, value in rest.items():
        if name in _HEADS:
            tree["heads"][_HEADS[name]][name] = value
        elif name in tree and name != "heads":
            tree[name] = value
        elif (part := _union_of(name)) is None:
            raise NotRepresentable(name, f"EncoderConfig has no field {name!r}. {nearest(name, _names(type(config)))}")
        elif name in _settings(next(member for member in UNIONS[part] if member.kind == tree[part]["kind"])):
            tree[part][name] = value
        elif not (lenient or value is None):
            owners = [member.kind for member in UNIONS[part] if name in _settings(member)]
            raise NotRepresentable(
                name,
                f"{name} is a setting of {part}={' or '.join(owners)}; this model's {part} is "
                f"{tree[part]['kind']}. Add {part}={owners[0]}, or omit {name}.",
            )
    return tree


def _of_kind(union: str, value: object, old: dict[str, object]) -> dict[str, object]:
    """Returns the tree of another kind. Settings remain when the kind is the same."""
    if isinstance(value, UNIONS[union]):
        return asdict(value)
    value = PUBLIC_KINDS.get(union, {}).get(value, value) if isinstance(value, str) else value
    known = [member.kind for member in UNIONS[union]]
    if value not in known:
        raise NotRepresentable(union, f"Unknown {union}={value!r}. {nearest(str(value), known)}")
    return old if old["kind"] == value else {"kind": value}


def _settings(member: Any) -> list[str]:
    return [field.name for field in fields(member) if field.name != "kind"]


def _choosers(name: str) -> Iterator[tuple[str, Any]]:
    """Returns the kind that has a setting of this name without a default."""
    for union, members in UNIONS.items():
        for member in members:
            if any(field.name == name and field.default is MISSING for field in fields(member)):
                yield union, member


def _union_of(name: str) -> str | None:
    return next((union for union, members in UNIONS.items() if any(name in _settings(m) for m in members)), None)


def _names(kind: type[Any]) -> tuple[str, ...]:
    """Returns every flat name of a config class."""
    own = [field.name for field in fields(kind) if field.name != "heads"]
    return (*own, *_HEADS, *(name for members in UNIONS.values() for member in members for name in _settings(member)))
