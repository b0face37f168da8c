"""Named tables. An unknown name raises an error with the choices."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Generic, TypeVar, cast

from bertie.errors import UsageError, nearest

T = TypeVar("T")


@dataclass(frozen=True)
class Later(Generic[T]):
    """An entry that is imported from a module when it is first used."""

    module: str
    name: str

    def found(self) -> T:
        """Imports and returns it."""
        return cast(T, getattr(import_module(self.module), self.name))


class Registry(Generic[T]):
    """An ordered table of named things of one `kind` ("objective", "task", "variant")."""

    def __init__(self, kind: str, rows: Iterable[tuple[str, T | Later[T]]] = ()) -> None:
        self.kind = kind
        self._rows: dict[str, T | Later[T]] = {}
        for name, thing in rows:
            self.add(name, thing)

    @staticmethod
    def later(module: str, name: str) -> "Later[T]":
        """Returns an entry that is imported from a module when it is first used."""
        return Later(module, name)

    @staticmethod
    def library(name: str, what: str, extra: str) -> ModuleType:
        """Returns an optional package. See `library`."""
        return library(name, what, extra)

    def add(self, name: str, thing: T | Later[T]) -> T | Later[T]:
        """Adds a row. Raises ValueError when the name exists already."""
        if name in self._rows:
            raise ValueError(f"{self.kind} {name!r} is registered twice")
        self._rows[name] = thing
        return thing

    def __getitem__(self, name: str) -> T:
        try:
            thing = self._rows[name]
        except KeyError:
            raise UsageError(f"Unknown {self.kind} {name!r}. {nearest(name, self._rows)}") from None
        if isinstance(thing, Later):
            thing = self._rows[name] = thing.found()
        return thing

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def items(self) -> Iterable[tuple[str, T]]:
        """Returns the rows in the order in which they were added."""
        return [(name, self[name]) for name in self._rows]


def library(name: str, what: str, extra: str) -> ModuleType:
    """Returns an optional package. Raises UsageError with the command that installs it; `what` needs it."""
    try:
        return import_module(name)
    except ImportError:
        raise UsageError(f'{what} need the package {name}. Run: pip install "bertie[{extra}]"') from None
