"""Rows with words and tags, or with a text and the places of its entities.

    {"tokens": [...], "tags": [...]}
    {"text": ..., "entities": [{"start": 0, "end": 3, "label": ...}, [4, 7, "LOC"]]}

The list has a usual name, the one that is asked for, or (of Label Studio) any. In a table, it is JSON in a
cell. Programs: doccano, Label Studio, Prodigy, spaCy, and `bertie predict`.
"""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from bertie.errors import DataError
from bertie.io.annotations import PROGRAM, cell_labels, is_annotated, why_unused
from bertie.io.fields import source_of
from bertie.io.lines import BadRecord
from bertie.io.rows import FORMATS as rows_of
from bertie.io.rows import records, without_header
from bertie.io.table_format import TableFormat
from bertie.io.tables import Example
from bertie.io.words import (
    TaggedExample,
    TextPlace,
    are_texts,
    in_characters,
    places_of,
    script_unit,
    tag_words,
    unit_of,
    whole_number,
    word_spans,
)

TAGS = ("tags", "ner_tags", "pos_tags", "chunk_tags")
# Lists of the entities of a text; predictions are the last one.
_ENTITY_LISTS = ("label", "labels", "spans", "entities")
STARTS, ENDS, TYPES = ("start", "start_offset"), ("end", "end_offset"), ("label", "type", "labels")
EMPTY: tuple[object, ...] = (None, "", [])
_ROWS_SAMPLED = 100  # rows that tell how offsets count, and whether entities end within words
EXPECTED = 'not an object with "tokens" and "tags", or "text" and "entities"'


class Mark(NamedTuple):
    """An entity as a file has it. own: its text, if the file has that too."""

    start: int
    end: int
    kind: str
    own: str | None = None

    @property
    def place(self) -> TextPlace:
        """Its offsets and its text."""
        return self.start, self.end, self.own


class BadMarkError(ValueError):
    """What is wrong with an entity, in words that several rows can share."""


def has_places(path: Path | str, kind: str, format: TableFormat) -> bool:
    """Returns whether a table has lists of entities in the cells of its first rows."""
    try:
        rows = itertools.islice(records(path, replace(format, file=replace(format.file, kind=kind))), _ROWS_SAMPLED)
        return any(not isinstance(row, BadRecord) and _marks(row, format) for _, row in rows)
    except DataError:
        return False  # the reader says what is wrong with the file


def objects(kind: str, file: IO[bytes], format: TableFormat, where: str) -> Iterator[Example | BadRecord]:
    """Yields the examples of rows of any table. kind: of its rows."""
    rows = without_header(rows_of[kind](file, format, where))
    head = [*itertools.islice(rows, _ROWS_SAMPLED)]
    whole = [row for _, row in head if not isinstance(row, BadRecord)]
    usual = (one for one in format.columns.usual_text if any(one in row for row in whole))
    name = (*format.columns.text, *usual, "text")[0]
    unit = script_unit(row.get(name) for row in whole)
    offsets = next(filter(None, (_offsets_of(row, name, format) for row in whole)), "characters")
    for number, row in itertools.chain(head, rows):
        if isinstance(row, BadRecord):
            yield row
            continue
        source = source_of(row) if format.keep else None
        if name != "text" and are_texts(words := row.get(name)):  # a column of words, with a name of its own
            row = {column: value for column, value in row.items() if column != name} | {"tokens": words}
        text, lack = row.get(name), _lack(row, name)
        text = None if lack else text
        words = are_texts(row.get("tokens"))
        tagged = words and not format.columns.label and any(row.get(tags) is not None for tags in TAGS)
        try:
            marks = _marks(row, format) if format.columns.labelled and not tagged else None
            if format.columns.labelled and (reason := why_unused(row)):
                yield BadRecord(number, reason)
            elif isinstance(text, str) and marks is not None:
                yield tag_entity_text(text, [mark_of(one) for one in marks], unit, number, source, offsets)
            elif lack and row.get("tokens") is None:
                yield BadRecord(number, lack)
            elif words or not isinstance(text, str):
                yield _tagged(row, text, format, number, source)
            else:
                yield Example((text,), None, number, source=source)
        except BadMarkError as bad:
            yield BadRecord(number, str(bad))
        except (ValueError, TypeError):
            yield BadRecord(number, EXPECTED)


def _lack(row: Mapping[str, object], name: str) -> str:
    """Returns why a row has no text in a column; "" for one with a text, or without the column."""
    text = row.get(name, "")
    if isinstance(text, str):
        return "empty text" if name in row and not text.strip() else ""
    return f"no {name}" if text is None else f"{name} is not a text"


def _offsets_of(row: Mapping[str, object], name: str, format: TableFormat) -> str:
    """Returns how the offsets of a row count, if the texts of its entities say so; "" otherwise."""
    text, marks = row.get(name), _marks(row, format)
    try:
        return unit_of(text, [mark_of(one).place for one in marks or ()]) if isinstance(text, str) else ""
    except ValueError:
        return ""


def _tagged(
    row: Mapping[str, object], text: Any, format: TableFormat, number: int, source: Mapping[str, object] | None
) -> Example | BadRecord:
    """Returns the example of a row with words and tags. Raises ValueError for a row without words.

    text: has the spaces between the words, if it consists of them.
    """
    names = (format.columns.label,) if format.columns.label else (format.columns.usual_label, *TAGS)
    words, tags = row.get("tokens"), next((row[name] for name in names if row.get(name) is not None), None)
    if words is None:
        raise ValueError
    if isinstance(tags, list):
        tags = [str(tag) if type(tag) is int else tag for tag in tags]
    example = tag_words(words, tags, number)
    if not isinstance(example, TaggedExample):
        return example
    spans = places_of(text, cast(list[str], words)) if isinstance(text, str) else None
    example = replace(example, texts=(text,), spans=spans) if spans else example
    return replace(example, source=source)


def _marks(row: Mapping[str, Any], format: TableFormat) -> list[Any] | None:
    """Returns the entities of a row: a list of lists or of objects. None: it has none, or a list of something else."""
    names = (format.columns.label,) if format.columns.label else _ENTITY_LISTS
    for name in (
        *names,
        *(name for name in row if not format.columns.label and name not in (*_ENTITY_LISTS, *PROGRAM)),
    ):
        value = row.get(name)
        value = cell_labels(value) if isinstance(value, str) else value
        listed = isinstance(value, list) and all(isinstance(one, list | dict) for one in value)
        if listed and (name in names or (value and all(map(_has_place, value)))):
            return cast(list[Any], value)
    return [] if is_annotated(row) else None


def _has_place(mark: object) -> bool:
    """Returns whether a value is an entity as Label Studio has it, under any name of a control."""
    return isinstance(mark, dict) and "start" in mark and any(name in mark for name in TYPES)


def tag_entity_text(
    text: str,
    marks: Sequence[Mark],
    unit: str,
    number: int,
    source: Mapping[str, Any] | None = None,
    offsets: str = "characters",
) -> Example | BadRecord:
    """Returns the example of a text with entities, as tags B-TYPE and I-TYPE of its words.

    unit: how the text is split into words. offsets: how those of the file count.
    """
    spans, widened = word_spans(text, unit), 0
    tags = ["O"] * len(spans)
    places = in_characters(text, [mark.place for mark in marks], offsets)
    if places is None:
        has_texts = any(mark.own is not None for mark in marks)
        why = "an entity whose own text is not at its place" if has_texts else "an entity outside of the text"
        return BadRecord(number, why)
    kinds = [mark.kind for mark in marks]
    firsts, lasts = [first for first, _ in spans], [last for _, last in spans]
    for (start, end), kind in sorted(zip(places, kinds, strict=True)):
        if not text[start:end].strip():
            return BadRecord(number, "an entity outside of the text")
        start, end = end - len(text[start:end].lstrip()), start + len(text[start:end].rstrip())
        inside = range(bisect_right(lasts, start), bisect_left(firsts, end))
        if any(tags[i] != "O" for i in inside):
            return BadRecord(number, "entities that share a word")
        tags[inside[0]], tags[inside[0] + 1 : inside[-1] + 1] = f"B-{kind}", [f"I-{kind}"] * (len(inside) - 1)
        widened += (spans[inside[0]][0], spans[inside[-1]][1]) != (start, end)
    return TaggedExample((text,), tuple(tags), number, spans=spans, widened=widened, source=source)


def mark_of(mark: Any) -> Mark:
    """Returns an entity of doccano, Label Studio, Prodigy or spaCy, or of `bertie predict`. Raises BadMarkError."""
    own = None
    if isinstance(mark, dict):
        text = mark.get("text")
        own = text if isinstance(text, str) and text.strip() else None
        mark = [next((mark[name] for name in names if name in mark), None) for names in (STARTS, ENDS, TYPES)]
    if len(mark) != 3:
        raise BadMarkError("an entity that is not a list of its start, end and label")
    start, end, kind = mark
    if isinstance(kind, list) and len(kind) > 1:
        raise BadMarkError("an entity with several labels")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if isinstance(start, str) and start.startswith("/"):
        raise BadMarkError("an entity in a page of HTML, whose place is not in characters")
    if missing := [name for name, one in (("a start", start), ("an end", end), ("a label", kind)) if one in EMPTY]:
        raise BadMarkError(f"an entity without {' and '.join(missing)}")
    first, last = whole_number(start), whole_number(end)
    if first is None or last is None:
        raise BadMarkError("an entity whose start or end is not a whole number")
    if not isinstance(kind, str) or not kind.strip():
        raise BadMarkError("an entity whose label is not a text")
    return Mark(first, last, kind.strip(), own)
