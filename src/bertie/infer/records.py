"""Answers as files: the rows that came in, with the answers appended.

    row's own columns, row, line, answer ...      csv, tsv, xlsx, parquet, jsonl
    {id: answer}                                  json

An answer whose name is a column already is called predicted_NAME, and where there is that too predicted_NAME_2; a
number of a row or a line input_NAME.
"""

import csv
import io
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

from bertie.data.sheets import new_sheet
from bertie.infer.batching import CHUNK

Values = Mapping[str, Any]
Write = Callable[[Values | None, Values, Values], None]
"""A row's own columns (None: it has none), its numbers, its answer or its error."""
NUMBERS = ("row", "line", "id")


@dataclass
class Form:
    """How answers are written.

    columns: which keys of an answer go into a table. key: which one a file of answers by id holds. only_answers: no
    columns of the rows. encoding: of text files. excel: a byte order mark and line ends as Excel writes them. notes:
    what could not be written as it was, told when the writer is closed.
    """

    columns: tuple[str, ...] = ()
    key: str = ""
    only_answers: bool = False
    encoding: str = "utf-8"
    excel: bool = False
    notes: list[str] = field(default_factory=list)
    own: tuple[str, ...] | None = None

    def joined(self, source: Values | None, numbers: Values, answer: Values) -> dict[str, Any]:
        """One record, its columns first. The first row with columns decides what the appended ones are called."""
        if self.own is None and source is not None:
            self.own = tuple(source)
        appended = {self.named(name): value for name, value in (*numbers.items(), *answer.items())}
        kept = {f"input_{name}" if name in appended else name: value for name, value in (source or {}).items()}
        return kept | appended

    def named(self, name: str) -> str:
        """What an appended column is called."""
        own, prefixed = self.own or (), ("input_" if name in NUMBERS else "predicted_") + name
        names = itertools.chain((name, prefixed), (f"{prefixed}_{i}" for i in itertools.count(2)))
        return next(name for name in names if name not in own)


@contextmanager
def _jsonl(out: IO[bytes], form: Form) -> Iterator[Write]:
    lossy = _Encoded(out, form)

    def write(source: Values | None, numbers: Values, answer: Values) -> None:
        record = form.joined(source, numbers, answer)
        lossy.write(json.dumps(record, ensure_ascii=False, default=str) + "\n")
        out.flush()  # someone may be waiting at the other end of a pipe

    yield write
    lossy.tell()


@contextmanager
def _by_id(out: IO[bytes], form: Form) -> Iterator[Write]:
    """One object: what `key` of a record holds by the record's id, or by its line. A row without an answer has none."""
    before = "{"

    def write(source: Values | None, numbers: Values, answer: Values) -> None:
        nonlocal before
        if "error" not in answer:
            name = json.dumps(str(numbers.get("id", numbers["line"])), ensure_ascii=False)
            out.write(f"{before}\n{name}: {json.dumps(answer[form.key], ensure_ascii=False)}".encode())
            before = ","

    yield write
    out.write(b"\n}\n" if before == "," else b"{}\n")


class _Table:
    """Rows with the columns of the first; rows that could not even be cut into columns wait for it."""

    def __init__(self, form: Form, append: Callable[[Sequence[Any]], None]) -> None:
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
        record = self.form.joined(source, numbers, answer)
        self.append([record.get(name) for name in self.header])
        appended = self.own_names(answer)
        self.lost.update(dict.fromkeys(name for name in record if name not in self.header and name not in appended))

    def own_names(self, answer: Values) -> set[str]:
        return {self.form.named(name) for name in (*NUMBERS, *answer)}

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
            self.start(None, self.waiting[0][1] if self.waiting else {"line": 0})
        if self.lost:
            names = ", ".join(map(repr, [*self.lost][:10]))
            self.form.notes.append(
                f"columns that the first row does not have are omitted from the table: {names}. Write .jsonl "
                "to keep them."
            )


class _Encoded:
    """Text in the encoding asked for; what it has no character for becomes a question mark, and is counted."""

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
    lossy, line = _Encoded(out, form), io.StringIO()
    writer = csv.writer(line, lineterminator="\r\n" if form.excel else "\n")
    if form.excel and form.encoding == "utf-8":
        out.write(b"\xef\xbb\xbf")

    def append(values: Sequence[Any]) -> None:
        writer.writerow(map(_cell, values))
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
    """Quoting off, as these files are read: a tab within a text is written as \\t, a line end as \\n."""
    lossy = _Encoded(out, form)
    if form.excel and form.encoding == "utf-8":
        out.write(b"\xef\xbb\xbf")
    end = "\r\n" if form.excel else "\n"

    def append(values: Sequence[Any]) -> None:
        cells = ("" if value is None else str(_cell(value)).translate(_ESCAPED) for value in values)
        lossy.write("\t".join(cells) + end)

    table = _Table(form, append)
    yield table.write
    table.end()
    lossy.tell()


@contextmanager
def _xlsx(out: IO[bytes], form: Form) -> Iterator[Write]:
    with new_sheet(out) as sheet:
        table = _Table(form, lambda values: sheet.append([_cell(value) for value in values]))
        yield table.write
        table.end()
        if sheet.cut:
            form.notes.append(f"{sheet.cut:,} cells were truncated to 32,767 characters, the maximum of Excel.")


@contextmanager
def _parquet(out: IO[bytes], form: Form) -> Iterator[Write]:
    """Columns keep their types; one that has values of several types becomes one of texts. Held in memory, packed."""
    import pyarrow as pa
    import pyarrow.parquet

    names, rows, chunks = tuple[str, ...](), list[Sequence[Any]](), list[list[Any]]()

    def pack() -> None:
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
        if len(rows) == CHUNK:
            pack()

    table = _Table(form, append)
    yield table.write
    table.end()
    pack()
    columns = {name: _chunked(column) for name, column in zip(names, chunks, strict=True)}
    pyarrow.parquet.write_table(pa.table(columns), out)


def _array(values: Sequence[Any]) -> Any:
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        return pa.array([_text(value) for value in values], pa.string())


def _chunked(arrays: Sequence[Any]) -> Any:
    """One column of several arrays, null where nothing has a value."""
    import pyarrow as pa

    types = {array.type for array in arrays if array.type != pa.null()}
    if not types:
        return pa.chunked_array([array.cast(pa.string()) for array in arrays], pa.string())
    if len(types) == 1:
        type = types.pop()
    elif all(pa.types.is_integer(type) or pa.types.is_floating(type) for type in types):
        type = pa.float64()
    else:
        texts = [pa.array([_text(value) for value in array.to_pylist()], pa.string()) for array in arrays]
        return pa.chunked_array(texts, pa.string())
    return pa.chunked_array([array.cast(type) for array in arrays], type)


def _text(value: Any) -> str | None:
    return None if value is None else str(_cell(value))


def _cell(value: Any) -> Any:
    """Lists and objects as JSON: a cell holds one text."""
    held = isinstance(value, (list, tuple, dict))
    return json.dumps(value, ensure_ascii=False, default=str) if held else value


WRITERS = {".jsonl": _jsonl, ".csv": _csv, ".tsv": _tsv, ".xlsx": _xlsx, ".parquet": _parquet, ".json": _by_id}
"""How a file's name ends -> what writes records into it."""
TEXT = (".csv", ".tsv")
"""Those that --excel is for."""
