"""Sentences with a tag for each word, in their published formats and those of annotation programs.

    conll, conllu, klue        lines of words with tags (conll.py)
    jsonl, json, parquet       {"tokens": [...], "tags": [...]}, or {"text": ..., "entities": [{"start": 0, "end": 3,
                               "label": ...}]}; for prediction also {"text": ...} (entities.py)
    csv, tsv, xlsx             a word per row, or a text per row with such a list in a cell
    brat, webanno              the formats of brat, and of INCEpTION and WebAnno

An empty line ends a sentence. An example's text is the original sentence, or its words separated by spaces. `spans` are
the characters of each word, and its label is the words' tags, those of BILOU in BIOES.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

from bertie.errors import MissingColumn, UnknownName, UsageError, nearest
from bertie.io.brat import brat
from bertie.io.conll import FORMATS as TREES
from bertie.io.conll import conll, conllu, read_klue_tags, trees
from bertie.io.entities import has_places, objects
from bertie.io.fields import Fields
from bertie.io.lines import BadRecord, open_file, where_of
from bertie.io.rows import FORMATS as rows_of
from bertie.io.rows import check_known, column_names, first_line, table_kind, without_header
from bertie.io.streams import format_by_name, suffix_of
from bertie.io.table_format import TableFormat
from bertie.io.tables import Example
from bertie.io.webanno import BEGINS, webanno
from bertie.io.words import TaggedExample, in_bioes, tag_words

_TABLES = ("jsonl", "json", "parquet")
FORMATS: dict[str, Callable[[IO[bytes], TableFormat, str], Iterator[Example | BadRecord]]] = {
    "conll": conll,
    "conllu": conllu,
    "klue": read_klue_tags,
    "webanno": webanno,
    **{kind: partial(objects, kind) for kind in _TABLES},
}
FOLDER_FORMAT = "brat"  # the only format that is read from several files


def kind_of_words(path: Path | str) -> str:
    """Returns the format of tagged words of a file, from its name or its first line; "" for an unknown one."""
    if Path(path).is_dir():
        return FOLDER_FORMAT
    kind = format_by_name(path)
    kind = kind if kind in ("conll", "conllu", FOLDER_FORMAT, *_TABLES) else ""
    if kind == "json":
        return table_kind(path)
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
    if kind == FOLDER_FORMAT:
        yield from _in_bioes(brat(path, format))
        return
    places = kind in WORD_TABLES and has_places(path, kind, format)
    table = None if places else word_table(path, format)
    if not format.file.kind and not table and not places and kind not in FORMATS:
        kind = "conll"
    if kind not in FORMATS and not table and not places:
        raise UnknownName(f"Unknown format of tagged words {kind!r}. {nearest(kind, (*FORMATS, FOLDER_FORMAT))}")
    if not table and not places and (format.file.names or (format.columns.text and kind not in _TABLES)):
        option = "--columns" if format.file.names else "--text"
        raise UsageError(f"{where_of(path)} has words with tags, without named text columns. Omit {option}.")
    with open_file(path) as file:
        read = partial(word_rows, table) if table else partial(objects, kind) if places else FORMATS[kind]
        for row in _in_bioes(read(file, format, where_of(path))):
            if format.keep and isinstance(row, TaggedExample) and row.source is None:
                words, tags = [row.texts[0][start:end] for start, end in row.spans], row.label
                columns = {} if tags is None else {"tokens": words, "tags": list(tags)}
                row = replace(row, source={"text": row.texts[0], **columns})
            yield row


def _in_bioes(rows: Iterator[Example | BadRecord]) -> Iterator[Example | BadRecord]:
    for row in rows:
        if isinstance(row, TaggedExample) and row.label is not None:
            row = replace(row, label=tuple(map(in_bioes, row.label)))
        yield row


class AnnotatedFile:
    """A file of sentences with trees or a tag for each word. kind: its format, by default by its name."""

    def __init__(self, path: Path | str, kind: str = "", encoding: str = "utf-8") -> None:
        self.path, self.format = path, TableFormat.of(kind=kind, encoding=encoding)
        self.has_trees, self.has_tags = kind in TREES, kind in FORMATS and kind not in _TABLES

    def trees(self) -> Iterator[TaggedExample | BadRecord]:
        """Yields sentences with the head of each word."""
        yield from map(_tagged, trees(self.path, self.format))

    def tags(self) -> Iterator[TaggedExample | BadRecord]:
        """Yields sentences with a tag for each word."""
        yield from map(_tagged, sentences(self.path, self.format))


def _tagged(row: Example | BadRecord) -> TaggedExample | BadRecord:
    assert isinstance(row, TaggedExample | BadRecord), "these readers yield sentences of words"
    return row


EMPTY_LINE = "empty line"
WORD_TABLES = ("csv", "tsv", "xlsx")
WORD, TAG = ("word", "token", "단어"), ("tag", "label", "ner_tag", "태그", "라벨")
_SENTENCE = ("sentence #", "sentence#", "sentence_id", "sentence id", "sentence_idx", "sent_id")
_MAX_SENTENCE_WORDS = 1000  # words of a sentence: a table that has no ends of sentences is one


class WordTable(NamedTuple):
    """A table with a word per row: its format and its columns; "" for one that it does not have."""

    kind: str
    word: str
    tag: str
    sentence: str


def word_table(path: Path | str, format: TableFormat) -> WordTable | None:
    """Returns the columns of a table with a word per row, from its header; None for another file.

    The word is in columns.text, or in a recognized column. Without labels, the columns of the word and of the
    sentence must have known names, since other tables have texts.
    """
    kind = format.file.kind or suffix_of(path)
    if kind not in WORD_TABLES or not Path(path).is_file():
        return None
    names = format.file.names or column_names(path, replace(format, file=replace(format.file, kind=kind)))
    lower = {name.strip().lower(): name for name in names}

    def column(names: Sequence[str], known: Sequence[str]) -> str:
        return next((name for name in names if name), "") or next((lower[name] for name in known if name in lower), "")

    usual = [name for name in (*format.columns.usual_text[:1], format.columns.usual_label) if name in names]
    word = column((*format.columns.text[:1], *usual[:1]), WORD)
    tag, sentence = column((format.columns.label or "", *usual[1:]), TAG), column((), _SENTENCE)
    if not word or (not format.columns.labelled and not (sentence and word.strip().lower() in WORD)):
        return None
    if missing := next((name for name in (word, tag) if name and name not in names), ""):
        raise MissingColumn(f"{path} has no column {missing!r}. {nearest(missing, names)}")
    if format.columns.labelled and not tag:
        raise MissingColumn(f"{path} has no column of tags among {', '.join(map(repr, names))}. Pass --label COLUMN.")
    return WordTable(kind, word, tag, sentence)


def word_rows(table: WordTable, file: IO[bytes], format: TableFormat, where: str) -> Iterator[Example | BadRecord]:
    """Yields the sentences of a table with a word per row. One ends before another number, and at an empty row."""
    rows, bad, first, current, ends = list[Fields](), None, 0, None, 0
    for number, row in itertools.chain(
        without_header(rows_of[table.kind](file, format, where)), [(0, BadRecord(0, EMPTY_LINE))]
    ):
        empty = row.reason == EMPTY_LINE if isinstance(row, BadRecord) else not any(row.values())
        name = None if empty or isinstance(row, BadRecord) else row.get(table.sentence) or None
        if (rows or bad) and (empty or (name is not None and name != current)):
            if not table.sentence and not ends and len(rows) > _MAX_SENTENCE_WORDS:
                raise MissingColumn(
                    f"{where} has no column that tells sentences apart. Add a column sentence_id, or an empty line "
                    "after each sentence."
                )
            words, tags = ([str(one.get(column) or "").strip() for one in rows] for column in (table.word, table.tag))
            yield bad or tag_words(words, tags if format.columns.labelled else None, first)
            rows, bad, ends = [], None, ends + 1
        if empty:
            continue
        first = first if rows or bad else number
        if isinstance(row, BadRecord):
            bad = bad or row
        else:
            rows.append(row)
            current = name if name is not None else current
