"""Labeled and unlabeled examples from tables.

    bytes -> fields by column name (rows.py) -> Example, or `BadRecord` with its line and its reason

Everything streams, so a file may be larger than memory. A row that cannot be used does not stop the reader: it is
returned as an `BadRecord` in its position, and `SkipReport` counts it. What makes a whole file unreadable (wrong
columns, another encoding, a truncated parquet file) is one DataError.
"""

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from bertie.errors import DataError, NoRows
from bertie.io.annotations import cell_labels, why_unused
from bertie.io.columns import LookAhead, find_columns
from bertie.io.features import BadFeaturesError, read_vectors
from bertie.io.fields import Fields, Template, as_text, is_template, source_of
from bertie.io.header import Header, Row
from bertie.io.lines import BadRecord, where_of
from bertie.io.markup import without_markup
from bertie.io.rows import has_plain_texts, rows_and_header
from bertie.io.table_format import RECOGNISED, Columns, TableFormat

_T = TypeVar("_T")

_ROWS_SAMPLED = 100  # rows that tell which columns are texts and labels


@dataclass(frozen=True)
class Example:
    """One text or several, and their label, if it is known.

    Attributes:
        texts: The texts.
        label: The label, in the type of the task.
        line: The last line of its row, from 1.
        id: Its name in the file, if it has one.
        group: The group of examples that must not be separated. None: the task decides (`Reader.group`).
        source: The whole row by column, when the reader keeps it.
        share: The name of its task, where several are learned together.
        vectors: Its feature vectors (N, D) float32, as tokens after those of its texts.
        weight: How much it counts in the loss and the metrics, beside other examples.
        time: When it was written: whether as a date, and the number or the seconds.
        tabular: The cells of other columns that the task reads.
    """

    texts: tuple[str, ...]
    label: Any = None
    line: int = 0
    id: str = ""
    group: Hashable = field(default=None, compare=False, kw_only=True)
    source: Mapping[str, Any] | None = field(default=None, compare=False, kw_only=True)
    share: str = field(default="", compare=False, kw_only=True)
    vectors: NDArray[np.float32] | None = field(default=None, compare=False, kw_only=True)
    weight: float = field(default=1.0, compare=False, kw_only=True)
    time: tuple[bool, float] | None = field(default=None, compare=False, kw_only=True)
    tabular: tuple[object, ...] = field(default=(), compare=False, kw_only=True)

    MAX_TEXT: ClassVar[int] = 1 << 22  # characters of a text that is to be answered: its pieces take memory


@dataclass
class SkipReport:
    """The skipped rows of a table, by reason, with the first lines of each."""

    rows: int = 0
    lines: dict[str, list[int]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    SHOWN = 5

    @classmethod
    def collect(cls, rows: Iterable[_T | BadRecord], where: str) -> "tuple[list[_T], SkipReport]":
        """Separates examples from skipped rows. Raises DataError, naming `where`, without examples."""
        skipped, examples = cls(), list[_T]()
        for row in rows:
            skipped.count(row)
            if not isinstance(row, BadRecord):
                examples.append(row)
        if not examples:
            raise NoRows(f"{where} contains no usable example. {skipped if skipped.rows else 'It has no rows.'}")
        return examples, skipped

    def count(self, row: object) -> None:
        """Counts one row, or what became of it: it is skipped if that is a `BadRecord`."""
        self.rows += 1
        if isinstance(row, BadRecord):
            self.counts[row.reason] = self.counts.get(row.reason, 0) + 1
            shown = self.lines.setdefault(row.reason, [])
            if len(shown) < self.SHOWN:
                shown.append(row.line)

    @property
    def total(self) -> int:
        """The number of skipped rows."""
        return sum(self.counts.values())

    @property
    def notes(self) -> list[str]:
        """The report as a note, where rows were skipped."""
        return [str(self)] if self.total else []

    def __str__(self) -> str:
        reasons = []
        for reason, count in self.counts.items():
            more = ", ..." if count > self.SHOWN else ""
            reasons.append(f"{reason} ({count:,}: line {', '.join(map(str, self.lines[reason]))}{more})")
        return f"{self.total:,} of {self.rows:,} rows skipped: {'; '.join(reasons)}"


def read_examples(path: Path, format: TableFormat = RECOGNISED) -> tuple[list[Example], SkipReport]:
    """Returns all examples of a file, and the skipped rows. Raises DataError without examples."""
    return SkipReport.collect(stream_examples(path, format), str(path))


def stream_examples(
    path: Path | str,
    format: TableFormat = RECOGNISED,
    *,
    on_columns: Callable[[Columns], None] = lambda columns: None,
    find: "FindColumns" = find_columns,
    make: "MakeExample | None" = None,
) -> Iterator[Example | BadRecord]:
    """Yields the rows of a file, or of standard input ("-"), in order. `on_columns` is called with the columns.

    find: chooses the columns; make: makes an example from a row's fields, by default `example`. Raises DataError for a
    missing file, unknown columns, another encoding or a damaged file; UsageError for an unknown kind.
    """
    rows, ahead, columns = rows_and_header(path, format), list[Row](), format.columns
    if columns.usual_text and has_plain_texts(path, format.file):
        columns = replace(columns, usual_text=())

    def look() -> list[Fields]:
        ahead.extend(itertools.islice(rows, 0 if ahead[1:] else 1 if str(path) == "-" else _ROWS_SAMPLED))
        return [fields for _, fields in ahead if isinstance(fields, dict)]

    names: tuple[str, ...] = ()
    for line, row in rows:
        if isinstance(row, BadRecord):
            yield row
            continue
        if isinstance(row, Header):
            names = row
        else:
            ahead.append((line, row))
        break
    if names and not look():
        on_columns(Columns(names=names))
    elif ahead:
        first = next(fields for _, fields in ahead if isinstance(fields, dict))
        columns = replace(find(names or tuple(first), columns, where_of(path), look), names=names)
        on_columns(columns)
    make, labelled = make or example, format.columns.labelled and columns.label != "answer"
    plain = not format.keep and not format.columns.adds and format.labels == RECOGNISED.labels
    for line, row in itertools.chain(ahead, rows):
        if isinstance(row, dict):
            reason = why_unused(row) if labelled else ""
            record = BadRecord(line, reason) if reason else make(row, columns, line)
            yield record if plain else _finished(record, row, format, path)
        elif isinstance(row, BadRecord):
            yield row


def _finished(
    record: Example | BadRecord, fields: Fields, format: TableFormat, path: Path | str
) -> Example | BadRecord:
    """Returns a record with what the format adds to it, or why the row is not used."""
    own, where, changes = format.columns, f"{path}, line {record.line}", dict[str, Any]()
    if isinstance(record, Example) and record.label == format.labels.undecided is not None:
        record = BadRecord(record.line, f"no gold label ({record.label!r})")
    if isinstance(record, Example):
        if format.labels.names:
            changes["label"] = format.labels.of(record.label)
        if own.weight:
            changes["weight"] = weight_of(fields, own.weight, where)
        if own.group:
            changes["group"] = _filled(fields, own.group, where, "group")
        if own.time:
            changes["time"] = time_of(fields, own.time, where)
        if own.features is not None:
            value = source_of(fields).get(own.features.column)  # numbers as numbers
            try:
                changes["vectors"] = read_vectors(value, Path(path).parent, own.features)
            except BadFeaturesError as bad:
                record, changes = BadRecord(record.line, str(bad)), {}
    if format.keep:
        changes["source"] = source_of(fields)
    return replace(record, **changes) if changes else record


def example(fields: Fields, columns: Columns, line: int = 0) -> Example | BadRecord:
    """Returns one row's example. A text of white space is empty; a missing field differs from an empty one."""
    texts = []
    for name in columns.text:
        value = fields.get(name)
        if name not in fields and is_template(name):
            value = Template.of(name).fill(fields)
        if not isinstance(value, str):
            return BadRecord(line, f"no {name}")
        value = without_markup(value, columns.markup)
        if not value.strip():
            return BadRecord(line, "empty text")
        if len(value) > Example.MAX_TEXT:
            return BadRecord(line, f"a text longer than {Example.MAX_TEXT:,} characters")
        texts.append(value)
    label = fields.get(columns.label) if columns.label else None
    label = cell_labels(label) if isinstance(label, str) else label
    if isinstance(label, list):
        if len(label) > 1:
            return BadRecord(line, f"several labels in {columns.label}, which --task multilabel reads")
        label = as_text(label[0]) if label else None
    if columns.label and not (isinstance(label, str) and label.strip()):
        return BadRecord(line, f"no {columns.label}")
    tabular = tuple(fields.get(name) for name in columns.tabular)
    return Example(tuple(texts) or ("",), label.strip() if label else None, line, tabular=tabular)  # "": only vectors


def weight_of(fields: Fields, column: str, where: str) -> float:
    """Returns the weight of a row. Raises DataError, naming `where`, for what is no number of 0 or more."""
    value = fields.get(column)
    try:
        weight = float("nan" if value is None else value)
    except (TypeError, ValueError):
        weight = math.nan
    if not 0 <= weight < math.inf:
        shown = "is empty" if value in (None, "") else f"has {str(value)[:40]!r}"
        raise DataError(f"{where}: the weight column {column!r} {shown}; a number of 0 or more was expected.")
    return weight


def _filled(fields: Fields, column: str, where: str, what: str) -> str:
    """Returns a cell as text. Raises DataError, naming `where`, for an empty one."""
    value = fields.get(column)
    if value is None or not str(value).strip():
        raise DataError(f"{where}: the {what} column {column!r} is empty. Fill it, or leave out such rows.")
    return str(value).strip()


def time_of(fields: Fields, column: str, where: str) -> tuple[bool, float]:
    """Returns when a row was written: whether it is a date, and the number or the seconds since 1970.

    Raises DataError, naming `where`, for what is neither a number nor a date as in ISO 8601.
    """
    value = _filled(fields, column, where, "time")
    try:
        number = float(value)
        if math.isfinite(number):
            return False, number
    except ValueError:
        pass
    try:
        date = datetime.fromisoformat(value)
    except ValueError:
        raise DataError(
            f"{where}: the time column {column!r} has {value[:40]!r}; a number or a date such as 2024-05-31 or "
            "2024-05-31T18:00 was expected."
        ) from None
    return True, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


FindColumns = Callable[[Sequence[str], Columns, str, LookAhead], Columns]
MakeExample = Callable[[Fields, Columns, int], Example | BadRecord]
