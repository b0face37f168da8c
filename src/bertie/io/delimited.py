"""Tables in lines of text: csv, tsv, a text per line, and fastText's labels before a text.

`RecordSplitter` splits the lines of a csv into records of values (RFC 4180):

    feed(line) ... close() -> (line where it ends, values), or `BadRecord` with its line and its reason

A line without quotation marks is split at its separators, and one that is a record is left to the csv module. The rest,
records of several lines or beyond the limit of that module, which holds for the whole process, is parsed here. Where a
quotation mark is left open, that line is invalid, and the lines after it are read again without it.
"""

import csv
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from bertie.io.header import ByteLines, Row, fields_of, tabular
from bertie.io.lines import BadRecord, text_lines
from bertie.io.streams import suffix_of
from bertie.io.table_format import TableFormat

_MAX_RECORD_CHARACTERS = 16 << 20  # characters of a record: what bounds memory, and how far a mark may be left open
INSIDE = re.compile(r'[^"]*(?:""[^"]*)*')  # what may stand between quotation marks, in which "" is a mark
QUOTED = re.compile(r'"[^"]*"')
RETURN = "a carriage return outside of quotation marks"
_END = "\0end"  # a line of its own, unless a quotation mark is open
NumberedLine = tuple[int, str | BadRecord]
Record = tuple[int, list[str] | BadRecord]


class RecordSplitter:
    """Splits lines into records, in bounded memory."""

    def __init__(self, separator: str = ",") -> None:
        self._separator = separator
        self._lines: list[NumberedLine] = []  # of a record that is open
        self._parser = _Parser(separator)

    def feed(self, number: int, line: str | BadRecord) -> Sequence[Record]:
        """Returns the records that end with a line, which has no line end. number: of the line."""
        if not self._lines:
            if isinstance(line, BadRecord):
                return ((line.line, line),)
            if '"' not in line:
                if "\r" in line:
                    return ((number, BadRecord(number, RETURN)),)
                return ((number, line.split(self._separator) if line else BadRecord(number, "empty line")),)
            try:
                values = next(csv.reader((line, _END), delimiter=self._separator))
                if not values[-1].endswith(_END):
                    return ((number, values),)
            except csv.Error as error:
                if "field larger" not in str(error):
                    return ((number, BadRecord(number, RETURN if "new-line" in str(error) else str(error))),)
            self._parser = _Parser(self._separator)
        self._lines.append((number, line))
        try:
            ended = self._parser.feed("" if isinstance(line, BadRecord) else line)
        except ValueError as error:
            if len(self._lines) > 1:
                return self._give_up()
            self._lines = []
            return ((number, BadRecord(number, str(error))),)
        if not ended:
            return self._give_up() if self._parser.size > _MAX_RECORD_CHARACTERS else ()
        holes = [(line.line, line) for _, line in self._lines if isinstance(line, BadRecord)]
        self._lines = []
        return holes or ((number, self._parser.values),)  # a record goes with the line that cannot be decoded

    def close(self) -> Iterator[Record]:
        """Yields the records of the lines that are left, after the last one."""
        while self._lines:
            yield from self._give_up()

    def _give_up(self) -> list[Record]:
        """Returns the records of the open lines, of which the first has a mark that is left open."""
        (number, first), *rest = self._lines
        self._lines = []
        bad = first if isinstance(first, BadRecord) else BadRecord(number, "a quotation mark left open")
        return [(number, bad), *(record for line in rest for record in self.feed(*line))]


class _Parser:
    """Parses one record as the csv module does. values: complete ones; size: characters."""

    def __init__(self, separator: str) -> None:
        self._separator, self._parts, self._quoted = separator, list[str](), False
        self.values, self.size = list[str](), 0

    def feed(self, line: str) -> bool:
        """Returns whether the record ends with this line. Raises ValueError with the reason where it is none."""
        self.size += len(line) + 1
        at, begins = 0, not self._quoted
        while True:
            if begins and line.startswith('"', at):
                self._quoted, at = True, at + 1
            if self._quoted:
                stop = INSIDE.match(line, at).end()  # type: ignore[union-attr]  # it matches nothing, too
                self._parts.append(line[at:stop].replace('""', '"'))
                if stop == len(line):
                    self._parts.append("\n")  # the value goes on in the next line
                    return False
                self._quoted, at = False, stop + 1
            stop = line.find(self._separator, at)
            rest = line[at : stop if stop >= 0 else len(line)]
            if "\r" in rest:
                raise ValueError(RETURN)
            self.values.append("".join((*self._parts, rest)))
            self._parts = []
            if stop < 0:
                return True
            begins, at = True, stop + 1


def split_records(lines: Iterable[NumberedLine], separator: str) -> Iterator[Record]:
    """Yields the records of the lines of a table."""
    splitter = RecordSplitter(separator)
    for number, line in lines:
        yield from splitter.feed(number, line)
    yield from splitter.close()


def separator_of(line: str, columns: int) -> str:
    """Returns what separates the values of a file. columns: how many; 0 where the line has their names."""
    line = QUOTED.sub("", line)
    marks = (mark for mark in ";\t|" if (line.count(mark) + 1 == columns if columns else mark in line))
    return next(marks, ",") if "," not in line else ","


ALL_QUOTED = re.compile(r'"[^"]*"(\t"[^"]*")+')
SEPARATOR = re.compile(r"sep=([,;\t|])", re.IGNORECASE)
FASTTEXT = b"__label__"  # before each label, in a line of fastText


def read_tsv(file: ByteLines, format: TableFormat, where: str) -> Iterator[Row]:
    """Tab-separated without quoting: in GLUE and NSMC, a quotation mark is text. Where all names have them, as R writes
    them, they are not."""
    lines = text_lines(file, where, format.file)
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
            elif row.reason.startswith("1 column ") and suffix_of(where) == "txt":
                row = replace(row, reason=f"{row.reason}; for one text per line, pass --format lines")
        yield number, row


def read_csv(file: ByteLines, format: TableFormat, where: str) -> Iterator[Row]:
    """Values between commas with quotation marks (RFC 4180); a quoted field may contain line ends.

    A first line without commas is split at its semicolons, as Excel writes in countries with decimal commas, tabs, or
    bars. A line `sep=;` before it, which Excel reads, names the separator.
    """
    lines = text_lines(file, where, format.file)
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


def read_text_lines(file: ByteLines, format: TableFormat, where: str) -> Iterator[Row]:
    """One text per line; with two text columns, or `columns`, their fields between tabs."""
    names = format.file.names or format.columns.text or ("text",)
    for number, line in text_lines(file, where, format.file):
        if isinstance(line, BadRecord):
            yield number, line
        else:
            yield number, {"text": line} if names == ("text",) else fields_of(line.split("\t"), names, number, "\t")


def read_fasttext(file: ByteLines, format: TableFormat, where: str) -> Iterator[Row]:
    """A text per line after its labels, as fastText reads them: __label__good a lovely film."""
    mark = FASTTEXT.decode()
    for number, line in text_lines(file, where, format.file):
        if isinstance(line, BadRecord):
            yield number, line
            continue
        words = line.split()
        labels = [word.removeprefix(mark) for word in itertools.takewhile(lambda word: word.startswith(mark), words)]
        labels += [word.removeprefix(mark) for word in reversed(words[len(labels) :]) if word.startswith(mark)]
        yield number, {"label": labels, "text": " ".join(word for word in words if not word.startswith(mark))}
