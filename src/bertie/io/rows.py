"""Rows of tables of any format, from files, standard input and memory.

    bytes -> (line, fields by column name), or `BadRecord` with its line and its reason

Everything but a JSON list is streamed. What makes a whole file unreadable (another encoding, a truncated parquet file)
is one DataError. tables.py defines the meaning of fields. A new format is one row of FORMATS.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from bertie.errors import DataError, UnknownName, UsageError, nearest
from bertie.files import exists
from bertie.io.delimited import FASTTEXT, read_csv, read_fasttext, read_text_lines, read_tsv
from bertie.io.fields import Fields
from bertie.io.header import Header, Row
from bertie.io.json_rows import read_json_table, read_jsonl
from bertie.io.lines import LINE_END, BadRecord, open_file, standard_input, where_of
from bertie.io.memory import in_memory
from bertie.io.parquet import read_parquet
from bertie.io.sheets import read_xlsx
from bertie.io.streams import format_by_name, suffix_of
from bertie.io.table_format import FileFormat, TableFormat
from bertie.registry import Registry

_OBJECT = re.compile(rb'\s*\{\s*["}]')
"""The beginning of a JSON object."""
PLAIN_PAIR = ("text1", "text2")
"""The names of two texts of a line, between tabs."""
AS_CSV = "Save it as .csv (UTF-8) or .xlsx."
BY_PANDAS = "Convert it: pandas.{}(FILE).to_csv(NEW, index=False)."
REFUSED = {
    "spacy": ("a DocBin of spaCy", 'Write its texts and entities to a .jsonl file: {"text": ..., "entities": [...]}.'),
    "xmi": ("UIMA CAS, of INCEpTION", "Export WebAnno TSV 3 instead."),
    "zip": ("a zip archive", "Unpack it, and pass a file that was in it."),
    "xls": ("an old Excel workbook", AS_CSV),
    "xlsb": ("a binary Excel workbook", AS_CSV),
    "ods": ("a workbook of LibreOffice", AS_CSV),
    "numbers": ("a workbook of Numbers", AS_CSV),
    "sav": ("a file of SPSS", BY_PANDAS.format("read_spss")),
    "dta": ("a file of Stata", BY_PANDAS.format("read_stata")),
    "sas7bdat": ("a file of SAS", BY_PANDAS.format("read_sas")),
    "rds": ("a file of R", "Save it in R: write.csv(TABLE, NEW, row.names = FALSE)."),
    "rdata": ("a file of R", "Save it in R: write.csv(TABLE, NEW, row.names = FALSE)."),
    "feather": ("a feather file", BY_PANDAS.format("read_feather")),
    "pkl": ("a pickle, which can run code", "Save it in pandas: TABLE.to_parquet(NEW)."),
    "pickle": ("a pickle, which can run code", "Save it in pandas: TABLE.to_parquet(NEW)."),
}
"""Extension -> what such a file is, and what to do."""

_Reader = Callable[[Any, TableFormat, str], Iterable[Row]]
"""Protocol of a reader: (open file of bytes, format, its name in messages) -> (number of the line, its fields)."""
FORMATS: Registry[_Reader] = Registry(
    "table format",
    [
        ("csv", read_csv),
        ("tsv", read_tsv),
        ("json", read_json_table),
        ("jsonl", read_jsonl),
        ("parquet", read_parquet),
        ("xlsx", read_xlsx),
        ("lines", read_text_lines),
        ("fasttext", read_fasttext),
    ],
    group="bertie.readers",
)


def rows_and_header(path: Path | str, format: TableFormat) -> Iterator[Row]:
    """Yields the rows of a file as `records` does, and before them the names of its columns, where it has a header."""
    check_known(path, format.file)
    kind = format.file.kind or table_kind(path)
    if not kind:
        raise DataError(f"{path} is a folder; a file with a row for each example was expected.")
    if kind not in FORMATS:
        raise UnknownName(f"Unknown table format {kind!r} of {path}. {nearest(kind, FORMATS)}")
    with open_file(path) as file:
        yield from FORMATS[kind](file, format, where_of(path))


def records(path: Path | str, format: TableFormat) -> Iterator[tuple[int, Fields | BadRecord]]:
    """Yields (line, fields by column name) of every row; a malformed row is (line, `BadRecord`)."""
    yield from without_header(rows_and_header(path, format))


def without_header(rows: Iterable[Row]) -> Iterator[tuple[int, Fields | BadRecord]]:
    """Yields rows without the names of their columns."""
    return ((line, row) for line, row in rows if not isinstance(row, Header))


def column_names(path: Path | str, format: TableFormat) -> tuple[str, ...]:
    """Returns the names of the columns of a file with a header; none of another file, and of one that is damaged."""
    with suppress(DataError):  # the reader says what is wrong with the file
        row = next((row for _, row in rows_and_header(path, format) if not isinstance(row, BadRecord)), ())
        return row if isinstance(row, Header) else ()
    return ()


def check_known(path: Path | str, format: FileFormat) -> None:
    """Raises UsageError for a file of another program that is not read, with what to save it as."""
    suffix = suffix_of(path) if str(path) != "-" else ""
    if not format.kind and suffix in REFUSED:
        program, remedy = REFUSED[suffix]
        raise UsageError(f"{path} is {program}, which is not read. {remedy}")


def table_kind(path: Path | str) -> str:
    """Returns the format of a file from its name without .gz, .zst, .xz or .bz2, or from its first line.

    When this begins with a JSON object, each line is one: in standard input, and in .txt and .json files, unless it is
    the only line. A .txt with tabs in the first line and below is a tsv, as that of NSMC is. A folder has none ("").
    """
    if in_memory(path):
        return "jsonl"
    stdin = str(path) == "-"
    kind = "txt" if stdin else format_by_name(path)
    if not stdin and exists(path) and Path(path).is_dir():
        return ""
    if kind in ("txt", "json"):
        first, _, more = first_line(path).removeprefix(b"\xef\xbb\xbf").partition(b"\n")
        first = LINE_END.split(first, 1)[0]
        if _OBJECT.match(first) and (kind != "json" or more):
            return "jsonl"
        if kind == "json":
            return "json"
        if first.startswith(FASTTEXT):
            return "fasttext"
        return "tsv" if b"\t" in first and (b"\t" in more or not more) and not stdin else "lines"
    return kind


def has_plain_texts(path: Path | str, format: FileFormat) -> bool:
    """Returns whether the rows of a file are texts, or pairs of texts, without columns that somebody named."""
    kind = format.kind or table_kind(path)
    return kind == "fasttext" or (kind == "lines" and format.names in ((), PLAIN_PAIR))


def first_line(path: Path | str) -> bytes:
    """Returns the first line of a file, and the beginning of the others unless it is white space.

    Of standard input, returns what has arrived, which is read again later.
    """
    if str(path) == "-":
        file: Any = standard_input()
        if hasattr(file, "peek"):
            return bytes(file.peek(1 << 16))
        line = bytes(file.readline(1 << 20))
        file.seek(-len(line), io.SEEK_CUR)
        return line
    if exists(path) and Path(path).is_file():  # what a look takes from a pipe would be gone
        with suppress(OSError, DataError), open_file(path) as file:  # records() says what is wrong with the file
            line = bytes(file.readline(1 << 20))
            more = bytes(file.read(1 << 16)) if line.endswith(b"\n") else b""
            return line + more if more.strip() else line
    return b""
