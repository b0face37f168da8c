"""Tables in JSON: an object per line, or one value in any of the orientations that pandas and others write.

records   [{"text": "a", "label": "x"}]                      also within one object: {"data": [...]}
columns   {"text": {"0": "a"}, "label": {"0": "x"}}          pandas' default
index     {"0": {"text": "a", "label": "x"}}
list      {"text": ["a"], "label": ["x"]}
split     {"columns": ["text", "label"], "index": [0], "data": [["a", "x"]]}
table     {"schema": {...}, "data": [{"index": 0, "text": "a", "label": "x"}]}
values    [["a", "x"]]                                       without names
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import IO

from bertie.errors import BadFile, DataError
from bertie.io.annotations import records_of
from bertie.io.fields import Fields, Flat, composed, flat
from bertie.io.header import Row, fields_of, header, known_names
from bertie.io.lines import MAX_WHOLE_BYTES, BadRecord, check_characters, json_line, text_lines
from bertie.io.table_format import TableFormat

UNREADABLE_TEXT = "nested too deep, or half of a surrogate pair in a text"


def read_jsonl(file: IO[bytes], format: TableFormat, where: str) -> Iterator[Row]:
    """One JSON object per line."""
    names: tuple[str, ...] = ()
    for number, line in text_lines(file, where, format.file):
        if isinstance(line, BadRecord):
            yield number, line
            continue
        if not line.strip():
            yield number, BadRecord(number, "empty line")
            continue
        try:
            records = [_fields(record) for record in records_of(json_line(line), labelled=format.columns.labelled)]
        except (ValueError, RecursionError):
            if number == 1 and (line.lstrip().startswith("[") or line.strip() == "{"):
                raise DataError(
                    f"{where} is one JSON value over many lines. Rename it to .json, or pass --format json."
                ) from None
            yield number, BadRecord(number, "not JSON")
            continue
        for fields in records:
            if fields is None:
                yield number, BadRecord(number, "not a JSON object")
                continue
            names = names or tuple(fields)
            yield number, _ordered(fields, names)


def _fields(record: object) -> Flat | None:
    return flat(record) if isinstance(record, dict) else None


def read_json_table(file: IO[bytes], format: TableFormat, where: str) -> Iterator[Row]:
    """One JSON list of objects, as KLUE's files are, or a table in another orientation (orientations.py). Not streamed.

    The line is the object's number, from 1.
    """
    data = file.read(MAX_WHOLE_BYTES + 1)
    if len(data) > MAX_WHOLE_BYTES:
        raise DataError(
            f"{where} has more than {MAX_WHOLE_BYTES >> 30} GiB and would be read into memory. Convert it to .jsonl."
        )
    lines = []
    for number, line in text_lines(data.splitlines(), where, format.file):
        if isinstance(line, BadRecord):  # without it, the list may still be valid, with fewer rows
            raise DataError(f"{where}, line {number}: {line.reason}. Convert the file to UTF-8, or pass --encoding.")
        lines.append(line)
    try:
        value = json.loads("\n".join(lines))
    except (ValueError, RecursionError) as error:
        more = "Extra data" in str(error)
        hint = "For one object per line, pass --format jsonl." if more else "The file may be truncated."
        raise BadFile(f"{where} is not JSON ({error}). {hint}") from None
    table = oriented(value, known_names(format))
    if table is None:
        raise DataError(
            f"{where} contains a JSON {type(value).__name__}; a list of objects, one per example, was expected."
        )
    columns, rows = table
    rows = [record for row in rows for record in records_of(row, labelled=format.columns.labelled)]
    if columns is None and rows and all(isinstance(row, list) for row in rows):
        columns = [*format.file.names]
        if not columns:
            raise DataError(f"{where} is a list of lists, without names. Pass them: --columns text,label.")
    if columns is not None:
        yield from _lists(rows, columns, where)
        return
    every, names = unique_names(rows), tuple[str, ...]()
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            yield number, BadRecord(number, "not a JSON object")
            continue
        try:
            fields = flat(row)
            check_characters(row)
        except (ValueError, RecursionError):
            yield number, BadRecord(number, UNREADABLE_TEXT)
            continue
        names = names or tuple(fields)
        yield number, _ordered(fields, (*names, *every) if number == 1 else names)
        every = ()


def unique_names(rows: Sequence[object]) -> tuple[str, ...]:
    """Returns the names that only other rows of a list than the first have: an annotator leaves out what is absent."""
    first = rows[0] if rows and isinstance(rows[0], dict) else {}
    values = {name: one for row in rows if isinstance(row, dict) for name, one in row.items()}
    return tuple(composed(name) for name, one in values.items() if name not in first and not isinstance(one, dict))


def _lists(rows: Sequence[object], columns: Sequence[str], where: str) -> Iterator[Row]:
    """Yields the fields of rows that are lists, by the names of their columns."""
    names = header(columns, where)
    for number, row in enumerate(rows, 1):
        if not isinstance(row, list | tuple):
            yield number, BadRecord(number, "not a JSON list")
            continue
        try:
            check_characters(row)
            fields = fields_of(row, names, number)
            yield number, fields if isinstance(fields, BadRecord) else flat(fields)
        except (ValueError, RecursionError):
            yield number, BadRecord(number, UNREADABLE_TEXT)


def _ordered(fields: Flat, first: Sequence[str]) -> Fields:
    """The first object's keys come first, so that the columns do not depend on what later rows omit."""
    if tuple(fields) == first:
        return fields
    ordered = Flat({name: fields.get(name) for name in (*first, *(name for name in fields if name not in first))})
    ordered.source = fields.source
    return ordered


Oriented = tuple[list[str] | None, Sequence[object]]
"""The names of the columns, where the rows are lists; and the rows."""


def oriented(value: object, known: Collection[str]) -> Oriented | None:
    """Returns the rows of a JSON value; None for one that is no table. known: usual names of columns.

    A record alone is a table of one row.
    """
    if isinstance(value, list):
        return None, value
    if not isinstance(value, dict):
        return None
    names, data = value.get("columns"), value.get("data")
    if isinstance(names, list) and isinstance(data, list):
        return [str(name) for name in names], data
    lists = [one for one in value.values() if isinstance(one, list) and one and _is_record(one[0])]
    if len(lists) == 1 and (lists[0] is data or not any(name in known for name in value)):
        return None, lists[0]
    parts = [*value.values()]
    if parts and all(isinstance(one, dict) for one in parts):
        return None, _nested(value, known)
    sizes = {len(one) if isinstance(one, list) else -1 for one in parts}
    if len(sizes) == 1 and -1 not in sizes:
        return [*map(str, value)], [*zip(*parts, strict=True)]
    return None, [value]


def _is_record(value: object) -> bool:
    """Returns whether a value is an object, or a text with an object of annotations, as spaCy has them."""
    pair = isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], dict)
    return isinstance(value, dict) or pair


def _nested(value: Mapping[str, Mapping[str, object]], known: Collection[str]) -> list[dict[str, object]]:
    """Returns the rows of an object of objects: of the columns, or of the rows."""
    inner = dict.fromkeys(name for one in value.values() for name in one)
    of_columns = any(name in known for name in value)
    if not of_columns and not any(name in known for name in inner):
        of_columns = all(name.isdecimal() for name in inner)
    if not of_columns:
        return [dict(row) for row in value.values()]
    return [{name: column.get(row) for name, column in value.items()} for row in inner]
