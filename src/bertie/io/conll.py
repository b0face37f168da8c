"""Words in lines, with tags or with heads: CoNLL, Universal Dependencies, KLUE-NER, KLUE-DP.

    conll      a word per line, its tag in the last column that has tags; CoNLL-2000, CoNLL-2003, WNUT-17, Label Studio
    conllu     Universal Dependencies: ten columns, with the text; the tag is the upos, or the xpos; the head is the
               seventh column, the relation the eighth
    klue       a character per line, comments begin with "##"; KLUE-NER
    klue-dp    INDEX WORD_FORM LEMMA POS HEAD DEPREL, comments begin with "##"; KLUE-DP

An example is `TaggedExample`. Its label has for each word its tag, or (head, relation), the head counted from 1, 0 for
the root.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from bertie.errors import DataError, UnknownName, UsageError, nearest
from bertie.io.lines import BadRecord, open_file, where_of
from bertie.io.streams import suffix_of
from bertie.io.table_format import TableFormat
from bertie.io.tables import Example
from bertie.io.words import TAG_SCHEME, TaggedExample, in_documents, line_blocks, spaced

UD_COLUMNS = {"upos": 3, "xpos": 4}
_NUMBER = re.compile(r"\d{1,9}([-.]\d{1,9})?")  # of a word in a sentence; 3-4: written as one; 8.1: not written


def conll(file: IO[bytes], format: TableFormat, where: str) -> Iterator[Example | BadRecord]:
    """Yields sentences of a word per line, with their documents where lines of -DOCSTART- divide them.

    columns.label: the column of the tags, from 1, or the last that has tags.
    """
    return in_documents(_sentences(file, format, where))


def _sentences(file: IO[bytes], format: TableFormat, where: str) -> Iterator[Example | BadRecord | None]:
    """Yields sentences, and None where a document starts."""
    column: int | None = None
    if format.columns.label:
        if not format.columns.label.isdecimal() or not 2 <= int(format.columns.label[:9]) < 1000:
            raise UsageError(f"The tag column must be a number, 2 or more, and not {format.columns.label!r}.")
        column = int(format.columns.label) - 1
    for block in line_blocks(file, where, format.file):
        if isinstance(block, BadRecord):
            yield block
            continue
        rows = [line.split("\t") if "\t" in line else re.split(" +", line.strip(" ")) for _, line in block]
        first = block[0][0]
        if rows[0][0] == "-DOCSTART-":
            yield None
            if len(rows) == 1:
                continue
            rows, first = rows[1:], block[1][0]  # a sentence follows without an empty line
        if column is None:
            column = _tag_column(rows, where)
        if any(len(row) <= column for row in rows):
            yield BadRecord(first, "a word without its tag")
        elif any(not row[0].strip() for row in rows):
            yield BadRecord(first, "a tag without its word")
        else:
            yield spaced([row[0].strip() for row in rows], [row[column].strip() for row in rows], first)


def _tag_column(rows: list[list[str]], where: str) -> int:
    """Returns the last column that has tags in every line of the first sentence."""
    width = min(map(len, rows))
    for column in range(width - 1, 0, -1):
        if all(TAG_SCHEME.fullmatch(row[column].strip()) for row in rows):
            return column
    if rows[0][0].startswith(("{", "[")):
        raise DataError(
            f"{where} has JSON instead of a word per line. Write one object per line, and pass --format jsonl or call "
            "the file .jsonl."
        )
    if suffix_of(where) == "csv" and any("," in cell for cell in rows[0]):
        raise DataError(
            f"{where} has commas instead of a word per line. Name the columns of the words and of the tags "
            "in its first line, and pass them: --text COLUMN --label COLUMN."
        )
    raise DataError(
        f"{where}: no column of {' '.join(rows[0])!r} has tags such as O, B-PER, I-PER in every line. For "
        "other tags, pass the column number: --label 2."
    )


def conllu(file: IO[bytes], format: TableFormat, where: str) -> Iterator[Example | BadRecord]:
    """Yields the sentences of a treebank. columns.label: upos or xpos."""
    name = format.columns.label or "upos"
    if name not in UD_COLUMNS:
        raise UnknownName(f"A conllu file has no tag column {name!r}. {nearest(name, UD_COLUMNS)}")
    for block in line_blocks(file, where, format.file, comment="#"):
        if isinstance(block, BadRecord):
            yield block
            continue
        rows = [line.split("\t") for _, line in block]
        if any(len(row) != 10 or not _NUMBER.fullmatch(row[0]) for row in rows):
            yield BadRecord(block[0][0], "not ten columns, the first a number")
            continue
        words, spaces = ud_words(rows)
        yield spaced([row[1] for row in words], [row[UD_COLUMNS[name]] for row in words], block[0][0], spaces)


def ud_words(rows: list[list[str]]) -> tuple[list[list[str]], list[bool]]:
    """Returns the rows of a sentence in ten columns that are words, and whether a space follows each."""
    words, spaces, until, space = [], [], 0, True
    for row in rows:
        after = "SpaceAfter=No" not in row[9].split("|")
        if "-" in row[0]:  # words written as one (29-30 didn't): no space between them, what follows as it says
            until, space = int(row[0].split("-")[1]), after
        elif "." not in row[0]:  # 8.1 is a word that is not written
            words.append(row)
            in_one = until and int(row[0]) <= until
            spaces.append((space and int(row[0]) == until) if in_one else after)
    return words, spaces


def read_klue_tags(file: IO[bytes], format: TableFormat, where: str) -> Iterator[Example | BadRecord]:
    """Yields sentences of a character per line."""
    for block in line_blocks(file, where, format.file, comment="##"):
        if isinstance(block, BadRecord):
            yield block
            continue
        rows = [line.split("\t") for _, line in block]
        if any(len(row) != 2 or len(row[0]) != 1 for row in rows):
            yield BadRecord(block[0][0], "not one character and its tag")
            continue
        places = [i for i, (character, _) in enumerate(rows) if character != " "]
        text, tags = "".join(character for character, _ in rows), tuple(rows[i][1] for i in places)
        if places:
            yield TaggedExample((text,), tags, block[0][0], spans=tuple((i, i + 1) for i in places))
        else:
            yield BadRecord(block[0][0], "empty text")


_Words = tuple[list[list[str]], list[bool] | None]
"""The columns of each word, and whether a space follows it (None: always)."""


def trees(path: Path | str, format: TableFormat) -> Iterator[Example | BadRecord]:
    """Yields the sentences of a file in order; `line` is where one begins. A damaged one, or no tree, is an
    `BadRecord`.

    file.kind: one of FORMATS, by default by the name: .conllu, else klue-dp. Without columns.labelled, heads and
    relations are not read.
    """
    kind = format.file.kind or ("conllu" if suffix_of(path) == "conllu" else "klue-dp")
    if kind not in FORMATS:
        raise UnknownName(f"Unknown format of parsed sentences {kind!r}. {nearest(kind, FORMATS)}")
    columns, comment, read, head, relation = FORMATS[kind]
    with open_file(path) as file:
        for block in line_blocks(file, where_of(path), format.file, comment=comment):
            if isinstance(block, BadRecord):
                yield block
                continue
            line, rows = block[0][0], [text.split("\t") for _, text in block]
            if any(len(row) != columns or not _NUMBER.fullmatch(row[0]) for row in rows):
                yield BadRecord(line, f"not {columns} columns, the first a number")
                continue
            words, spaces = read(rows)
            if [row[0] for row in words] != [str(number) for number in range(1, len(words) + 1)]:
                yield BadRecord(line, "words that are not numbered 1, 2, 3 ...")
            elif not all(row[1].strip() for row in words):
                yield BadRecord(line, "a word that is empty")
            elif not format.columns.labelled:
                example = spaced([row[1] for row in words], (), line, spaces)
                yield type(example)(example.texts, None, line, spans=example.spans)
            elif reason := _no_tree([row[head] for row in words]):
                yield BadRecord(line, reason)
            elif not all(row[relation].strip() for row in words):
                yield BadRecord(line, "a word without its relation")
            else:
                arcs = [(int(row[head]), row[relation]) for row in words]
                yield spaced([row[1] for row in words], arcs, line, spaces)


def is_tree(heads: list[int | None]) -> bool:
    """Returns whether every word is connected to the root (0). heads: of words 1, 2 ..."""
    safe = {0}
    for word in range(1, len(heads) + 1):
        path: list[int] = []
        at: int | None = word
        while at is not None and at not in safe and at not in path and at <= len(heads):
            path.append(at)
            at = heads[at - 1]
        if at not in safe:
            return False
        safe.update(path)
    return True


def _no_tree(heads: list[str]) -> str:
    """Returns why these heads are not a tree; "" for a tree."""
    if not all(head.isdecimal() and len(head) < 10 and int(head) <= len(heads) for head in heads):
        return "a head that is not a word of the sentence"
    return "" if is_tree([int(head) for head in heads]) else "heads that form a cycle"


def _plain(rows: list[list[str]]) -> _Words:
    return rows, None


FORMATS: dict[str, tuple[int, str, Callable[[list[list[str]]], _Words], int, int]] = {
    "conllu": (10, "#", ud_words, 6, 7),
    "klue-dp": (6, "##", _plain, 4, 5),
}
"""Name -> columns, prefix of comments, which rows are words, the columns of head and relation."""
