"""Worksheets of Excel (.xlsx), read and written with openpyxl (the extra `xlsx`)."""

import itertools
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date, time
from functools import cache
from typing import IO, Any

from bertie.console import console
from bertie.errors import BadFile, DataError, NoPackage, UsageError
from bertie.io import isolated, streams
from bertie.io.fields import flat
from bertie.io.header import Header, Numbered, Row, tabular
from bertie.io.lines import BadRecord
from bertie.io.table_format import TableFormat

CELL = 32_767  # characters of a cell, Excel's limit
ESCAPED = re.compile("_x(00[01][0-9A-Fa-f]|005[Ff])_")  # a control character, or the underscore of a text like _x000D_
TO_ESCAPE = re.compile("_(?=x[0-9A-Fa-f]{4}_)")
OLD = b"\xd0\xcf\x11\xe0"  # how a compound file of Windows begins: an encrypted .xlsx, and any .xls
NOTE = 0  # instead of a row's number: the title of the worksheet, and those of the others
_BLOCK_ROWS = 256  # rows that come from the reading process at once
MERGED = re.compile(rb'<(?:\w{1,9}:)?mergeCell ref="([A-Z]{1,3})(\d{1,7}):[A-Z]{1,3}(\d{1,7})"')
LONGEST_REF = 64  # bytes of such an element, which may lie across two pieces
ROWS, COLUMNS = 1_048_576, 16_384  # of a worksheet, Excel's limits


def _openpyxl() -> Any:
    try:
        import openpyxl
    except ImportError:
        raise NoPackage(
            "Excel workbooks (.xlsx) need openpyxl: pip install 'bertie[xlsx]'. Alternatively, use .csv."
        ) from None
    return openpyxl


def read_xlsx(file: IO[bytes], format: TableFormat, where: str) -> Iterator[Row]:
    """The first worksheet of a workbook that is not empty; the line is the row's number in it, from 1."""

    def values() -> Iterator[Numbered]:
        width = len(format.file.names)
        for number, cells in sheet_rows(file, where):
            if any(cell is not None for cell in cells):
                width = max(width, len(cells))
                yield number, [*cells, *[None] * (width - len(cells))]
            elif width:  # empty rows may precede the header
                yield number, BadRecord(number, "empty line")

    for number, row in tabular(values(), format, where):
        if not isinstance(row, BadRecord | Header):
            row = flat(row)
            row.update({name: "" for name, value in row.items() if value is None})  # an empty cell, as in a csv
        yield number, row


def sheet_rows(file: IO[bytes], where: str) -> Iterator[tuple[int, Sequence[object]]]:
    """Yields (number from 1, values) of the rows of a workbook's first worksheet that is not empty.

    Empty rows at its end are left out. A formula is the value that Excel computed last, and cells that are merged over
    rows all have the value of the first. Raises DataError for another file, UsageError without openpyxl.
    """
    _openpyxl()
    with tempfile.NamedTemporaryFile(prefix="bertie-") as copy:
        path = getattr(file, "name", None)
        if not isinstance(path, str) or not os.path.isfile(path):  # standard input, or decompressed
            if file.seekable():
                file.seek(0)
            shutil.copyfileobj(file, copy)
            copy.flush()
            path = copy.name
        try:
            for rows in isolated.results(_blocks, os.path.abspath(path), where, size=os.path.getsize(path)):
                for number, values in rows:
                    if number == NOTE:
                        _say_which(where, *values)
                    else:
                        yield number, values
        except streams.Unreadable as error:
            raise BadFile(f"{where} is not a readable Excel workbook: {error}. Save it as .csv.") from None


def _blocks(path: str, where: str) -> Iterator[list[tuple[int, Sequence[object]]]]:
    with open(path, "rb") as file:
        rows = _rows(file, where)
        while block := list(itertools.islice(rows, _BLOCK_ROWS)):
            yield block


def _rows(file: IO[bytes], where: str) -> Iterator[tuple[int, Sequence[Any]]]:
    openpyxl, empty = _openpyxl(), list[int]()
    if file.read(len(OLD)) == OLD:
        raise DataError(f"{where} has a password, or is an old .xls file. Save it as .xlsx without a password.")
    file.seek(0)
    try:
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)
        for sheet in book.worksheets:
            number, merged = 0, _Merged(book._archive, sheet._worksheet_path)
            for number, values in enumerate(map(merged.filled, itertools.count(1), _all_rows(sheet)), 1):
                if not values:
                    empty.append(number)
                    continue
                yield from ((row, ()) for row in empty)
                empty.clear()
                yield number, values
            if len(empty) < number:
                others = [one.title for one in book.worksheets if one is not sheet and (one.max_row or 2) > 1]
                if others:
                    yield NOTE, (sheet.title, ", ".join(map(repr, others[:5])))
                break
            empty.clear()
    except (DataError, UsageError, GeneratorExit, MemoryError):
        raise
    except Exception as error:  # of the archive, of its XML, of what openpyxl expects in it
        raise BadFile(f"{where} is not a readable Excel workbook ({error}). Save it as .xlsx.") from None


@cache
def _say_which(where: str, title: str, others: str) -> None:
    """Prints once that a workbook has other worksheets than the one that is read."""
    console.say(
        f"{where}: worksheet {title!r} is read, and not {others}. To read another one, move it to the front or save it "
        "as .csv."
    )


class _Merged:
    """The cells of a worksheet that are merged over several rows, from the end of its XML, which openpyxl skips."""

    def __init__(self, archive: zipfile.ZipFile, path: str) -> None:
        self.until: dict[int, list[tuple[int, int]]] = {}  # first row -> (column, last row)
        self.open: dict[int, tuple[int, object]] = {}  # column -> last row, value
        rest = b""
        with archive.open(path) as file:
            while piece := file.read(1 << 20):
                rest = rest[-LONGEST_REF:] + piece
                for match in MERGED.finditer(rest):
                    column, first, last = _column(match[1]), int(match[2]), int(match[3])
                    if last > first and (column, last) not in self.until.setdefault(first, []):
                        self.until[first].append((column, last))

    def filled(self, number: int, values: Sequence[object]) -> Sequence[object]:
        """Returns the values of a row, with those of the merged cells that reach into it."""
        if not self.until:
            return values
        cells = [*values]
        for column, (last, value) in [*self.open.items()]:
            if number > last:
                del self.open[column]
                continue
            cells += [None] * (column + 1 - len(cells))  # of an empty row
            if cells[column] is None:
                cells[column] = value
        for column, last in self.until.get(number, ()):
            if column < len(cells):
                self.open[column] = last, cells[column]
        return cells


def _column(letters: bytes) -> int:
    """Returns the number of a column from 0: A is 0, AA is 26."""
    number = 0
    for letter in letters:
        number = 26 * number + letter - ord("A") + 1
    return number - 1


def _all_rows(sheet: Any) -> Iterator[Sequence[Any]]:
    """Yields the values of the rows of a worksheet, filled up to the width that the file states; none of an empty row.

    Some programs state one cell, or the whole grid. Without the statement, openpyxl returns the rows that are there.
    """
    stated = sheet.max_column or 0
    width = stated if stated < COLUMNS else 0
    sheet.reset_dimensions()
    for values in sheet.iter_rows(values_only=True):
        empty = all(value is None for value in values)
        yield () if empty else (*map(_unescaped, values), *[None] * (width - len(values)))


def _unescaped(value: object) -> object:
    """Returns a value, in a text with the characters that Excel writes as _x000D_; openpyxl leaves them as they are."""
    return (
        ESCAPED.sub(lambda match: chr(int(match[1], 16)), value) if isinstance(value, str) and "_x" in value else value
    )


def _plain(value: object) -> bool:
    """Returns whether a cell can store a value directly: a number, a date without a time zone, nothing."""
    if isinstance(value, (date, time)):
        return getattr(value, "tzinfo", None) is None and (isinstance(value, time) or value.year >= 1900)
    return value is None or isinstance(value, (bool, float)) or (isinstance(value, int) and abs(value) < 10**15)


@contextmanager
def new_sheet(out: IO[bytes]) -> Iterator["Sheet"]:
    """Context with a workbook of one worksheet, which is written to `out` at the end."""
    sheet = Sheet()
    try:
        yield sheet
        sheet.book.save(out)
    except BaseException:
        with suppress(Exception):  # of a full disk, which would be raised again and printed when nobody can catch it
            sheet.sheet.close()
        raise


class Sheet:
    """Rows of a new worksheet. cut: the number of truncated cells."""

    def __init__(self) -> None:
        openpyxl = _openpyxl()
        from openpyxl.cell import WriteOnlyCell
        from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

        self._cell, self._illegal = WriteOnlyCell, ILLEGAL_CHARACTERS_RE
        self.book = openpyxl.Workbook(write_only=True)
        self.sheet = self.book.create_sheet("bertie")
        self.rows = self.cut = 0

    def append(self, values: Sequence[Any]) -> None:
        """Appends a row. Texts are texts, also when they begin like a formula. Raises DataError beyond Excel's rows."""
        self.rows += 1
        if self.rows > ROWS:
            raise DataError(f"A worksheet has at most {ROWS:,} rows. Write .csv or .parquet instead.")
        self.sheet.append([value if _plain(value) else self._text(str(value)) for value in values])

    def _text(self, value: str) -> Any:
        self.cut += len(value) > CELL
        cell = self._cell(self.sheet, "")
        shown = self._illegal.sub("", value)[:CELL]
        cell._value, cell.data_type = TO_ESCAPE.sub("_x005F_", shown), "s"
        return cell
