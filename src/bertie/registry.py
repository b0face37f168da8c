"""Named tables, which installed packages add to. An unknown name raises an error with the choices.

A package adds a row by an entry point in its pyproject.toml, and is imported when the row is used:

    [project.entry-points."bertie.tasks"]
    ordinal = "bertie_ordinal:OrdinalTask"
"""

import gc
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Generic, TypeVar, cast

from bertie.errors import NoPackage, UnknownName, UsageError, nearest

_T = TypeVar("_T")


def import_name(module: str, name: str) -> object:
    """Imports a name without a search for garbage: there is none, and it takes a sixth of the time of imports."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        return getattr(import_module(module), name)
    finally:
        if enabled:
            gc.enable()


@dataclass(frozen=True)
class Later(Generic[_T]):
    """An entry that is imported from a module when it is first used. package: the installed package it comes from."""

    module: str
    name: str
    package: str = ""

    def found(self) -> _T:
        """Imports and returns it. Raises UsageError for a package whose entry point leads nowhere."""
        try:
            return cast(_T, import_name(self.module, self.name))
        except (ImportError, AttributeError) as error:
            if not self.package:
                raise
            raise UsageError(
                f"The package {self.package} offers {self.module}:{self.name}, which cannot be imported ({error}). "
                f"Update the package, or remove it: pip uninstall {self.package}"
            ) from error


class Registry(Generic[_T]):
    """An ordered table of named things of one `kind` ("objective", "task", "variant").

    group: the entry points of installed packages that are rows too, after those of Bertie; "": none are.
    """

    def __init__(self, kind: str, rows: Iterable[tuple[str, _T | Later[_T]]] = (), *, group: str = "") -> None:
        self.kind, self.group = kind, group
        self._own: dict[str, _T | Later[_T]] = {}
        self._extended = True  # packages are asked after Bertie's own rows
        for name, thing in rows:
            self.add(name, thing)
        self._extended = not group

    def add(self, name: str, thing: _T | Later[_T]) -> _T | Later[_T]:
        """Adds a row. Raises UsageError when the name exists already."""
        if name in self:
            raise UsageError(f"There is a {self.kind} {name!r} already. Choose another name.")
        self._own[name] = thing
        return thing

    @property
    def _rows(self) -> dict[str, _T | Later[_T]]:
        """All rows. Packages are asked for theirs once; a name that exists keeps its meaning."""
        if not self._extended:
            self._extended = True
            for name, thing in offered().get(self.group, {}).items():
                self._own.setdefault(name, cast("Later[_T]", thing))
        return self._own

    def __getitem__(self, name: str) -> _T:
        thing = self._own.get(name) or self._rows.get(name)
        if thing is None:
            raise UnknownName(f"Unknown {self.kind} {name!r}. {nearest(name, self._rows)}")
        if isinstance(thing, Later):
            thing = self._own[name] = thing.found()
        return thing

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def items(self) -> Iterable[tuple[str, _T]]:
        """Returns the rows in the order in which they were added."""
        return [(name, self[name]) for name in self._rows]


@cache
def offered() -> Mapping[str, Mapping[str, Later[object]]]:
    """Returns what installed packages offer: group -> name -> what is imported later."""
    from importlib.metadata import distributions

    groups: dict[str, dict[str, Later[object]]] = {}
    for package in distributions():
        for point in package.entry_points:
            if point.group.startswith("bertie."):
                later: Later[object] = Later(point.module, point.attr, package.name)
                groups.setdefault(point.group, {}).setdefault(point.name, later)
    return groups


@cache
def package_of(module: str) -> str:
    """Returns the name of the installed package of a module, as pip calls it; "" for one that is not installed."""
    from importlib.metadata import packages_distributions

    return next(iter(packages_distributions().get(module.partition(".")[0], ())), "")


def library(name: str, what: str, extra: str) -> ModuleType:
    """Returns an optional package. Raises UsageError with the command that installs it; `what` needs it."""
    try:
        return import_module(name)
    except ImportError:
        raise NoPackage(f'{what} need the package {name}. Run: pip install "bertie[{extra}]"') from None
