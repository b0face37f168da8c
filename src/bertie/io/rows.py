"""Rows of tables: csv, tsv, jsonl, json, parquet, plain lines, standard input.

    bytes -> (line, fields by column name), or `BadRecord` with its line and its reason

Everything but a JSON list is streamed. What makes a whole file unreadable (another encoding, a truncated parquet file)
is one DataError. tables.py defines the meaning of fields.
"""

import io
import itertools
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from bertie.console import counted
from bertie.errors import DataError, UsageError, nearest
from bertie.files import exists
from bertie.io.annotations import records_of
from bertie.io.delimited import Records, separator_of
from bertie.io.lines import (
    LINE_END,
    WHOLE,
    BadRecord,
    check_characters,
    decoded,
    json_line,
    opened,
    standard_input,
    where_of,
)
from bertie.io.orientations import table_of
from bertie.io.sheets import sheet_rows
from bertie.io.streams import suffix_of
from bertie.registry import Registry

if TYPE_CHECKING:
    from bertie.training_facts import FeatureConfig

NO_TEXT = "nested too deep, or half of a surrogate pair in a text"
Lines = IO[bytes] | Iterable[bytes | None]  # of bytes: a file, or its lines
Fields = dict[str, Any]  # a text, or (from JSON and parquet) a list; None where there is nothing
Row = tuple[int, Fields | BadRecord]
ALL_QUOTED = re.compile(r'"[^"]*"(\t"[^"]*")+')


class Flat(Fields):
    """Fields of an object with numbers or objects in it. source: the original object."""

    source: Mapping[str, Any]


def first_given(*values: Any) -> Any:
    """Returns the first value that a row has: not None and not an empty text. 0 is a value, and an id."""
    return next((value for value in values if value is not None and value != ""), None)


def source_of(fields: Fields) -> Mapping[str, Any]:
    """Returns the original content of a row: numbers as numbers, objects within objects."""
    return fields.source if isinstance(fields, Flat) else fields


def composed(name: str) -> str:
    """Returns the name of a column in Unicode's composed form. macOS may write Korean names decomposed."""
    return unicodedata.normalize("NFC", name)


def no_header(names: tuple[str, ...]) -> None:
    """Does nothing with the names of columns, where nobody asked for them."""


@dataclass(frozen=True)
class TableFormat:
    """How a file is read. Empty settings are inferred from the extension and the column names.

    text, label: columns. columns: names for a file without a header line. kind: one of FORMATS. labelled: whether rows
    without a label, and those with the label `undecided`, are invalid. keep: whether each example has its whole row
    (`Example.source`), which needs memory where examples are collected. features: the column of feature vectors, and
    how they are made. weight, group, time: the columns of a row's weight, of what must not be separated from it, and
    of when it was written. label_names: names for the labels of the file.
    meanings: such names, used if they are a model's labels and the labels of the file are not. usual_text,
    usual_label, usual_encoding: the columns and the encoding of the training file, used where text and label are
    not set and the file has them. on_header: called with the names of the columns, where a file has them before its
    rows. label_separator: between the labels of a cell, by default a comma.
    """

    text: tuple[str, ...] = ()
    label: str = ""
    columns: tuple[str, ...] = ()
    encoding: str = "utf-8"
    kind: str = ""
    labelled: bool = True
    undecided: str | None = None
    keep: bool = False
    features: "FeatureConfig | None" = None
    weight: str = ""
    group: str = ""
    time: str = ""
    label_names: Mapping[str, str] = field(default_factory=dict, hash=False)
    meanings: Mapping[str, str] = field(default_factory=dict, hash=False)
    usual_text: tuple[str, ...] = ()
    usual_label: str = ""
    label_separator: str = ""
    usual_encoding: str = ""
    on_header: Callable[[tuple[str, ...]], None] = field(default=no_header, compare=False)

    def records(self, path: Path | str) -> "Iterator[Row]":
        """Yields (line, fields by column name) of every row of a file. See `records`."""
        return records(path, self)

    @staticmethod
    def kind_of(path: Path | str) -> str:
        """Returns the format of a file from its name, or from its first line."""
        return kind_of(path)

    @staticmethod
    def flat(value: Fields) -> Flat:
        """Returns fields of a JSON object: {"labels": {"real": 3.5}} is labels.real, "3.5"."""
        return flat(value)

    @staticmethod
    def source_of(fields: Fields) -> Mapping[str, Any]:
        """Returns the original content of a row: numbers as numbers, objects within objects."""
        return source_of(fields)

    def __post_init__(self) -> None:
        for name in ("text", "columns"):
            object.__setattr__(self, name, tuple(map(composed, getattr(self, name))))
        object.__setattr__(self, "label", composed(self.label))
        for name in ("weight", "group", "time"):
            object.__setattr__(self, name, composed(getattr(self, name)))


RECOGNISED = TableFormat()
OBJECT = re.compile(rb'\s*\{\s*["}]')
"""The beginning of a JSON object."""
FASTTEXT = b"__label__"  # before each label, in a line of fastText
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


def records(path: Path | str, format: TableFormat) -> Iterator[Row]:
    """Yields (line, fields by column name) of every row; a malformed row is (line, `BadRecord`)."""
    check_known(path, format)
    kind = format.kind or kind_of(path)
    if not kind:
        raise DataError(f"{path} is a folder; a file with a row for each example was expected.")
    if kind not in FORMATS:
        raise UsageError(f"Unknown table format {kind!r} of {path}. {nearest(kind, FORMATS)}")
    with opened(path) as file:
        yield from FORMATS[kind](file, format, where_of(path))


def check_known(path: Path | str, format: TableFormat) -> None:
    """Raises UsageError for a file of another program that is not read, with what to save it as."""
    suffix = suffix_of(path) if str(path) != "-" else ""
    if not format.kind and suffix in REFUSED:
        program, remedy = REFUSED[suffix]
        raise UsageError(f"{path} is {program}, which is not read. {remedy}")


def kind_of(path: Path | str) -> str:
    """Returns the format of a file from its name without .gz, .zst, .xz or .bz2, or from its first line.

    When this begins with a JSON object, each line is one: in standard input, and in .txt and .json files, unless it is
    the only line. A .txt whose first line contains a tab is a tsv, as NSMC's and MRPC's are. A folder has none ("").
    """
    stdin = str(path) == "-"
    suffix = "" if stdin else suffix_of(path)
    if not stdin and exists(path) and Path(path).is_dir():
        return ""
    if suffix in ("txt", "json", ""):
        first, _, more = first_line(path).removeprefix(b"\xef\xbb\xbf").partition(b"\n")
        first = LINE_END.split(first, 1)[0]
        if OBJECT.match(first) and (suffix != "json" or more):
            return "jsonl"
        if suffix == "json":
            return "json"
        if first.startswith(FASTTEXT):
            return "fasttext"
        return "tsv" if b"\t" in first and not stdin else "lines"
    return {"ndjson": "jsonl", "pq": "parquet"}.get(suffix, suffix)


def first_line(path: Path | str) -> bytes:
    """Returns the first line of a file, and of the second one what is not white space; of standard input what has
    arrived, which is read again later."""
    if str(path) == "-":
        file: Any = standard_input()
        if hasattr(file, "peek"):
            return bytes(file.peek(1 << 16))
        line = bytes(file.readline(1 << 20))
        file.seek(-len(line), io.SEEK_CUR)
        return line
    if exists(path) and Path(path).is_file():  # what a look takes from a pipe would be gone
        with suppress(OSError, DataError), opened(path) as file:  # records() says what is wrong with the file
            line = bytes(file.readline(1 << 20))
            return line + bytes(file.read(16)).strip() if line.endswith(b"\n") else line
    return b""


SEPARATOR = re.compile(r"sep=([,;\t|])", re.IGNORECASE)
NAMELESS = "column {}"  # a column without a name, by its number: no reader takes it unless it is asked for
HEADER_WITHIN = 20  # rows: titles above the names of the columns
PAIRS = (  # the column names data sets use, the longest match first: a file with question and sentence holds pairs
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question", "context"),
    ("question", "sentence"),
    ("question1", "question2"),
    ("text1", "text2"),
    ("text", "text_pair"),
)
SINGLES = tuple((name,) for name in ("text", "sentence", "document", "텍스트", "문장", "리뷰", "내용"))
LABELS = ("label", "labels", "레이블", "라벨")
USUAL = {*LABELS, *itertools.chain(*PAIRS, *SINGLES)}
Values = Sequence[Any]
Numbered = tuple[int, Values | BadRecord]


def _known(format: TableFormat) -> set[str]:
    """Returns the names that show that a row or an object has the names of columns."""
    return USUAL | {*format.text, format.label, *format.usual_text, format.usual_label} - {""}


def unique(names: Values) -> tuple[str, ...]:
    """Returns unique names of columns, composed: a, a, -> a, a.1; one without a name is called by its number."""
    texts = [composed(str(as_text(name) or "").strip()) or NAMELESS.format(i) for i, name in enumerate(names, 1)]
    taken, first, columns = set(texts), set[str](), []
    numbers = {name: itertools.count(1) for name in taken}
    for name in texts:
        if name in first:
            name = next(other for i in numbers[name] if (other := f"{name}.{i}") not in taken)
            taken.add(name)
        first.add(name)
        columns.append(name)
    return tuple(columns)


def _headed(names: Values, format: TableFormat) -> tuple[str, ...]:
    """Returns the unique names of the columns of a file, which `format.on_header` gets too."""
    found = unique(names)
    format.on_header(found)
    return found


def _tabular(rows: Iterator[Numbered], format: TableFormat, separator: str = ",") -> Iterator[Row]:
    """Yields the fields of rows of values, of which the first one that is not empty has the names of the columns.

    Titles above it are left out where a row below has a usual name, or one that is asked for. Empty values beyond the
    last name are left out; a column without a name may be missing. R writes no name above its row numbers.
    """
    names = format.columns
    if not names:
        above, head, rows = _header(rows, format)
        for number, row in above:
            yield number, row if isinstance(row, BadRecord) else BadRecord(number, "a line above the column names")
        if head is None:
            return
        below = list[Numbered]()
        for i, one in enumerate(rows, 1):  # row numbers, which R writes without a name for their column
            below.append(one)
            values = one[1]
            if isinstance(values, BadRecord) or len(values) != len(head) + 1 or str(values[0]) != str(i):
                break
            if i == 2:
                head = ["", *head]
                break
        rows = itertools.chain(below, rows)
        names = _headed(head, format)
    elif (first := next(rows, None)) is not None:
        if not isinstance(first[1], BadRecord) and tuple(composed(str(one).strip()) for one in first[1]) == names:
            first = first[0], BadRecord(first[0], "a line with the column names, which --columns names too")
        rows = itertools.chain([first], rows)
    nameless = [name == NAMELESS.format(i) for i, name in enumerate(names, 1)]
    needed = max((i for i, absent in enumerate(nameless, 1) if not absent), default=len(names))
    for number, values in rows:
        yield number, values if isinstance(values, BadRecord) else _named(values, names, number, separator, needed)


def _header(
    rows: Iterator[Numbered], format: TableFormat
) -> tuple[Sequence[Numbered], Values | None, Iterator[Numbered]]:
    """Returns the rows above the names of the columns, the names (None without rows), and the rows below.

    It reads ahead only where the first row has a single value that is not a usual name.
    """
    known = _known(format)
    first: list[Numbered] = []
    for one in itertools.islice(rows, HEADER_WITHIN):
        first.append(one)
        row = () if isinstance(one[1], BadRecord) else one[1]
        cells = [composed(str(cell).strip()) for cell in row if cell not in ("", None)]
        alone = len(row) == 1 and any(not isinstance(above, BadRecord) for _, above in first[:-1])
        if not alone and any(cell in known for cell in cells):
            return first[:-1], row, rows
        if len(cells) > 1:
            break  # names, or values, that are not known
    at = next((i for i, (_, row) in enumerate(first) if not isinstance(row, BadRecord)), None)
    if at is None:
        return first, None, rows
    return first[:at], cast(Values, first[at][1]), itertools.chain(first[at + 1 :], rows)


def _named(
    values: Values, names: Sequence[str], line: int, separator: str = ",", needed: int = 0
) -> Fields | BadRecord:
    """Returns the fields of a row. needed: the number of columns that a row must have; the ones after it are nameless.

    Empty values beyond the last name are left out: spreadsheets write cells that were used once.
    """
    if len(values) > len(names) and not any(values[len(names) :]):
        values = values[: len(names)]
    elif 0 < needed <= len(values) < len(names):
        values = [*values, *[""] * (len(names) - len(values))]
    if len(values) != len(names):
        kept = {**dict.fromkeys(names), **dict(zip(names, values, strict=False))}  # the columns of any other row
        if len(values) > len(names):
            kept[names[-1]] = separator.join(map(str, values[len(names) - 1 :]))
        return BadRecord(line, f"{counted(len(values), 'column')} instead of {len(names)}", source=kept)
    return dict(zip(names, values, strict=True))


def _tsv(file: Lines, format: TableFormat, where: str) -> Iterator[Row]:
    """Tab-separated without quoting: in GLUE and NSMC, a quotation mark is text. Where all names have them, as R writes
    them, they are not."""
    lines = decoded(file, format.encoding, where, usual=format.usual_encoding)
    head = next(lines, None)
    if head is None:
        return
    lines = itertools.chain([head], lines)
    if isinstance(head[1], str) and not format.columns and ALL_QUOTED.fullmatch(head[1]):
        yield from _tabular(iter(Records(lines, "\t")), format, "\t")
        return

    values = ((number, line if isinstance(line, BadRecord) else line.split("\t")) for number, line in lines)
    for number, row in _tabular(values, format, "\t"):
        if isinstance(row, BadRecord) and row.source is not None:
            cells = [cell for cell in row.source.values() if cell]
            if not cells:
                row = BadRecord(number, "empty line")
            elif any(cell.startswith('"') and cell.count('"') % 2 for cell in cells):
                row = replace(row, reason=f"{row.reason}; for values in quotation marks, pass --format csv")
        yield number, row


def _csv(file: Lines, format: TableFormat, where: str) -> Iterator[Row]:
    """Values between commas with quotation marks (RFC 4180); a quoted field may contain line ends.

    A first line without commas is split at its semicolons, as Excel writes in countries with decimal commas, tabs, or
    bars. A line `sep=;` before it, which Excel reads, names the separator.
    """
    lines = decoded(file, format.encoding, where, usual=format.usual_encoding)
    head = next(lines, None)
    if head is None:
        return
    named = SEPARATOR.fullmatch(head[1]) if isinstance(head[1], str) else None
    separator = "," if isinstance(head[1], BadRecord) else separator_of(head[1], len(format.columns))
    if named:
        separator = named[1]
    else:
        lines = itertools.chain([head], lines)
    yield from _tabular(iter(Records(lines, separator)), format, separator)


def _jsonl(file: IO[bytes], format: TableFormat, where: str) -> Iterator[Row]:
    """One JSON object per line."""
    names: tuple[str, ...] = ()
    for number, line in decoded(file, format.encoding, where, usual=format.usual_encoding):
        if isinstance(line, BadRecord):
            yield number, line
            continue
        if not line.strip():
            yield number, BadRecord(number, "empty line")
            continue
        try:
            found = [_fields(record) for record in records_of(json_line(line), labelled=format.labelled)]
        except (ValueError, RecursionError):
            if number == 1 and (line.lstrip().startswith("[") or line.strip() == "{"):
                raise DataError(
                    f"{where} is one JSON value over many lines. Rename it to .json, or pass --format json."
                ) from None
            yield number, BadRecord(number, "not JSON")
            continue
        for fields in found:
            if fields is None:
                yield number, BadRecord(number, "not a JSON object")
                continue
            names = names or tuple(fields)
            yield number, _ordered(fields, names)


def _fields(record: Any) -> Flat | None:
    return flat(record) if isinstance(record, dict) else None


def _json(file: IO[bytes], format: TableFormat, where: str) -> Iterator[Row]:
    """One JSON list of objects, as KLUE's files are, or a table in another orientation (orientations.py). Not streamed.

    The line is the object's number, from 1.
    """
    data = file.read(WHOLE + 1)
    if len(data) > WHOLE:
        raise DataError(f"{where} has more than {WHOLE >> 30} GiB and would be read into memory. Convert it to .jsonl.")
    lines = []
    for number, line in decoded(data.splitlines(), format.encoding, where, usual=format.usual_encoding):
        if isinstance(line, BadRecord):  # without it, the list may still be valid, with fewer rows
            raise DataError(f"{where}, line {number}: {line.reason}. Convert the file to UTF-8, or pass --encoding.")
        lines.append(line)
    try:
        value = json.loads("\n".join(lines))
    except (ValueError, RecursionError) as error:
        more = "Extra data" in str(error)
        hint = "For one object per line, pass --format jsonl." if more else "The file may be truncated."
        raise DataError(f"{where} is not JSON ({error}). {hint}") from None
    table = table_of(value, _known(format))
    if table is None:
        raise DataError(
            f"{where} contains a JSON {type(value).__name__}; a list of objects, one per example, was expected."
        )
    header, rows = table
    rows = [record for row in rows for record in records_of(row, labelled=format.labelled)]
    if header is None and rows and all(isinstance(row, list) for row in rows):
        header = [*format.columns]
        if not header:
            raise DataError(f"{where} is a list of lists, without names. Pass them: --columns text,label.")
    if header is not None:
        yield from _lists(rows, header)
        return
    every, names = unique_names(rows), tuple[str, ...]()
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            yield number, BadRecord(number, "not a JSON object")
            continue
        try:
            fields = flat(row)
            check_characters(row)
        except (ValueError, RecursionError):
            yield number, BadRecord(number, NO_TEXT)
            continue
        names = names or tuple(fields)
        yield number, _ordered(fields, (*names, *every) if number == 1 else names)
        every = ()


def unique_names(rows: Sequence[Any]) -> tuple[str, ...]:
    """Returns the names that only other rows of a list than the first have: an annotator leaves out what is absent."""
    first = rows[0] if rows and isinstance(rows[0], dict) else {}
    values = {name: one for row in rows if isinstance(row, dict) for name, one in row.items()}
    return tuple(composed(name) for name, one in values.items() if name not in first and not isinstance(one, dict))


def _lists(rows: Sequence[Any], header: Sequence[str]) -> Iterator[Row]:
    """Yields the fields of rows that are lists, by the names of their columns."""
    names = unique(header)
    for number, row in enumerate(rows, 1):
        if not isinstance(row, list | tuple):
            yield number, BadRecord(number, "not a JSON list")
            continue
        try:
            check_characters(row)
            fields = _named(row, names, number)
            yield number, fields if isinstance(fields, BadRecord) else flat(fields)
        except (ValueError, RecursionError):
            yield number, BadRecord(number, NO_TEXT)


def _fasttext(file: IO[bytes], format: TableFormat, where: str) -> Iterator[Row]:
    """A text per line after its labels, as fastText reads them: __label__good a lovely film."""
    mark = FASTTEXT.decode()
    for number, line in decoded(file, format.encoding, where, usual=format.usual_encoding):
        if isinstance(line, BadRecord):
            yield number, line
            continue
        words = line.split()
        labels = [word.removeprefix(mark) for word in itertools.takewhile(lambda word: word.startswith(mark), words)]
        labels += [word.removeprefix(mark) for word in reversed(words[len(labels) :]) if word.startswith(mark)]
        yield number, {"label": labels, "text": " ".join(word for word in words if not word.startswith(mark))}


def _ordered(fields: Flat, first: Sequence[str]) -> Fields:
    """The first object's keys come first, so that the columns do not depend on what later rows omit."""
    if tuple(fields) == first:
        return fields
    found = Flat({name: fields.get(name) for name in (*first, *(name for name in fields if name not in first))})
    found.source = fields.source
    return found


def _parquet(file: IO[bytes], format: TableFormat, where: str) -> Iterator[Row]:
    """Row groups one after another; the line is the row's number, from 1. Numbers of classes become their names."""
    import pyarrow
    import pyarrow.parquet

    try:
        numbers = itertools.count(1)
        table = pyarrow.parquet.ParquetFile(file)
        classes = _classes(table.schema_arrow.metadata or {})
        _headed(table.schema_arrow.names, format)
        for batch in table.iter_batches(batch_size=4096):
            for row in batch.rename_columns(unique(batch.schema.names)).to_pylist():
                row |= {name: _class(row.get(name), names) for name, names in classes.items() if name in row}
                yield next(numbers), flat(row)
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:  # ValueError: a name or a text
        raise DataError(f"{where} is not a readable parquet file ({error}). The file may be truncated.") from None


def _classes(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """Returns the names of the classes of each column, in a file that the library `datasets` wrote."""
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        kinds = {composed(name): feature.get("feature", feature) for name, feature in features.items()}
        return {name: kind["names"] for name, kind in kinds.items() if kind.get("_type") == "ClassLabel"}
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _class(value: Any, names: Sequence[str]) -> Any:
    """Returns the name of a class, or the names in a list. -1 means that the class is not known."""
    if isinstance(value, list):
        return [_class(one, names) for one in value]
    return (names[value] if 0 <= value < len(names) else None) if isinstance(value, int) else value


def _xlsx(file: IO[bytes], format: TableFormat, where: str) -> Iterator[Row]:
    """The first worksheet of a workbook that is not empty; the line is the row's number in it, from 1."""

    def values() -> Iterator[Numbered]:
        width = len(format.columns)
        for number, cells in sheet_rows(file, where):
            if any(cell is not None for cell in cells):
                width = max(width, len(cells))
                yield number, [*cells, *[None] * (width - len(cells))]
            elif width:  # empty rows may precede the header
                yield number, BadRecord(number, "empty line")

    for number, row in _tabular(values(), format):
        if not isinstance(row, BadRecord):
            row = flat(row)
            row.update({name: "" for name, value in row.items() if value is None})  # an empty cell, as in a csv
        yield number, row


def _lines(file: IO[bytes], format: TableFormat, where: str) -> Iterator[Row]:
    """One text per line; with two text columns, or `columns`, their fields between tabs."""
    names = format.columns or format.text or ("text",)
    for number, line in decoded(file, format.encoding, where, usual=format.usual_encoding):
        if isinstance(line, BadRecord):
            yield number, line
        else:
            yield number, {"text": line} if names == ("text",) else _named(line.split("\t"), names, number, "\t")


def flat(value: dict[str, Any], within: str = "") -> Flat:
    """Returns fields of a JSON or parquet object: {"labels": {"real": 3.5}} is labels.real, "3.5"; lists do not
    change."""
    fields = Flat()
    fields.source = value
    for name, inner in value.items():
        key = within + composed(name)
        fields |= flat(inner, f"{key}.") if isinstance(inner, dict) else {key: as_text(inner)}
    return fields


def as_text(value: Any) -> Any:
    """Returns a value as a name or a text. True is "true", as in JSON; NaN is empty, and bytes are UTF-8."""
    if isinstance(value, bytes):  # of parquet files whose writer does not mark texts
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return value
    if isinstance(value, (date, time)):  # datetime is a date; from parquet and worksheets
        return value.isoformat()
    return str(value) if isinstance(value, (str, int, float, Decimal)) and value == value else None


Reader = Callable[[Any, TableFormat, str], Iterable[Row]]
"""Protocol of a reader: (open file of bytes, format, its name in messages) -> (number of the line, its fields)."""
FORMATS: Registry[Reader] = Registry(
    "table format",
    [
        ("csv", _csv),
        ("tsv", _tsv),
        ("json", _json),
        ("jsonl", _jsonl),
        ("parquet", _parquet),
        ("xlsx", _xlsx),
        ("lines", _lines),
        ("fasttext", _fasttext),
    ],
    group="bertie.readers",
)
