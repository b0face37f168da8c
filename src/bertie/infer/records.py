"""Writers of predictions: the input rows, with the predictions appended.

    columns of the row, row, line, prediction ...      csv, tsv, xlsx, parquet, jsonl
    {id: prediction}                                   json

A prediction column whose name is taken is called predicted_NAME, and predicted_NAME_2 if that is taken too. `label` is
taken by any column of labels. The columns of row and line numbers are called input_NAME.
"""

import csv
import io
import itertools
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

from bertie.console import counted
from bertie.infer.batching import CHUNK_ROWS
from bertie.io.fields import first_given
from bertie.io.header import LABEL_COLUMNS
from bertie.io.sheets import new_sheet

Values = Mapping[str, object]
Write = Callable[[Values | None, Values, Values], None]
"""A row's columns (None: it has none), its numbers, and its prediction or its error."""
_NUMBER_FIELDS = ("row", "line", "id")


@dataclass
class Form:
    """The format of the output.

    Attributes:
        columns: The keys of a prediction that are written to tables.
        key: The key of a prediction that a file of answers by id contains.
        only_answers: Whether to omit the columns of the rows.
        encoding: Encoding of text files.
        excel: Whether to write a byte order mark and line ends as Excel does.
        notes: Warnings, available when the writer is closed.
        own: The columns of the rows. Default: those of the first row that has columns.
    """

    columns: tuple[str, ...] = ()
    key: str = ""
    only_answers: bool = False
    encoding: str = "utf-8"
    excel: bool = False
    notes: list[str] = field(default_factory=list)
    own: tuple[str, ...] | None = None

    def starts_with(self, names: tuple[str, ...]) -> None:
        """Takes the columns of the rows from the header of their file."""
        self.own = names if names and not self.only_answers else None

    def joined(self, source: Values | None, numbers: Values, answer: Values) -> dict[str, object]:
        """Returns one record, its columns first. The first row with columns determines the names of the appended
        ones."""
        if self.own is None and source is not None:
            self.own = tuple(source)
        appended = {self.named(name): value for name, value in (*numbers.items(), *answer.items())}
        source_fields = {f"input_{name}" if name in appended else name: value for name, value in (source or {}).items()}
        return source_fields | appended

    def named(self, name: str) -> str:
        """Returns the name of an appended column."""
        prefixed = ("input_" if name in _NUMBER_FIELDS else "predicted_") + name
        names = itertools.chain((name, prefixed), (f"{prefixed}_{i}" for i in itertools.count(2)))
        return next(name for name in names if not self._takes(name))

    def _takes(self, name: str) -> bool:
        """Returns whether the rows have a column of this name, or of another name for labels."""
        own = self.own or ()
        # A reader would take an answer called `label` before the labels of the column `labels`.
        return name in own or (name in LABEL_COLUMNS and any(other in own for other in LABEL_COLUMNS))


@contextmanager
def _jsonl(out: IO[bytes], form: Form) -> Iterator[Write]:
    lossy = _LossyText(out, form)

    def write(source: Values | None, numbers: Values, answer: Values) -> None:
        record = form.joined(source, numbers, answer)
        lossy.write(_json(record) + "\n")
        out.flush()  # someone may be waiting at the other end of a pipe

    yield write
    lossy.tell()


@contextmanager
def _by_id(out: IO[bytes], form: Form) -> Iterator[Write]:
    """Writes one object: id or line of a record -> `key` of its prediction. Rows without a prediction are omitted.

    A name that an earlier row has is written too, and told: readers of JSON keep the last of them.
    """
    before, names, repeated = "{", set[str](), 0

    def write(source: Values | None, numbers: Values, answer: Values) -> None:
        nonlocal before, repeated
        if "error" not in answer:
            # `id` may be a column of the rows
            name = str(first_given(numbers.get("id"), (source or {}).get("id"), numbers["line"]))
            repeated += name in names
            names.add(name)
            value = json.dumps(answer[form.key], ensure_ascii=False)
            out.write(f"{before}\n{json.dumps(name, ensure_ascii=False)}: {value}".encode())
            before = ","

    yield write
    out.write(b"\n}\n" if before == "," else b"{}\n")
    if repeated:
        form.notes.append(
            f"{counted(repeated, 'row')} with the id of an earlier row: most readers of JSON keep only the last one. "
            "Write .jsonl to keep all."
        )


class _Table:
    """Rows with the columns of the first one. Rows that could not be split into columns are written after it."""

    def __init__(self, form: Form, append: Callable[[Sequence[object]], None]) -> None:
        self.form, self.append = form, append
        self.header: tuple[str, ...] = ()
        self.waiting: list[tuple[Values | None, Values, Values]] = []
        self.lost: dict[str, None] = {}

    def write(self, source: Values | None, numbers: Values, answer: Values) -> None:
        if not self.header:
            if source is None and "error" in answer:
                self.waiting.append((source, numbers, answer))
                return
            self.start(source, numbers)
        answer = flatten_answer(answer)
        record = self.form.joined(source, numbers, answer)
        self.append([record.get(name) for name in self.header])
        appended = self.own_names(answer)
        self.lost.update(dict.fromkeys(name for name in record if name not in self.header and name not in appended))

    def own_names(self, answer: Values) -> set[str]:
        return {self.form.named(name) for name in (*_NUMBER_FIELDS, *answer)}

    def start(self, source: Values | None, numbers: Values) -> None:
        self.form.joined(source, numbers, {})
        appended = map(self.form.named, (*numbers, *self.form.columns, "error"))
        self.header = (*(self.form.own or ()), *appended)
        self.append(self.header)
        for row in self.waiting:
            self.write(*row)
        self.waiting.clear()

    def end(self) -> None:
        if not self.header:
            usual = {"line": 0} if self.form.only_answers else {"row": 0, "line": 0}
            self.start(None, self.waiting[0][1] if self.waiting else usual)
        if self.lost:
            names = ", ".join(map(repr, [*self.lost][:10]))
            self.form.notes.append(
                f"columns that the first row does not have are omitted from the table: {names}. Write .jsonl "
                "to keep them."
            )


def flatten_answer(answer: Values, before: str = "") -> dict[str, object]:
    """Returns an answer with the values of objects, too: {"scores": {"a": 1}} has scores.a."""
    fields: dict[str, object] = {}
    for name, value in answer.items():
        fields[before + name] = value
        fields |= flatten_answer(value, f"{before}{name}.") if isinstance(value, Mapping) else {}
    return fields


class _LossyText:
    """Text in the requested encoding. Characters that it cannot encode become question marks and are counted."""

    def __init__(self, out: IO[bytes], form: Form) -> None:
        self.out, self.form, self.rows = out, form, 0

    def write(self, text: str) -> None:
        try:
            data = text.encode(self.form.encoding)
        except UnicodeEncodeError:
            data = text.encode(self.form.encoding, "replace")
            self.rows += 1
        self.out.write(data)

    def tell(self) -> None:
        if self.rows:
            self.form.notes.append(
                f"{self.rows:,} rows have characters that {self.form.encoding} cannot encode; they are "
                "written as ?. For all characters, use UTF-8: --excel without --output-encoding."
            )


@contextmanager
def _csv(out: IO[bytes], form: Form) -> Iterator[Write]:
    lossy, line = _LossyText(out, form), io.StringIO()
    writer = csv.writer(line, lineterminator="\r\n" if form.excel else "\n")
    if form.excel and form.encoding == "utf-8":
        out.write(b"\xef\xbb\xbf")

    def append(values: Sequence[Any]) -> None:
        writer.writerow(map(as_cell, values))
        lossy.write(line.getvalue())
        line.seek(0)
        line.truncate()

    table = _Table(form, append)
    yield table.write
    table.end()
    lossy.tell()


_ESCAPED = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r"})


@contextmanager
def _tsv(out: IO[bytes], form: Form) -> Iterator[Write]:
    """Writes without quoting, as these files are read. A tab in a text is written as \\t, a line end as \\n."""
    lossy = _LossyText(out, form)
    if form.excel and form.encoding == "utf-8":
        out.write(b"\xef\xbb\xbf")
    end = "\r\n" if form.excel else "\n"

    def append(values: Sequence[Any]) -> None:
        cells = ("" if value is None else str(as_cell(value)).translate(_ESCAPED) for value in values)
        lossy.write("\t".join(cells) + end)

    table = _Table(form, append)
    yield table.write
    table.end()
    lossy.tell()


@contextmanager
def _xlsx(out: IO[bytes], form: Form) -> Iterator[Write]:
    with new_sheet(out) as sheet:
        table = _Table(form, lambda values: sheet.append([as_cell(value) for value in values]))
        yield table.write
        table.end()
        if sheet.cut:
            form.notes.append(f"{sheet.cut:,} cells were truncated to 32,767 characters, the maximum of Excel.")


@contextmanager
def _parquet(out: IO[bytes], form: Form) -> Iterator[Write]:
    """Columns keep their types. A column with several types becomes text. All rows are in memory, packed."""
    import pyarrow as pa
    import pyarrow.parquet

    names, rows, chunks = tuple[str, ...](), list[Sequence[object]](), list[list[object]]()

    def pack() -> None:
        if not rows:
            return
        for values, column in zip(zip(*rows, strict=True), chunks, strict=True):
            column.append(_array(values))
        rows.clear()

    def append(values: Sequence[Any]) -> None:
        nonlocal names
        if not names:
            names = tuple(values)
            chunks.extend([] for _ in names)
            return
        rows.append(values)
        if len(rows) == CHUNK_ROWS:
            pack()

    table = _Table(form, append)
    yield table.write
    table.end()
    pack()
    columns = {name: _chunked(column) for name, column in zip(names, chunks, strict=True)}
    pyarrow.parquet.write_table(pa.table(columns), out)


def _array(values: Sequence[object]) -> object:
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        return pa.array([_text(value) for value in values], pa.string())


def _chunked(arrays: Sequence[Any]) -> object:
    """Returns one column from several arrays, null where there is no value."""
    import pyarrow as pa

    types = {array.type for array in arrays if array.type != pa.null()}
    if not types:
        return pa.chunked_array([array.cast(pa.string()) for array in arrays], pa.string())
    if len(types) == 1:
        type = types.pop()
    elif all(pa.types.is_integer(type) or pa.types.is_floating(type) for type in types):
        type = pa.float64()
    elif all(map(pa.types.is_nested, types)) and (kind := _unified(types)):  # empty lists have no type of their own
        return pa.chunked_array([pa.array(array.to_pylist(), kind) for array in arrays], kind)
    else:
        texts = [pa.array([_text(value) for value in array.to_pylist()], pa.string()) for array in arrays]
        return pa.chunked_array(texts, pa.string())
    return pa.chunked_array([array.cast(type) for array in arrays], type)


def _unified(types: Collection[object]) -> object:
    """Returns the type of lists or objects of these types together; None where they differ."""
    import pyarrow as pa

    try:
        one = pa.unify_schemas([pa.schema([("x", type)]) for type in types], promote_options="permissive")
    except pa.ArrowException:
        return None
    return one.field(0).type


def _text(value: object) -> str | None:
    return None if value is None else str(as_cell(value))


def as_cell(value: object) -> object:
    """Writes lists and objects as JSON, since a cell contains one text."""
    if isinstance(value, bytes):
        return _shown(value)
    return _json(value) if isinstance(value, (list, tuple, dict)) else value


def _shown(value: Any) -> str:
    """Returns the text of a value that JSON does not have. Bytes of parquet files are usually unmarked UTF-8."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _json(value: object) -> str:
    """Returns JSON, in which numbers that are not finite are null, as JSON has none."""
    try:
        return json.dumps(value, ensure_ascii=False, default=_shown, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False, default=_shown)


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


WRITERS = {".jsonl": _jsonl, ".csv": _csv, ".tsv": _tsv, ".xlsx": _xlsx, ".parquet": _parquet, ".json": _by_id}
"""Extension of a file -> its writer."""
TABLE_EXTENSIONS = (".csv", ".tsv")
"""The extensions that --excel supports."""
