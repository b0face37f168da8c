"""Tables in memory, read by the same readers as files: DataFrames, data sets, lists and iterators of rows.

    DataFrame, Dataset, list of dicts ... -> rows by column name -> a stream of JSON lines, under a name like a path's

Rows are made one at a time, so an iterator may be longer than memory. While a table is `open_as` a path, whatever reads
files reads it. Its line numbers are the numbers of its rows, from 1.
"""

import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from functools import partial
from numbers import Real
from os import PathLike
from typing import IO, Any, Protocol, runtime_checkable

from bertie.errors import BertieError, UsageError

MEMORY_SCHEME = "memory:"
_LINE_NUMBER = re.compile(r"\bline (\d)")
PAIR_FIELDS = ("text", "text_pair")
_tables: "dict[str, Table]" = {}  # those that can be read now, by their path
_numbers = itertools.count(1)
RowOf = Callable[[Sequence[object]], Mapping[str, object] | None]
"""Returns the values of a tuple by column; None: the last one is a label. Raises UsageError for what is no row."""


@runtime_checkable
class LazyRows(Protocol):
    """Protocol of rows that are computed when they are read, such as a LazyFrame of polars."""

    def collect(self) -> object:
        """Computes the rows."""
        ...


RowsInput = str | PathLike[str] | Iterable[object] | LazyRows
"""Rows in any form. It is the path of a file, a DataFrame of any library, an Arrow table or a data set of `datasets`.
Or it is an iterable of dicts, tuples or texts, a dict of columns, or a tuple (texts, labels)."""


@dataclass(frozen=True)
class Table:
    """Rows with named columns, as often as `rows` is called."""

    rows: Callable[[], Iterable[Mapping[str, Any]]]

    def __iter__(self) -> Iterator[Mapping[str, object]]:
        return iter(self.rows())

    def lines(self) -> Iterator[bytes]:
        """Yields each row as a line of JSON. Raises UsageError for what is no row or cannot be written as JSON."""
        for number, row in enumerate(self, 1):
            if not isinstance(row, Mapping):
                raise UsageError(f"Row {number} is a {type(row).__name__}; a dict or a tuple was expected.")
            values = {str(name): make_json_value(value) for name, value in row.items()}
            try:
                yield json.dumps(values, default=_within).encode() + b"\n"
            except (TypeError, ValueError) as error:
                raise UsageError(f"Row {number} has a value that cannot be read: {error}.") from None


def is_path(data: object) -> bool:
    """Whether data is the path of a file, not a table in memory."""
    return isinstance(data, str | PathLike)


def index_of(data: object) -> object:
    """Returns the index of a DataFrame or a Series of pandas; None for other data."""
    return getattr(data, "index", None) if type(data).__module__.partition(".")[0] == "pandas" else None


def with_columns(data: object) -> "Table | None":
    """Returns rows with columns as a table; None for texts."""
    if isinstance(data, Sequence):
        rows = any(isinstance(row, Mapping) for row in data[:1])
    else:
        rows = isinstance(data, Table | Mapping) or isinstance(getattr(data, "features", None), Mapping)
    if rows:
        return table_of(data, labeled=False)
    frame = frame_of(data)
    return None if frame is None or len(frame.shape) == 1 else _table_of_frame(frame)


def _table_of_frame(frame: Any) -> Table:
    """Returns the table of a DataFrame or a Series of narwhals."""
    if len(frame.shape) == 1:
        return Table(lambda: ({"text": text} for text in frame))
    gaps = [one for one in frame.iter_columns() if one.dtype.is_float() and one.is_nan().any()]
    whole = {one.name for one in gaps if (one.is_nan() | (one % 1 == 0)).all()}  # pandas has such integers as floats
    rows = partial(frame.iter_rows, named=True)
    integers = lambda row: row | {name: int(row[name]) for name in whole if row[name] == row[name]}  # noqa: E731
    return Table(lambda: map(integers, rows())) if whole else Table(rows)


def table_of(data: object, *, labeled: bool, row_of: RowOf | None = None) -> Table:
    """Returns a table of data in memory.

    Args:
        data: A DataFrame of pandas, polars or another library that narwhals knows, an Arrow table, a data set of
            `datasets`, a dict of columns, an iterable of dicts, of tuples or of texts, or a tuple (texts, labels).
        labeled: Whether the second value of a tuple is its label; otherwise, it is the second text of a pair.
        row_of: What the values of a tuple are, where the task says so.

    Raises:
        UsageError: The data have another form.
    """
    if isinstance(data, Table):
        return data
    if (frame := frame_of(data)) is not None:
        return _table_of_frame(frame)
    if isinstance(data, Mapping) and data and all(map(_is_list, data.values())):
        columns = {str(name): [*values] for name, values in data.items()}
        lengths = {name: len(values) for name, values in columns.items()}
        if len({*lengths.values()}) > 1:
            raise UsageError(f"The columns have different numbers of rows: {lengths}.")
        return Table(lambda: (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)))
    if isinstance(data, str | bytes | Mapping) or not isinstance(data, Iterable):
        raise UsageError(
            f"These are no rows: {type(data).__name__}. A path, a DataFrame, a data set, a list of dicts or tuples, "
            "a dict of columns, or a tuple (texts, labels) was expected."
        )
    if isinstance(features := getattr(data, "features", None), Mapping):  # of the library `datasets`
        names = {name: kind.names for name, kind in features.items() if getattr(kind, "names", None)}
        return Table(lambda: (_classes(row, names) for row in data))
    if isinstance(data, tuple) and len(data) == 2 and not any(isinstance(part, str | Mapping) for part in data):
        texts, labels = (list(part) for part in data)
        if len(texts) != len(labels):
            raise UsageError(f"There are {len(texts):,} texts and {len(labels):,} labels. Give each text its label.")
        return Table(lambda: (_row((text, label), labeled=True) for text, label in zip(texts, labels, strict=True)))
    if isinstance(data, Sequence):
        return Table(lambda: (_row(one, labeled=labeled, row_of=row_of) for one in data))
    once = iter(data)

    def rest() -> Iterator[Mapping[str, Any]]:
        nonlocal once
        if once is None:
            raise UsageError("An iterator of rows can be read once. Pass a list, or a new iterator.")
        source, once = once, None  # type: ignore[assignment]
        return (_row(one, labeled=labeled, row_of=row_of) for one in source)

    return Table(rest)


def _is_list(values: object) -> bool:
    return isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping)


def frame_of(data: object) -> Any:
    """Returns a DataFrame or a Series of any library as that of narwhals; None for data of another kind."""
    import narwhals

    frame = _by_narwhals(data)
    if isinstance(frame, narwhals.LazyFrame):
        frame = frame.collect()
    return frame if isinstance(frame, narwhals.DataFrame | narwhals.Series) else None


def _by_narwhals(data: Any) -> object:
    """Returns data of a library that narwhals knows as its own, and other data unchanged.

    Raises UsageError for two columns of one name.
    """
    import narwhals

    try:
        return narwhals.from_native(data, pass_through=True, allow_series=True)
    except narwhals.exceptions.DuplicateError:
        twice = next(name for name, count in Counter(map(str, data.columns)).items() if count > 1)
        raise UsageError(f"The table has several columns named {twice!r}. Rename or drop all but one.") from None


def _classes(row: Mapping[str, object], names: Mapping[str, Sequence[str]]) -> dict[str, object]:
    """Returns a row whose numbers of classes are their names; -1 is an unknown one."""
    return {
        name: (names[name][value] if value >= 0 else None) if name in names and isinstance(value, int) else value
        for name, value in row.items()
    }


def _row(one: object, *, labeled: bool, row_of: RowOf | None = None) -> Mapping[str, object]:
    """Returns a row by column name: of a dict, a text, or a tuple of text, second text and label."""
    if isinstance(one, Mapping):
        return one
    parts = (*one,) if isinstance(one, tuple | list) else (one,)
    if row_of is not None and len(parts) > 1 and (row := row_of(parts)) is not None:
        return row
    texts, label = (parts[:-1], {"label": parts[-1]}) if labeled and len(parts) > 1 else (parts, {})
    if len(texts) == 1 and isinstance(texts[0], tuple | list):
        texts = (*texts[0],)
    if len(texts) > len(PAIR_FIELDS):
        raise UsageError(f"A row has {len(parts)} values; a text or two{' and a label' * labeled} were expected.")
    return dict(zip(PAIR_FIELDS, texts, strict=False)) | label


def make_json_value(value: object) -> Any:
    """Returns a value as JSON has it: numbers of NumPy as numbers, dates as texts, what is missing as None."""
    if hasattr(value, "tolist"):  # of NumPy and Arrow
        value = value.tolist()
    if isinstance(value, date | time):
        value = value.isoformat()
    if isinstance(value, Decimal):
        value = str(value)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return None if is_missing(value) else value


def is_missing(value: object) -> bool:
    """Whether a value is None, NaN, or what pandas, which is not imported for it, has for no value."""
    of_pandas = type(value).__name__ in ("NAType", "NaTType")
    return value is None or of_pandas or (isinstance(value, Real | Decimal) and bool(value != value))


def _within(value: object) -> object:
    """Returns a value of a list or an object as JSON has it. Raises TypeError for one that JSON does not have."""
    known = make_json_value(value)
    if known is value:
        raise TypeError(f"a {type(value).__name__} is no text, number or list")
    return known


@contextmanager
def open_as(name: str, data: object, *, labeled: bool = True, row_of: RowOf | None = None) -> Iterator[str]:
    """Context with a path under which data can be read: a table in memory, or a file, whose path is unchanged.

    name: of the argument, such as `train`, which messages show instead of the path. labeled, row_of: as for `table_of`.
    """
    if is_path(data):
        yield str(data)
        return
    path = f"{MEMORY_SCHEME}{next(_numbers)}/{name}"
    _tables[path] = table_of(data, labeled=labeled, row_of=row_of)
    try:
        yield path
    except BertieError as error:
        error.message = _LINE_NUMBER.sub(r"row \1", error.message.replace(path, name))
        raise
    finally:
        del _tables[path]


def in_memory(path: object) -> bool:
    """Whether a path is that of a table in memory."""
    return str(path) in _tables


def stream_of(path: object) -> IO[bytes]:
    """Returns the rows of the table in memory with this path, as lines of JSON."""
    return io.BufferedReader(_Lines(_tables[str(path)].lines()), 1 << 16)


class _Lines(io.RawIOBase):
    """Lines as a readable stream."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines, self._left = lines, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self._left = self._left or next(self._lines, b"")
        piece, self._left = self._left[: len(buffer)], self._left[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)
