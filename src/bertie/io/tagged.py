"""Sentences with a tag for each word, in their published formats and those of annotation programs.

    conll, conllu, klue        lines of words with tags (conll.py)
    jsonl, json, parquet       {"tokens": [...], "tags": [...]}, or {"text": ..., "entities": [{"start": 0, "end": 3,
                               "label": ...}]}; for prediction also {"text": ...} (entities.py)
    csv, tsv, xlsx             a word per row, or a text per row with such a list in a cell (word_tables.py)
    brat, webanno              the formats of brat, and of INCEpTION and WebAnno

An empty line ends a sentence. An example's text is the original sentence, or its words separated by spaces. `spans` are
the characters of each word, and its label is the words' tags, those of BILOU in BIOES.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, TypeAlias

from bertie.errors import UsageError, nearest
from bertie.io.brat import brat
from bertie.io.conll import conll, conllu, klue
from bertie.io.entities import has_places, objects
from bertie.io.lines import BadRecord, opened, where_of
from bertie.io.rows import check_known, first_line, kind_of
from bertie.io.streams import format_of, suffix_of
from bertie.io.table_format import TableFormat
from bertie.io.tables import Example
from bertie.io.webanno import BEGINS, webanno
from bertie.io.word_tables import WORD_TABLES, word_rows, word_table
from bertie.io.words import TaggedExample, in_bioes

TABLES = ("jsonl", "json", "parquet")
FORMATS: dict[str, Callable[[IO[bytes], TableFormat, str], Iterator[Example | BadRecord]]] = {
    "conll": conll,
    "conllu": conllu,
    "klue": klue,
    "webanno": webanno,
    **{kind: partial(objects, kind) for kind in TABLES},
}
FOLDER = "brat"  # the only format that is read from several files


def kind_of_words(path: Path | str) -> str:
    """Returns the format of tagged words of a file, from its name or its first line; "" for an unknown one."""
    if Path(path).is_dir():
        return FOLDER
    kind = format_of(path)
    kind = kind if kind in ("conll", "conllu", FOLDER, *TABLES) else ""
    if kind == "json":
        return kind_of(path)
    if kind or not Path(path).is_file():
        return kind
    first = first_line(path).removeprefix(b"\xef\xbb\xbf")
    if first.startswith(BEGINS.encode()):
        return "webanno"
    return "klue" if first.startswith(b"## ") else ""


def sentences(path: Path | str, format: TableFormat) -> Iterator[Example | BadRecord]:
    """Yields the sentences of a file in order; `line` is where one begins. A damaged one is an `BadRecord`.

    file.kind: one of FORMATS or brat, by default by the name or the first line, else conll. columns.label: the tag
    column, by number from 1, or upos, xpos; by default as above. columns.text: the text of rows without tokens. Raises
    DataError for a missing file, or no column with tags; UsageError for columns that the format does not have.
    """
    check_known(path, format.file)
    kind = format.file.kind or kind_of_words(path) or suffix_of(path)
    if kind == FOLDER:
        yield from _in_bioes(brat(path, format))
        return
    places = kind in WORD_TABLES and has_places(path, kind, format)
    table = None if places else word_table(path, format)
    if not format.file.kind and not table and not places and kind not in FORMATS:
        kind = "conll"
    if kind not in FORMATS and not table and not places:
        raise UsageError(f"Unknown format of tagged words {kind!r}. {nearest(kind, (*FORMATS, FOLDER))}")
    if not table and not places and (format.file.names or (format.columns.text and kind not in TABLES)):
        option = "--columns" if format.file.names else "--text"
        raise UsageError(f"{where_of(path)} has words with tags, without named text columns. Omit {option}.")
    with opened(path) as file:
        read = partial(word_rows, table) if table else partial(objects, kind) if places else FORMATS[kind]
        for row in _in_bioes(read(file, format, where_of(path))):
            if format.keep and isinstance(row, TaggedExample) and row.source is None:
                words, tags = [row.texts[0][start:end] for start, end in row.spans], row.label
                told = {} if tags is None else {"tokens": words, "tags": list(tags)}
                row = replace(row, source={"text": row.texts[0], **told})
            yield row


def _in_bioes(rows: Iterator[Example | BadRecord]) -> Iterator[Example | BadRecord]:
    for row in rows:
        if isinstance(row, TaggedExample) and row.label is not None:
            row = replace(row, label=tuple(map(in_bioes, row.label)))
        yield row


class TaggedFile:
    """Files of sentences with a tag for each word. TABLES: the formats that are tables."""

    Example: TypeAlias = TaggedExample
    FORMATS, TABLES = FORMATS, TABLES
    read = staticmethod(sentences)
