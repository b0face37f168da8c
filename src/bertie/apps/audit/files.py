"""Reading of published and own files: rows of tables with the columns they must have, and lists in YAML."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from bertie.platform import BadRecord, DataError, SkipReport, SourceFile, TableFormat

_T = TypeVar("_T")
NamedCells = dict[str, Any]  # a row by the names of its columns


def header_has(head: bytes, *names: str) -> bool:
    """Returns whether the first line of a table names these columns."""
    line = head.partition(b"\n")[0].decode("utf-8", "replace")
    return all(name in line for name in names)


def read_table(
    path: Path, columns: Sequence[str], make: Callable[[NamedCells, int], _T | BadRecord], kind: str = ""
) -> tuple[list[_T], SkipReport]:
    """Returns what `make` returns for each row of a table, and the rows that cannot be used.

    Raises DataError when a column is missing, or no row can be used.
    """
    return SkipReport.collect(_rows(path, columns, make, kind), str(path))


def _rows(
    path: Path, columns: Sequence[str], make: Callable[[NamedCells, int], _T | BadRecord], kind: str
) -> Iterator[_T | BadRecord]:
    checked = False
    for line, fields in SourceFile(path).rows(TableFormat.of(kind=kind)):
        if isinstance(fields, BadRecord):
            yield fields
            continue
        if not checked and (missing := [name for name in columns if name not in fields]):
            have = ", ".join(map(repr, fields))
            raise DataError(f"{path} has no column {', '.join(map(repr, missing))}. It has {have}.")
        checked = True
        empty = next((name for name in columns if not str(fields.get(name) or "").strip()), None)
        yield make(fields, line) if empty is None else BadRecord(line, f"no {empty}")


def check_unique_names(names: Iterable[str]) -> None:
    """Raises DataError for a name that two tests or sets have: the figures of one would replace those of the other."""
    twice = [name for name, number in Counter(names).items() if number > 1]
    if twice:
        raise DataError(f"Several tests or templates of --files are called {twice[0]!r}. Give each a name of its own.")


def validated(kind: type[_T], raw: object, path: Path) -> list[_T]:
    """Returns a list of dataclasses from the values of a file. Raises DataError that names the wrong value."""
    try:
        return TypeAdapter(list[kind]).validate_python(raw)  # type: ignore[valid-type]
    except ValidationError as error:
        first = error.errors()[0]
        place = ": ".join([str(path), *[".".join(map(str, first["loc"]))] * bool(first["loc"])])
        raise DataError(f"{place}: {first['msg']}. See: bertie help audit.") from None
