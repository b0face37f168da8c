"""Rows of tables: csv, tsv, jsonl, json, parquet, plain lines, standard input.

    bytes -> (line, fields by column name), or `InvalidRow` with its line and its reason

Everything but a JSON list is streamed. What makes a whole file unreadable (another encoding, a truncated parquet file)
is one DataError. tables.py defines the meaning of fields.
"""

import csv
import io
import itertools
import json
import re
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from bertie.console import counted
from bertie.data.lines import (
    LINE_END,
    WHOLE,
    InvalidRow,
    check_characters,
    decoded,
    json_line,
    opened,
    standard_input,
    where_of,
)
from bertie.data.sheets import sheet_rows
from bertie.data.streams import suffix_of
from bertie.errors import DataError, UsageError, nearest

if TYPE_CHECKING:
    from bertie.data.features import FeatureConfig

NO_TEXT = "nested too deep, or half of a surrogate pair in a text"
Lines = IO[bytes] | Iterable[bytes | None]  # of bytes: a file, or its lines
Fields = dict[str, Any]  # a text, or (from JSON and parquet) a list; None where there is nothing


class Flat(Fields):
    """Fields of an object with numbers or objects in it. source: the original object."""

    source: Mapping[str, Any]


def first_given(*values: Any) -> Any:
    """Returns the first value that a row has: not None and not an empty text. 0 is a value, and an id."""
    return next((value for value in values if value is not None and value != ""), None)


def source_of(fields: Fields) -> Mapping[str, Any]:
    """Returns the original content of a row: numbers as numbers, objects within objects."""
    return fields.source if isinstance(fields, Flat) else fields


def composed(name: str) -> str:
    """Returns the name of a column in Unicode's composed form. macOS may write Korean names decomposed."""
    return unicodedata.normalize("NFC", name)


def no_header(names: tuple[str, ...]) -> None:
    """Does nothing with the names of columns, where nobody asked for them."""


@dataclass(frozen=True)
class TableFormat:
    """How a file is read. Empty settings are inferred from the extension and the column names.

    text, label: columns. columns: names for a file without a header line. kind: one of FORMATS. labelled: whether rows
    without a label, and those with the label `undecided`, are invalid. keep: whether each example has its whole row
    (`Example.source`), which needs memory where examples are collected. features: the column of feature vectors, and
    how they are made. label_names: names for the labels of the file. meanings: such names, used if they are a
    model's labels and the labels of the file are not. usual_text, usual_label, usual_encoding: the columns and the
    encoding of the training file, used where text and label are not set and the file has them. on_header: called with
    the names of the columns, where a file has them before its rows.
    """

    text: tuple[str, ...] = ()
    label: str = ""
    columns: tuple[str, ...] = ()
    encoding: str = "utf-8"
    kind: str = ""
    labelled: bool = True
    undecided: str | None = None
    keep: bool = False
    features: "FeatureConfig | None" = None
    label_names: Mapping[str, str] = field(default_factory=dict, hash=False)
    meanings: Mapping[str, str] = field(default_factory=dict, hash=False)
    usual_text: tuple[str, ...] = ()
    usual_label: str = ""
    usual_encoding: str = ""
    on_header: Callable[[tuple[str, ...]], None] = field(default=no_header, compare=False)

    def __post_init__(self) -> None:
        for name in ("text", "columns"):
            object.__setattr__(self, name, tuple(map(composed, getattr(self, name))))
        object.__setattr__(self, "label", composed(self.label))


RECOGNISED = TableFormat()
OBJECT = re.compile(rb'\s*\{\s*["}]')
"""The beginning of a JSON object."""


def records(path: Path | str, format: TableFormat) -> Iterator[tuple[int, Fields | InvalidRow]]:
    """Yields (line, fields by column name) of every row; a malformed row is (line, `InvalidRow`)."""
    kind = format.kind or kind_of(path)
    if kind not in FORMATS:
        raise UsageError(f"Unknown table format {kind!r} of {path}. {nearest(kind, FORMATS)}")
    with opened(path) as file:
        yield from FORMATS[kind](file, format, where_of(path))


def kind_of(path: Path | str) -> str:
    """Returns the format of a file from its name without .gz, .zst, .xz or .bz2, or from its first line.

    When this begins with a JSON object, each line is one: in standard input, and in .txt and .json files. A .txt whose
    first line contains a tab is a tsv, as NSMC's and MRPC's are.
    """
    stdin = str(path) == "-"
    suffix = "" if stdin else suffix_of(path)
    if suffix in ("txt", "json", ""):
        first = LINE_END.split(_first_line(path).removeprefix(b"\xef\xbb\xbf"), 1)[0]
        if OBJECT.match(first):
            return "jsonl"
        if suffix == "json":
            return "json" if first.lstrip().startswith(b"[") else "jsonl"
        return "tsv" if b"\t" in first and not stdin else "lines"
    return {"ndjson": "jsonl", "pq": "parquet"}.get(suffix, suffix)


def _first_line(path: Path | str) -> bytes:
    """Returns the beginning of a file, with its first line; of standard input what has arrived, which is read again
    later."""
    if str(path) == "-":
        file: Any = standard_input()
        if hasattr(file, "peek"):
            return bytes(file.peek(1 << 16))
        line = bytes(file.readline(1 << 20))
        file.seek(-len(line), io.SEEK_CUR)
        return line
    if Path(path).is_file():  # what a look takes from a pipe would be gone
        with suppress(OSError, DataError), opened(path) as file:  # records() says what is wrong with the file
            return bytes(file.readline(1 << 20))
    return b""


SEPARATOR = re.compile(r"sep=([,;\t|])", re.IGNORECASE)
_NO_MORE = "\0no more"
FAULTS = {  # what the csv module says -> in our words
    "field larger": f"a field longer than {csv.field_size_limit():,} characters",
    "new-line character": "a carriage return outside of quotation marks",
}


def unique(names: Sequence[str]) -> tuple[str, ...]:
    """Returns unique names of columns, composed: a, a, -> a, a.1."""
    found: dict[str, None] = {}
    names = [composed(name) for name in names]
    for name in names:
        more = (f"{name}.{i}" for i in itertools.count(1))
        found[name if name not in found else next(other for other in more if other not in (*found, *names))] = None
    return tuple(found)


def _headed(names: Sequence[str], format: TableFormat) -> tuple[str, ...]:
    """Returns the unique names of the columns of a file, which `format.on_header` gets too."""
    found = unique(names)
    format.on_header(found)
    return found


def _named(values: Sequence[Any], names: Sequence[str], line: int, separator: str = ",") -> Fields | InvalidRow:
    if len(values) != len(names):
        kept = {**dict.fromkeys(names), **dict(zip(names, values, strict=False))}  # the columns of any other row
        if len(values) > len(names):
            kept[names[-1]] = separator.join(map(str, values[len(names) - 1 :]))
        return InvalidRow(line, f"{counted(len(values), 'column')} instead of {len(names)}", source=kept)
    return dict(zip(names, values, strict=True))


def _tsv(file: Lines, format: TableFormat, where: str) -> Iterator[tuple[int, Fields | InvalidRow]]:
    """Tab-separated without quoting: in GLUE and NSMC, a quotation mark is text."""
    names = format.columns
    for number, line in decoded(file, format.encoding, where, usual=format.usual_encoding):
        if isinstance(line, InvalidRow):
            yield number, line
        elif not names:
            names = _headed(line.split("\t"), format)
        elif not line and len(names) > 1:
            yield number, InvalidRow(number, "empty line")
        else:
            yield number, _named(line.split("\t"), names, number, "\t")


def _csv(file: Lines, format: TableFormat, where: str) -> Iterator[tuple[int, Fields | InvalidRow]]:
    """Values between commas with quotation marks (RFC 4180); a quoted field may contain line ends.

    A first line without commas is split at its semicolons, as Excel writes in countries with decimal commas, or tabs.
    A line `sep=;` before it, which Excel reads, names the separator.
    Where a quotation mark is left open, that line is invalid, and the lines after it are read again without it.
    """
    source, again = (
        decoded(file, format.encoding, where, usual=format.usual_encoding),
        deque[tuple[int, str | InvalidRow]](),
    )
    taken: list[tuple[int, str | InvalidRow]] = []  # the lines of the record that is being read

    def lines() -> Iterator[str]:
        while found := again.popleft() if again else next(source, None):
            taken.append(found)
            yield "\n" if isinstance(found[1], InvalidRow) else found[1] + "\n"
        yield _NO_MORE  # a record of its own, unless a quotation mark is open

    names = format.columns
    again.extend(itertools.islice(source, 1))
    head = again[0][1] if again else ""
    separator = ","
    if isinstance(head, str):
        named = SEPARATOR.fullmatch(head)
        separator = named[1] if named else _separator(head, len(names))
        if named:
            again.clear()
    reader = csv.reader(lines(), delimiter=separator)
    while True:
        taken.clear()
        fault = ""
        try:
            values = next(reader)
        except csv.Error as error:
            fault, values = next((ours for said, ours in FAULTS.items() if said in str(error)), str(error)), []
        if values == [_NO_MORE]:
            return
        number = taken[-1][0]
        unended = bool(values) and values[-1].endswith(_NO_MORE)
        if unended or (fault and len(taken) > 1):
            again.extendleft(reversed(taken[1:]))
            first, line = taken[0]
            yield first, line if isinstance(line, InvalidRow) else InvalidRow(first, "a quotation mark left open")
            if unended:
                reader = csv.reader(lines(), delimiter=separator)
        elif holes := [line for _, line in taken if isinstance(line, InvalidRow)]:
            for hole in holes:  # undecodable lines: the record they are part of, if there is one, goes with them
                yield hole.line, hole
        elif fault:
            yield number, InvalidRow(number, fault)
        elif not values:
            yield number, InvalidRow(number, "empty line")
        elif not names:
            names = _headed(values, format)
        else:
            yield number, _named(values, names, number, separator)


def _separator(line: str, columns: int) -> str:
    """Returns what separates the values of a csv file. columns: how many; 0 where the line has their names."""
    line = re.sub(r'"[^"]*"', "", line)
    found = (mark for mark in ";\t" if (line.count(mark) + 1 == columns if columns else mark in line))
    return next(found, ",") if "," not in line else ","


def _jsonl(file: IO[bytes], format: TableFormat, where: str) -> Iterator[tuple[int, Fields | InvalidRow]]:
    """One JSON object per line."""
    names: tuple[str, ...] = ()
    for number, line in decoded(file, format.encoding, where, usual=format.usual_encoding):
        if isinstance(line, InvalidRow):
            yield number, line
            continue
        if not line.strip():
            yield number, InvalidRow(number, "empty line")
            continue
        try:
            value = json_line(line)
            fields = flat(value) if isinstance(value, dict) else None
        except (ValueError, RecursionError):
            if number == 1 and line.lstrip().startswith("["):
                raise DataError(
                    f"{where} is one JSON list over many lines. Rename it to .json, or pass --format json."
                ) from None
            yield number, InvalidRow(number, "not JSON")
            continue
        if fields is None:
            yield number, InvalidRow(number, "not a JSON object")
            continue
        names = names or tuple(fields)
        yield number, _ordered(fields, names)


def _json(file: IO[bytes], format: TableFormat, where: str) -> Iterator[tuple[int, Fields | InvalidRow]]:
    """One JSON list of objects, as KLUE's files are; the line is the object's number, from 1. Not streamed."""
    data = file.read(WHOLE + 1)
    if len(data) > WHOLE:
        raise DataError(f"{where} has more than {WHOLE >> 30} GiB and would be read into memory. Convert it to .jsonl.")
    lines = []
    for number, line in decoded(data.splitlines(), format.encoding, where, usual=format.usual_encoding):
        if isinstance(line, InvalidRow):  # without it, the list may still be valid, with fewer rows
            raise DataError(f"{where}, line {number}: {line.reason}. Convert the file to UTF-8, or pass --encoding.")
        lines.append(line)
    try:
        rows = json.loads("\n".join(lines))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON ({error}). The file may be truncated.") from None
    if not isinstance(rows, list):
        raise DataError(
            f"{where} contains a JSON {type(rows).__name__}; a list of objects, one per example, was expected."
        )
    names: tuple[str, ...] = ()
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            yield number, InvalidRow(number, "not a JSON object")
            continue
        try:
            fields = flat(row)
            check_characters(row)
        except (ValueError, RecursionError):
            yield number, InvalidRow(number, NO_TEXT)
            continue
        names = names or tuple(fields)
        yield number, _ordered(fields, names)


def _ordered(fields: Flat, first: Sequence[str]) -> Fields:
    """The first object's keys come first, so that the columns do not depend on what later rows omit."""
    if tuple(fields) == first:
        return fields
    found = Flat({name: fields.get(name) for name in (*first, *(name for name in fields if name not in first))})
    found.source = fields.source
    return found


def _parquet(file: IO[bytes], format: TableFormat, where: str) -> Iterator[tuple[int, Fields | InvalidRow]]:
    """Row groups one after another; the line is the row's number, from 1. Numbers of classes become their names."""
    import pyarrow
    import pyarrow.parquet

    try:
        numbers = itertools.count(1)
        table = pyarrow.parquet.ParquetFile(file)
        classes = _classes(table.schema_arrow.metadata or {})
        _headed(table.schema_arrow.names, format)
        for batch in table.iter_batches(batch_size=4096):
            for row in batch.rename_columns(unique(batch.schema.names)).to_pylist():
                row |= {name: _class(row.get(name), names) for name, names in classes.items() if name in row}
                yield next(numbers), flat(row)
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:  # ValueError: a name or a text
        raise DataError(f"{where} is not a readable parquet file ({error}). The file may be truncated.") from None


def _classes(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """Returns the names of the classes of each column, in a file that the library `datasets` wrote."""
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        kinds = {composed(name): feature.get("feature", feature) for name, feature in features.items()}
        return {name: kind["names"] for name, kind in kinds.items() if kind.get("_type") == "ClassLabel"}
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _class(value: Any, names: Sequence[str]) -> Any:
    """Returns the name of a class, or the names in a list. -1 means that the class is not known."""
    if isinstance(value, list):
        return [_class(one, names) for one in value]
    return (names[value] if 0 <= value < len(names) else None) if isinstance(value, int) else value


def _xlsx(file: IO[bytes], format: TableFormat, where: str) -> Iterator[tuple[int, Fields | InvalidRow]]:
    """The first worksheet of a workbook that is not empty; the line is the row's number in it, from 1."""
    names = format.columns
    for number, values in sheet_rows(file, where):
        if not names:
            if any(value is not None for value in values):  # empty rows may precede the header
                names = _headed([str(as_text(value) or "") for value in values], format)
            continue
        cells = [*values, *[None] * (len(names) - len(values))]
        if not any(value is not None for value in cells):
            yield number, InvalidRow(number, "empty line")
            continue
        found = _named(cells, names, number)
        if not isinstance(found, InvalidRow):
            found = flat(found)
            found.update({name: "" for name, value in found.items() if value is None})  # an empty cell, as in a csv
        yield number, found


def _lines(file: IO[bytes], format: TableFormat, where: str) -> Iterator[tuple[int, Fields | InvalidRow]]:
    """One text per line; with two text columns, or `columns`, their fields between tabs."""
    names = format.columns or format.text or ("text",)
    for number, line in decoded(file, format.encoding, where, usual=format.usual_encoding):
        if isinstance(line, InvalidRow):
            yield number, line
        else:
            yield number, {"text": line} if names == ("text",) else _named(line.split("\t"), names, number, "\t")


def flat(value: dict[str, Any], within: str = "") -> Flat:
    """Returns fields of a JSON or parquet object: {"labels": {"real": 3.5}} is labels.real, "3.5"; lists do not
    change."""
    fields = Flat()
    fields.source = value
    for name, inner in value.items():
        key = within + composed(name)
        fields |= flat(inner, f"{key}.") if isinstance(inner, dict) else {key: as_text(inner)}
    return fields


def as_text(value: Any) -> Any:
    """Returns a value as a name or a text. True is "true", as in JSON; NaN is empty, and bytes are UTF-8."""
    if isinstance(value, bytes):  # of parquet files whose writer does not mark texts
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return value
    if isinstance(value, (date, time)):  # datetime is a date; from parquet and worksheets
        return value.isoformat()
    return str(value) if isinstance(value, (str, int, float, Decimal)) and value == value else None


FORMATS: dict[str, Callable[[Any, TableFormat, str], Iterable[tuple[int, Fields | InvalidRow]]]] = {
    "csv": _csv,
    "tsv": _tsv,
    "json": _json,
    "jsonl": _jsonl,
    "parquet": _parquet,
    "xlsx": _xlsx,
    "lines": _lines,
}
