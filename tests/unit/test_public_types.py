"""No public signature has `Any`: of a name of `bertie`, of its methods and fields, and of what they return."""

import builtins
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np

import bertie
import bertie.sklearn

ROOT = Path(__file__).parents[2]

SPECIAL = ("__init__", "__call__", "__getitem__", "__iter__", "__enter__")
"""Methods with two underscores that are called as functions."""


class Names(dict[str, object]):
    """The names of a module. What it imports only for type checkers is a class of that name."""

    def __missing__(self, name: str) -> object:
        other = type(name, (), {"__class_getitem__": classmethod(lambda cls, _: cls)})
        return type(name, (), {"__getattr__": lambda self, _: other})() if name.islower() else other


def hints_of(thing: Any, module: str) -> dict[str, object]:
    names = Names(vars(builtins) | vars(sys.modules[module]))
    if isinstance(thing, type):  # without the fields of its bases
        thing = type(thing.__name__, (), {"__annotations__": inspect.get_annotations(thing), "__module__": module})
    return get_type_hints(thing, localns=names)


def has_any(hint: object, known: frozenset[object] = frozenset()) -> bool:
    """Whether an annotation has `Any` anywhere, also in the keys of `**options`."""
    if hint is Any:
        return True
    if is_typeddict(hint) and hint not in known:
        names = Names(vars(builtins))
        names.update(vars(sys.modules[hint.__module__]))
        return any(has_any(one, known | {hint}) for one in get_type_hints(hint, localns=names).values())
    parts = get_args(hint)
    if get_origin(hint) is np.ndarray:  # NDArray[np.float32]: its shape is Any
        parts = parts[1:]
    elif str(getattr(get_origin(hint), "__module__", "")).startswith("numpy._typing"):
        return False  # a part of ArrayLike
    return any(has_any(one, known) for part in parts for one in (part if isinstance(part, list) else [part]))


def classes_in(hint: object) -> Iterator[type]:
    """The classes of an annotation that are Bertie's."""
    if isinstance(hint, type) and hint.__module__.startswith("bertie") and not get_args(hint):
        yield hint
    for part in get_args(hint):
        yield from classes_in(part)


def functions_of(kind: type) -> Iterator[tuple[str, Any, str]]:
    """Each public method of a class and of its bases in Bertie, with its module."""
    for base in kind.__mro__:
        if base.__module__.startswith("bertie"):
            for name, value in vars(base).items():
                if name.startswith("_") and name not in SPECIAL:
                    continue
                one = getattr(value, "__func__", None) or getattr(value, "fget", None) or getattr(value, "func", value)
                if inspect.isfunction(one):
                    yield f"{base.__name__}.{name}", inspect.unwrap(one), base.__module__


def signatures() -> Iterator[tuple[str, str, object]]:
    """Where, a parameter, and its annotation."""
    public = [getattr(bertie, name) for name in bertie.__all__]
    public += [getattr(bertie.sklearn, name) for name in bertie.sklearn.__all__]
    done: set[object] = set()
    while public:
        thing = public.pop()
        if thing in done:
            continue
        done.add(thing)
        if inspect.isclass(thing):
            functions = [*functions_of(thing)]
            for base in thing.__mro__:
                if base.__module__.startswith("bertie"):
                    own = hints_of(base, base.__module__)
                    yield from ((base.__name__, name, hint) for name, hint in own.items() if not name.startswith("_"))
        else:
            functions = [(thing.__name__, inspect.unwrap(thing), thing.__module__)]
        for where, function, module in functions:
            if module != function.__module__ and function.__name__ == "__init__":
                continue  # of a dataclass, whose fields are above
            for name, hint in hints_of(function, function.__module__).items():
                if name == "return" or not name.startswith("_"):
                    yield where, name, hint
                if name == "return":  # what is returned is public too
                    public += [one for one in classes_in(hint) if is_dataclass(one) or not inspect.isclass(thing)]


def test_the_reference_lists_what_functions_return() -> None:
    page = (
        (ROOT / "docs" / "generate_api.py")
        .read_text(encoding="utf-8")
        .partition("RESULTS = (")[2]
        .partition(')\n"""')[0]
    )
    returned = {
        one for _, name, hint in signatures() if name == "return" for one in classes_in(hint) if is_dataclass(one)
    }
    public = [getattr(bertie, name) for name in bertie.__all__]
    assert {f"{one.__module__}.{one.__qualname__}" for one in returned if one not in public} <= {
        *re.findall(r'"([^"]+)"', page)
    }


def test_no_public_signature_has_any() -> None:
    checked = [*signatures()]
    assert len(checked) > 1_000
    assert sorted({f"{where}: {name}" for where, name, hint in checked if has_any(hint)}) == []
