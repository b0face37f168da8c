"""Named tables. An unknown name raises an error with the choices."""

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from bertie.errors import UsageError, nearest

T = TypeVar("T")


class Registry(Generic[T]):
    """An ordered table of named things of one `kind` ("objective", "task", "variant")."""

    def __init__(self, kind: str, rows: Iterable[tuple[str, T]] = ()) -> None:
        self.kind = kind
        self._rows: dict[str, T] = {}
        for name, thing in rows:
            self.add(name, thing)

    def add(self, name: str, thing: T) -> T:
        """Adds a row. Raises ValueError when the name exists already."""
        if name in self._rows:
            raise ValueError(f"{self.kind} {name!r} is registered twice")
        self._rows[name] = thing
        return thing

    def __getitem__(self, name: str) -> T:
        try:
            return self._rows[name]
        except KeyError:
            raise UsageError(f"Unknown {self.kind} {name!r}. {nearest(name, self._rows)}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def items(self) -> Iterable[tuple[str, T]]:
        """Returns the rows in the order in which they were added."""
        return self._rows.items()
