"""Worksheets of Excel (.xlsx), read and written with openpyxl (the extra `xlsx`)."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date, time
from itertools import islice
from typing import IO, Any

from bertie.data import isolated, streams
from bertie.errors import DataError, UsageError

CELL = 32_767  # characters of a cell, Excel's limit
ESCAPED = re.compile("_x(00[01][0-9A-Fa-f]|005[Ff])_")  # a control character, or the underscore of a text like _x000D_
TO_ESCAPE = re.compile("_(?=x[0-9A-Fa-f]{4}_)")
OLD = b"\xd0\xcf\x11\xe0"  # how a compound file of Windows begins: an encrypted .xlsx, and any .xls
BLOCK = 256  # rows that come from the reading process at once
ROWS, COLUMNS = 1_048_576, 16_384  # of a worksheet, Excel's limits


def _openpyxl() -> Any:
    try:
        import openpyxl
    except ImportError:
        raise UsageError(
            "Excel workbooks (.xlsx) need openpyxl: pip install 'bertie[xlsx]'. Alternatively, use .csv."
        ) from None
    return openpyxl


def sheet_rows(file: IO[bytes], where: str) -> Iterator[tuple[int, Sequence[Any]]]:
    """Yields (number from 1, values) of the rows of a workbook's first worksheet that is not empty.

    Empty rows at its end are left out. A formula is the value that Excel computed last. Raises DataError for another
    file, UsageError without openpyxl.
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
                yield from rows
        except streams.Unreadable as error:
            raise DataError(f"{where} is not a readable Excel workbook: {error}. Save it as .csv.") from None


def _blocks(path: str, where: str) -> Iterator[list[tuple[int, Sequence[Any]]]]:
    with open(path, "rb") as file:
        rows = _rows(file, where)
        while block := list(islice(rows, BLOCK)):
            yield block


def _rows(file: IO[bytes], where: str) -> Iterator[tuple[int, Sequence[Any]]]:
    openpyxl, empty = _openpyxl(), list[int]()
    if file.read(len(OLD)) == OLD:
        raise DataError(f"{where} has a password, or is an old .xls file. Save it as .xlsx without a password.")
    file.seek(0)
    try:
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)
        for sheet in book.worksheets:
            number = 0
            for number, values in enumerate(_all_rows(sheet), 1):
                if not values:
                    empty.append(number)
                    continue
                yield from ((row, ()) for row in empty)
                empty.clear()
                yield number, values
            if len(empty) < number:
                break
            empty.clear()
    except (DataError, UsageError, GeneratorExit, MemoryError):
        raise
    except Exception as error:  # of the archive, of its XML, of what openpyxl expects in it
        raise DataError(f"{where} is not a readable Excel workbook ({error}). Save it as .xlsx.") from None


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


def _unescaped(value: Any) -> Any:
    """Returns a value, in a text with the characters that Excel writes as _x000D_; openpyxl leaves them as they are."""
    return (
        ESCAPED.sub(lambda match: chr(int(match[1], 16)), value) if isinstance(value, str) and "_x" in value else value
    )


def _plain(value: Any) -> bool:
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
