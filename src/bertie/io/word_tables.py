"""Tables with a word per row, with columns for the word, its tag and the sentence."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, NamedTuple

from bertie.errors import DataError, nearest
from bertie.io.fields import Fields
from bertie.io.lines import BadRecord
from bertie.io.rows import FORMATS as rows_of
from bertie.io.rows import column_names, without_header
from bertie.io.streams import suffix_of
from bertie.io.table_format import TableFormat
from bertie.io.tables import Example
from bertie.io.words import of_words

EMPTY = "empty line"
WORD_TABLES = ("csv", "tsv", "xlsx")
WORD, TAG = ("word", "token", "단어"), ("tag", "label", "ner_tag", "태그", "라벨")
SENTENCE = ("sentence #", "sentence#", "sentence_id", "sentence id", "sentence_idx", "sent_id")
LONGEST = 1000  # words of a sentence: a table that has no ends of sentences is one


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

    def column(given: Sequence[str], known: Sequence[str]) -> str:
        return next((name for name in given if name), "") or next((lower[name] for name in known if name in lower), "")

    usual = [name for name in (*format.columns.usual_text[:1], format.columns.usual_label) if name in names]
    word = column((*format.columns.text[:1], *usual[:1]), WORD)
    tag, sentence = column((format.columns.label or "", *usual[1:]), TAG), column((), SENTENCE)
    if not word or (not format.columns.labelled and not (sentence and word.strip().lower() in WORD)):
        return None
    if missing := next((name for name in (word, tag) if name and name not in names), ""):
        raise DataError(f"{path} has no column {missing!r}. {nearest(missing, names)}")
    if format.columns.labelled and not tag:
        raise DataError(f"{path} has no column of tags among {', '.join(map(repr, names))}. Pass --label COLUMN.")
    return WordTable(kind, word, tag, sentence)


def word_rows(table: WordTable, file: IO[bytes], format: TableFormat, where: str) -> Iterator[Example | BadRecord]:
    """Yields the sentences of a table with a word per row. One ends before another number, and at an empty row."""
    found, bad, first, current, ends = list[Fields](), None, 0, None, 0
    for number, row in itertools.chain(
        without_header(rows_of[table.kind](file, format, where)), [(0, BadRecord(0, EMPTY))]
    ):
        empty = row.reason == EMPTY if isinstance(row, BadRecord) else not any(row.values())
        name = None if empty or isinstance(row, BadRecord) else row.get(table.sentence) or None
        if (found or bad) and (empty or (name is not None and name != current)):
            if not table.sentence and not ends and len(found) > LONGEST:
                raise DataError(
                    f"{where} has no column that tells sentences apart. Add a column sentence_id, or an empty line "
                    "after each sentence."
                )
            words, tags = ([str(one.get(column) or "").strip() for one in found] for column in (table.word, table.tag))
            yield bad or of_words(words, tags if format.columns.labelled else None, first)
            found, bad, ends = [], None, ends + 1
        if empty:
            continue
        first = first if found or bad else number
        if isinstance(row, BadRecord):
            bad = bad or row
        else:
            found.append(row)
            current = name if name is not None else current
