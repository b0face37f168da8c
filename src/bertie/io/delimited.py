"""Tables in lines of text: csv, tsv, a text per line, and fastText's labels before a text."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace

from bertie.io.header import Lines, Row, fields_of, tabular
from bertie.io.lines import BadRecord, decoded
from bertie.io.splitter import separator_of, split_records
from bertie.io.table_format import TableFormat

ALL_QUOTED = re.compile(r'"[^"]*"(\t"[^"]*")+')
SEPARATOR = re.compile(r"sep=([,;\t|])", re.IGNORECASE)
FASTTEXT = b"__label__"  # before each label, in a line of fastText


def read_tsv(file: Lines, format: TableFormat, where: str) -> Iterator[Row]:
    """Tab-separated without quoting: in GLUE and NSMC, a quotation mark is text. Where all names have them, as R writes
    them, they are not."""
    lines = decoded(file, format.file.encoding, where, usual=format.file.usual_encoding)
    head = next(lines, None)
    if head is None:
        return
    lines = itertools.chain([head], lines)
    if isinstance(head[1], str) and not format.file.names and ALL_QUOTED.fullmatch(head[1]):
        yield from tabular(split_records(lines, "\t"), format, where, "\t")
        return

    values = ((number, line if isinstance(line, BadRecord) else line.split("\t")) for number, line in lines)
    for number, row in tabular(values, format, where, "\t"):
        if isinstance(row, BadRecord) and row.source is not None:
            cells = [cell for cell in row.source.values() if cell]
            if not cells:
                row = BadRecord(number, "empty line")
            elif any(cell.startswith('"') and cell.count('"') % 2 for cell in cells):
                row = replace(row, reason=f"{row.reason}; for values in quotation marks, pass --format csv")
        yield number, row


def read_csv(file: Lines, format: TableFormat, where: str) -> Iterator[Row]:
    """Values between commas with quotation marks (RFC 4180); a quoted field may contain line ends.

    A first line without commas is split at its semicolons, as Excel writes in countries with decimal commas, tabs, or
    bars. A line `sep=;` before it, which Excel reads, names the separator.
    """
    lines = decoded(file, format.file.encoding, where, usual=format.file.usual_encoding)
    head = next(lines, None)
    if head is None:
        return
    stated = SEPARATOR.fullmatch(head[1]) if isinstance(head[1], str) else None
    separator = "," if isinstance(head[1], BadRecord) else separator_of(head[1], len(format.file.names))
    if stated:
        separator = stated[1]
    else:
        lines = itertools.chain([head], lines)
    yield from tabular(split_records(lines, separator), format, where, separator)


def read_text_lines(file: Lines, format: TableFormat, where: str) -> Iterator[Row]:
    """One text per line; with two text columns, or `columns`, their fields between tabs."""
    names = format.file.names or format.columns.text or ("text",)
    for number, line in decoded(file, format.file.encoding, where, usual=format.file.usual_encoding):
        if isinstance(line, BadRecord):
            yield number, line
        else:
            yield number, {"text": line} if names == ("text",) else fields_of(line.split("\t"), names, number, "\t")


def read_fasttext(file: Lines, format: TableFormat, where: str) -> Iterator[Row]:
    """A text per line after its labels, as fastText reads them: __label__good a lovely film."""
    mark = FASTTEXT.decode()
    for number, line in decoded(file, format.file.encoding, where, usual=format.file.usual_encoding):
        if isinstance(line, BadRecord):
            yield number, line
            continue
        words = line.split()
        labels = [word.removeprefix(mark) for word in itertools.takewhile(lambda word: word.startswith(mark), words)]
        labels += [word.removeprefix(mark) for word in reversed(words[len(labels) :]) if word.startswith(mark)]
        yield number, {"label": labels, "text": " ".join(word for word in words if not word.startswith(mark))}
