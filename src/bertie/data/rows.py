"""Rows of tables: csv, tsv, jsonl, json, parquet, plain lines, standard input; a line or an object each.

    bytes -> (line, fields by column name), or Bad with its line and its reason

Everything but a JSON list streams. What makes a whole file unreadable (another encoding, a cut-off parquet file) is one
DataError. What fields mean, tables.py says.
"""

import csv
import io
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bertie.errors import DataError, UsageError, nearest

Fields = dict[str, Any]  # a text, or (from JSON and parquet) a list; None where there is nothing


@dataclass(frozen=True)
class Bad:
    """A row that cannot be used: where it is, and why, in words that several rows can share."""

    line: int
    reason: str


@dataclass(frozen=True)
class TableFormat:
    """How a file is to be read; what is empty is recognised by suffix and by column name.

    text, label: columns. columns: names for a file without a header line. kind: one of FORMATS. labelled: rows
    without a label are Bad, and so are those whose label is `undecided`.
    """

    text: tuple[str, ...] = ()
    label: str = ""
    columns: tuple[str, ...] = ()
    encoding: str = "utf-8"
    kind: str = ""
    labelled: bool = True
    undecided: str | None = None


RECOGNISED = TableFormat()
OBJECT = re.compile(rb'\s*\{\s*["}]')
"""How a JSON object begins."""


def records(path: Path | str, format: TableFormat) -> Iterator[tuple[int, Fields | Bad]]:
    """(line, fields by column name) of every row; a malformed row comes as (line, Bad)."""
    kind = format.kind or kind_of(path)
    if kind not in FORMATS:
        raise UsageError(f"Unknown table format {kind!r} of {path}. {nearest(kind, FORMATS)}")
    with opened(path) as file:
        yield from FORMATS[kind](file, format, where_of(path))


def where_of(path: Path | str) -> str:
    """What a file is called in messages."""
    return "standard input" if str(path) == "-" else str(path)


def opened(path: Path | str) -> AbstractContextManager[IO[bytes]]:
    """A file to be read, or standard input ("-"), which stays open. Raises DataError that says why it cannot be."""
    if str(path) == "-":
        return nullcontext(_standard_input())
    try:
        return open(path, "rb")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None


def _standard_input() -> IO[bytes]:
    if sys.stdin is None:
        raise DataError("Standard input is closed. Give a file, or pipe the texts into the command.")
    return sys.stdin.buffer


def kind_of(path: Path | str) -> str:
    """The format a file's name tells, and where the name tells nothing its first line.

    Where that begins with a JSON object, each line is one: in standard input, and in .txt and .json files. A .txt whose
    first line holds a tab is a tsv, as NSMC's and MRPC's are.
    """
    stdin = str(path) == "-"
    suffix = "" if stdin else Path(path).suffix.lower().removeprefix(".")
    if suffix in ("txt", "json", ""):
        first = _first_line(path).removeprefix(b"\xef\xbb\xbf")
        if OBJECT.match(first):
            return "jsonl"
        if suffix == "json":
            return "json" if first.lstrip().startswith(b"[") else "jsonl"
        return "tsv" if b"\t" in first and not stdin else "lines"
    return {"ndjson": "jsonl", "pq": "parquet"}.get(suffix, suffix)


def _first_line(path: Path | str) -> bytes:
    """How a file begins; of standard input what has arrived, which is read again later."""
    if str(path) == "-":
        file: Any = _standard_input()
        if hasattr(file, "peek"):
            return bytes(file.peek(1 << 16)).partition(b"\n")[0]
        line = bytes(file.readline(1 << 20))
        file.seek(-len(line), io.SEEK_CUR)
        return line
    try:
        with open(path, "rb") as file:
            return bytes(file.readline(1 << 20))
    except OSError:
        return b""  # records() says what is wrong with the file


def decoded(file: IO[bytes], encoding: str, where: str) -> Iterator[tuple[int, str | Bad]]:
    """(line number, text without its line end) of every line; undecodable lines come as Bad.

    A file in CP949, the old Korean Windows encoding, is recognised at its first line that is not ASCII and refused by
    name, since reading it as anything else would turn every text into noise.
    """
    try:
        "".encode(encoding)
    except LookupError:
        raise UsageError(f"Unknown encoding {encoding!r}. Examples: utf-8, cp949, latin-1.") from None
    seen_unicode = False
    for number, raw in enumerate(file, 1):
        if number == 1:
            if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise DataError(f"{where} is UTF-16. Save it as UTF-8, then read that.")
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        try:
            line = raw.decode(encoding)
        except UnicodeDecodeError:
            if encoding == "utf-8" and not seen_unicode and reads_as_korean(raw):
                raise DataError(
                    f"{where}, line {number}: this is not UTF-8 but reads as CP949 (Korean Windows). "
                    "If that is what it is, pass --encoding cp949."
                ) from None
            yield number, Bad(number, f"not {encoding}")
            continue
        seen_unicode = seen_unicode or not line.isascii()
        yield number, line.rstrip("\r\n")


def reads_as_korean(raw: bytes) -> bool:
    """Whether bytes decode as CP949 into text whose characters beyond ASCII are mostly Hangul syllables."""
    try:
        beyond = [c for c in raw.decode("cp949") if not c.isascii()]
    except UnicodeDecodeError:
        return False
    return bool(beyond) and sum("가" <= c <= "힣" for c in beyond) > len(beyond) / 2


def _named(values: Sequence[str], names: Sequence[str], line: int) -> Fields | Bad:
    if len(values) != len(names):
        return Bad(line, f"{len(values)} columns where {len(names)} are expected")
    return dict(zip(names, values, strict=True))


def _tsv(file: IO[bytes], format: TableFormat, where: str) -> Iterator[tuple[int, Fields | Bad]]:
    """Tab-separated, quoting off: in GLUE and NSMC a quotation mark is text."""
    names = format.columns
    for number, line in decoded(file, format.encoding, where):
        if isinstance(line, Bad):
            yield number, line
        elif not names:
            names = tuple(line.split("\t"))
        elif not line and len(names) > 1:
            yield number, Bad(number, "empty line")
        else:
            yield number, _named(line.split("\t"), names, number)


def _csv(file: IO[bytes], format: TableFormat, where: str) -> Iterator[tuple[int, Fields | Bad]]:
    """Comma-separated with quotation marks (RFC 4180); a quoted field may hold line ends."""
    bad: list[Bad] = []  # since the last record

    def lines() -> Iterator[str]:
        for _, line in decoded(file, format.encoding, where):
            if isinstance(line, Bad):
                bad.append(line)
                yield "\n"  # keeps the reader's count of lines right
            else:
                yield line + "\n"

    reader = csv.reader(lines())
    names = format.columns
    while True:
        begins = reader.line_num + 1
        try:
            values = next(reader, None)
        except csv.Error as error:
            where_from = f"lines {begins} to {reader.line_num}" if reader.line_num > begins else "one line"
            yield reader.line_num, Bad(reader.line_num, f"{error} ({where_from}: a quotation mark left open?)")
            continue
        holes, bad = bad, []
        for hole in holes:  # undecodable lines: the record they are part of, if there is one, goes with them
            yield hole.line, hole
        if values is None:
            return
        if holes:
            continue
        if not values:
            yield reader.line_num, Bad(reader.line_num, "empty line")
        elif not names:
            names = tuple(values)
        else:
            yield reader.line_num, _named(values, names, reader.line_num)


def _jsonl(file: IO[bytes], format: TableFormat, where: str) -> Iterator[tuple[int, Fields | Bad]]:
    """One JSON object a line."""
    names: tuple[str, ...] = ()
    for number, line in decoded(file, format.encoding, where):
        if isinstance(line, Bad):
            yield number, line
            continue
        if not line.strip():
            yield number, Bad(number, "empty line")
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            if number == 1 and line.lstrip().startswith("["):
                raise DataError(
                    f"{where} is one JSON list over many lines; name it .json, or pass --format json."
                ) from None
            yield number, Bad(number, "not JSON")
            continue
        if not isinstance(value, dict):
            yield number, Bad(number, "not a JSON object")
            continue
        fields = _flat(value)
        names = names or tuple(fields)
        yield number, _ordered(fields, names)


def _json(file: IO[bytes], format: TableFormat, where: str) -> Iterator[tuple[int, Fields | Bad]]:
    """One JSON list of objects, as KLUE's files are; the line is the object's number, from 1. Not streamed."""
    lines = [line for _, line in decoded(file, format.encoding, where)]
    try:
        rows = json.loads("\n".join(line if isinstance(line, str) else "" for line in lines))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON ({error}). Was its copy cut short?") from None
    if not isinstance(rows, list):
        raise DataError(f"{where} holds a JSON {type(rows).__name__}; a list of objects, one an example, was expected.")
    names: tuple[str, ...] = ()
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            yield number, Bad(number, "not a JSON object")
            continue
        fields = _flat(row)
        names = names or tuple(fields)
        yield number, _ordered(fields, names)


def _ordered(fields: Fields, first: Sequence[str]) -> Fields:
    """The first object's keys come first, so that the columns found do not depend on what later rows leave out."""
    return {name: fields.get(name) for name in (*first, *(name for name in fields if name not in first))}


def _parquet(file: IO[bytes], format: TableFormat, where: str) -> Iterator[tuple[int, Fields | Bad]]:
    """Row groups one after another; the line is the row's number, from 1."""
    import pyarrow
    import pyarrow.parquet

    try:
        numbers = itertools.count(1)
        for batch in pyarrow.parquet.ParquetFile(file).iter_batches(batch_size=4096):
            for row in batch.to_pylist():
                yield next(numbers), _flat(row)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{where} is not a readable parquet file ({error}). Was its copy cut short?") from None


def _lines(file: IO[bytes], format: TableFormat, where: str) -> Iterator[tuple[int, Fields | Bad]]:
    """One text a line; with two text columns, or `columns`, their fields between tabs."""
    names = format.columns or format.text or ("text",)
    for number, line in decoded(file, format.encoding, where):
        if isinstance(line, Bad):
            yield number, line
        else:
            yield number, {"text": line} if names == ("text",) else _named(line.split("\t"), names, number)


def _flat(value: dict[str, Any], within: str = "") -> Fields:
    """Fields of a JSON or parquet object: {"labels": {"real": 3.5}} is labels.real, "3.5"; lists stay as they are."""
    fields: Fields = {}
    for name, inner in value.items():
        fields |= _flat(inner, f"{within}{name}.") if isinstance(inner, dict) else {within + name: _field(inner)}
    return fields


def _field(value: Any) -> Any:
    """A value as a name or a text. True is "true", as JSON writes it; NaN is nothing."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return value
    return str(value) if isinstance(value, (str, int, float)) and value == value else None


FORMATS: dict[str, Callable[[IO[bytes], TableFormat, str], Iterable[tuple[int, Fields | Bad]]]] = {
    "csv": _csv,
    "tsv": _tsv,
    "json": _json,
    "jsonl": _jsonl,
    "parquet": _parquet,
    "lines": _lines,
}
