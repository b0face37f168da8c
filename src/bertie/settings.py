"""Typed run configs: a YAML file with `extends:`, dotted overrides, and clear errors for unknown keys.

`load(PretrainConfig, "recipes/tiny.yaml", ["optim.lr=3e-4"])` reads the file, the files that it extends, and then the
overrides. The resolved config is saved with the run as run.yaml, which can be run again. The help text of a setting is
the docstring of its field.
"""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import is_dataclass
from functools import cache
from os import PathLike, fspath
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator

from bertie.errors import DataError, UnknownName, UsageError, nearest
from bertie.files import read_small, write_bytes

if TYPE_CHECKING:
    from yaml import SafeLoader


def _plain(value: object) -> object:
    """Returns a path, or those of a list, as text: callers from Python may pass either."""
    if isinstance(value, PathLike):
        return fspath(value)
    return [_plain(one) for one in value] if isinstance(value, list) else value


class Config(BaseModel):
    """The base class of run configs: frozen, without unknown keys."""

    also_called: ClassVar[Mapping[str, str]] = {}
    """What other libraries call a setting -> its dotted key."""
    options: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """What other libraries call an option of the command -> the option, and the argument in Python."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    @classmethod
    def read(cls, path: str | Path | None = None, overrides: Iterable[str] = (), **values: object) -> Self:
        """Returns settings of a YAML file or recipe, changed by values and "dotted.key=value". See `load_config`."""
        return load_config(cls, path, overrides, **values)

    @classmethod
    def passed_as(cls, key: str) -> str:
        """Returns the end of an error about a key that is an option of the command."""
        return "Pass the option {} (in Python, the argument {}).".format(*cls.options[key])

    @classmethod
    def kind_of(cls, path: list[str], tree: Mapping[str, object]) -> tuple[object, list[str]]:
        """Returns the type of the setting with the first of some names, and the names inside of it.

        tree: all settings, which may decide what a setting is.
        """
        field = cls.model_fields.get(path[0])
        return field and field.annotation, path[1:]

    @model_validator(mode="wrap")
    @classmethod
    def _over_defaults(cls, values: object, build: ModelWrapValidatorHandler[Self]) -> Self:
        """Merges a partial section with this config's own default: fine-tuning's optim.lr keeps its warm-up.

        Its `model_fields_set` has only the given keys.
        """
        if not isinstance(values, Mapping):
            return build(values)
        sections = {
            name: field.default for name, field in cls.model_fields.items() if isinstance(field.default, Config)
        }
        over = {
            name: merge(sections[name].model_dump(), value)
            if name in sections and isinstance(value, Mapping)
            else _plain(value)
            for name, value in values.items()
        }
        with _refusing(cls) if cls.also_called else nullcontext():  # the config of a run, made from Python
            built = build(over)
        for name in sections:
            if isinstance(part := values.get(name), Mapping):
                getattr(built, name).__pydantic_fields_set__.intersection_update(part)
        return built


_C = TypeVar("_C", bound=Config)
BOOLEAN = "tag:yaml.org,2002:bool"
MAX_YAML_BYTES = 1 << 20  # a run config has a few thousand
RECIPES = (Path(__file__).parent / "recipes", Path(__file__).parents[2] / "recipes")  # as installed; in a checkout


def load_config(kind: type[_C], path: str | Path | None = None, overrides: Iterable[str] = (), **values: Any) -> _C:
    """Loads a config from an optional YAML file, then values by dotted key that are not None, then "dotted.key=value".

    Raises UsageError for missing or unsafe YAML, an unknown key (with the most similar name), or a value of the wrong
    type.
    """
    tree = read_yaml(Path(path)) if path else {}
    for key, value in values.items():
        if value is not None:
            merge(tree, nested(key, value))
    options: list[tuple[str, str]] = []
    for override in overrides:
        dotted, equals, text = override.partition("=")
        if not equals:
            raise UsageError(f"{override!r} is not an override. Write key=value, for example optim.lr=1e-4.")
        options.append((dotted, text))
        root = dotted.split(".")[0]
        default = kind.model_fields[root].default if root in kind.model_fields else None
        if isinstance(default, dict):  # objectives.mlm.rate=0.2 changes the default objectives, not replaces them
            tree.setdefault(root, copy.deepcopy(default))
        merge(tree, nested(dotted, scalar(text)))
    for dotted, text in options:  # now the settings that say what the others are, such as the task, are known
        merge(tree, nested(dotted, typed(kind, dotted, text, tree)))
    return build_config(kind, tree)


def typed(kind: type[Config], dotted: str, text: str, tree: Mapping[str, object] = {}) -> Any:
    """Returns a value of the command line: as it is for a string, otherwise as YAML reads it. tree: all settings.

    null is no value, and quotes around a string are left out.
    """
    if text == "null" or text[:1] in ("'", '"') or not _is_text(kind, dotted.split("."), tree):
        return scalar(text)
    return text


def _is_text(kind: object, path: list[str], tree: Mapping[str, object]) -> bool:
    """Returns whether the setting with these names is a string, which no YAML is read from. tree: all settings."""
    if get_origin(kind) is Annotated:
        return _is_text(get_args(kind)[0], path, tree)
    if not path:
        return kind is str or (get_origin(kind) in (Union, UnionType) and {*get_args(kind)} == {str, NoneType})
    if get_origin(kind) in (dict, Mapping):
        return _is_text(get_args(kind)[1], path[1:], tree)
    if isinstance(kind, type) and issubclass(kind, Config):
        inner, path = kind.kind_of(path, tree)
        return _is_text(inner, path, tree)
    hints = get_type_hints(kind) if is_dataclass(kind) else {}
    return path[0] in hints and _is_text(hints[path[0]], path[1:], tree)


def build_config(kind: type[_C], tree: Mapping[str, Any]) -> _C:
    """Validates a tree of values as a config. Raises UsageError with one line on the first error.

    An unknown key gets a hint: the same name in another section, what another library calls it, or the most similar
    one.
    """
    with _refusing(kind):
        return kind.model_validate(tree)


@contextmanager
def _refusing(kind: type[Config]) -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        errors = error.errors()  # an unknown key first: it is often why another is missing
        deepest = max((e for e in errors if e["loc"][:1] == errors[0]["loc"][:1]), key=lambda e: len(e["loc"]))
        first = next((e for e in errors if e["type"] == "extra_forbidden"), deepest)
        where = [str(part) for part in first["loc"] if "[" not in str(part)]  # that is a kind of value, not a name
        if first["type"] == "extra_forbidden" and where[-1] in kind.options:
            raise UnknownName(f"Unknown key {'.'.join(where)!r}. {kind.passed_as(where[-1])}") from None
        if first["type"] == "extra_forbidden":
            elsewhere = [name for name in _names(kind) if name.rpartition(".")[2] == where[-1]]
            elsewhere += [name for name in (kind.also_called.get(where[-1]),) if name]
            choices = nearest(where[-1], _section(kind, where[:-1]).model_fields)
            hint = f"Did you mean {' or '.join(map(repr, elsewhere))}?" if elsewhere else choices
            raise UnknownName(f"Unknown key {'.'.join(where)!r}. {hint}") from None
        if first["type"] == "missing":
            raise UsageError(f"{'.'.join(where)} is missing: {_help(kind, where)}") from None
        problem = f"{'.'.join(where)}: {first['msg']} (the value is {first['input']!r})."
        raise UsageError(f"{problem} {_help(kind, where)}") from None


def _names(kind: type[Config], before: str = "") -> Iterator[str]:
    """Yields the dotted keys of a config and of its sections."""
    for name, field in kind.model_fields.items():
        yield before + name
        if isinstance(field.default, Config):
            yield from _names(type(field.default), f"{before}{name}.")


def _section(kind: type[Config], path: list[str]) -> type[Config]:
    for part in path:
        if part.isdigit():  # a place in a list of sections
            continue
        annotation = kind.model_fields[part].annotation
        kind = next(i for i in (annotation, *get_args(annotation)) if isinstance(i, type) and issubclass(i, Config))
    return kind


def _help(kind: type[Config], where: list[str]) -> str:
    try:
        text = _section(kind, where[:-1]).model_fields[where[-1]].description or ""
        return " ".join(text.split()).partition(" Source: ")[0]
    except (KeyError, StopIteration):  # a key of a mapping: the mapping says what belongs there
        return _help(kind, where[:-1]) if len(where) > 1 else ""


def save_settings(config: Config, path: Path) -> None:
    """Writes the resolved config as YAML that `load_config` reads as an equal value."""
    import yaml  # slow to import

    tree = config.model_dump(mode="json")
    write_bytes(path, str(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)).encode())


@cache
def _loader() -> "type[SafeLoader]":
    """Safe YAML in which only true and false are booleans, as in YAML 1.2: yes and no are labels and words."""
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {  # noqa: RUF012  (as the base class has it)
            first: [(tag, pattern) for tag, pattern in resolvers if tag != BOOLEAN]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    Loader.add_implicit_resolver(BOOLEAN, re.compile("(true|True|TRUE|false|False|FALSE)$"), [*"tTfF"])
    return Loader


def parse_yaml(text: str) -> object:
    """Returns the value of a text. Raises ValueError for one that is not YAML, RecursionError for too deep a one."""
    import yaml

    loader = _loader()(text)
    try:
        return loader.get_single_data()
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    finally:
        loader.dispose()


def read_yaml(path: Path, *, _seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Returns a YAML mapping merged over the one that it extends. Only safe YAML is read.

    `extends:` names a file relative to this one, or a recipe, as `path` may: pretrain-bert-base.
    """
    path = next((folder / f"{path}.yaml" for folder in RECIPES if (folder / f"{path}.yaml").is_file()), path)
    if path.resolve() in _seen:
        raise UsageError(f"{path} extends itself, through {' -> '.join(map(str, _seen))}.")
    try:
        tree = parse_yaml(read_small(path, most=MAX_YAML_BYTES).decode("utf-8-sig"))
    except FileNotFoundError:
        recipes = (file.stem for folder in RECIPES for file in folder.glob("*.yaml"))
        raise UnknownName(f"{path} is neither a file nor a recipe. {nearest(path.stem, recipes)}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except DataError as error:
        raise UsageError(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not readable YAML: {error}") from None
    if tree is None:
        tree = {}
    if not isinstance(tree, dict):
        raise UsageError(f"{path} contains a {type(tree).__name__}; a mapping of keys to values was expected.")
    parent = tree.pop("extends", None)
    if parent is None:
        return tree
    local = path.parent / str(parent)
    base = read_yaml(local if local.is_file() else Path(str(parent)), _seen=(*_seen, path.resolve()))
    return merge(base, tree)


def merge(base: dict[str, Any], top: Mapping[str, object]) -> dict[str, Any]:
    """Merges `top` into `base`, mappings key by key, and returns `base`."""
    for name, value in top.items():
        if isinstance(value, Mapping) and isinstance(base.get(name), dict):
            merge(base[name], value)
        else:
            base[name] = dict(value) if isinstance(value, Mapping) else value
    return base


def nested(dotted: str, value: object) -> dict[str, object]:
    """ "optim.lr", 1e-4 -> {"optim": {"lr": 1e-4}}."""
    first, dot, rest = dotted.partition(".")
    return {first: nested(rest, value) if dot else value}


def scalar(text: str) -> Any:
    """Returns a command-line value as YAML reads it, except that 1e-4 is a number (YAML 1.1 needs 1.0e-4)."""
    if "e" in text.lower():
        with suppress(ValueError):
            return float(text)
    try:
        return parse_yaml(text)
    except ValueError:
        return text


def flatten(tree: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """{"optim": {"lr": 1e-4}} -> {"optim.lr": 1e-4}; tuples become lists, as in JSON."""
    flat: dict[str, object] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = _as_lists(value)
    return flat


def _as_lists(value: object) -> object:
    return [_as_lists(one) for one in value] if isinstance(value, list | tuple) else value
