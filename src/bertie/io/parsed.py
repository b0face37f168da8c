"""Sentences with heads and relations of words: dependency treebanks in their published formats.

    conllu      Universal Dependencies: ten columns; the head is the seventh, the relation the eighth
    klue-dp     KLUE-DP: INDEX WORD_FORM LEMMA POS HEAD DEPREL, comments begin with "##"

An example is `TaggedExample`: its label has for each word (head, relation), the head counted from 1, 0 for the root.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from bertie.errors import UsageError, nearest
from bertie.io.conll import NUMBER, ud_words
from bertie.io.lines import BadRecord, opened, where_of
from bertie.io.streams import suffix_of
from bertie.io.table_format import TableFormat
from bertie.io.tables import Example
from bertie.io.words import blocks, spaced

Words = tuple[list[list[str]], list[bool] | None]
"""The columns of each word, and whether a space follows it (None: always)."""


def trees(path: Path | str, format: TableFormat) -> Iterator[Example | BadRecord]:
    """Yields the sentences of a file in order; `line` is where one begins. A damaged one, or no tree, is an
    `BadRecord`.

    file.kind: one of FORMATS, by default by the name: .conllu, else klue-dp. Without columns.labelled, heads and
    relations are not read.
    """
    kind = format.file.kind or ("conllu" if suffix_of(path) == "conllu" else "klue-dp")
    if kind not in FORMATS:
        raise UsageError(f"Unknown format of parsed sentences {kind!r}. {nearest(kind, FORMATS)}")
    columns, comment, read, head, relation = FORMATS[kind]
    with opened(path) as file:
        for block in blocks(
            file, format.file.encoding, where_of(path), comment=comment, usual=format.file.usual_encoding
        ):
            if isinstance(block, BadRecord):
                yield block
                continue
            line, rows = block[0][0], [text.split("\t") for _, text in block]
            if any(len(row) != columns or not NUMBER.fullmatch(row[0]) for row in rows):
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


def _plain(rows: list[list[str]]) -> Words:
    return rows, None


FORMATS: dict[str, tuple[int, str, Callable[[list[list[str]]], Words], int, int]] = {
    "conllu": (10, "#", ud_words, 6, 7),
    "klue-dp": (6, "##", _plain, 4, 5),
}
"""Name -> columns, prefix of comments, which rows are words, the columns of head and relation."""


class Trees:
    """Files of sentences with the head of each word."""

    FORMATS = FORMATS
    read = staticmethod(trees)
