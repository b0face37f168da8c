"""Labeled and unlabeled examples from tables.

    bytes -> fields by column name (rows.py) -> Example, or `BadRecord` with its line and its reason

Everything streams, so a file may be larger than memory. A row that cannot be used does not stop the reader: it is
returned as an `BadRecord` in its position, and `SkipReport` counts it. What makes a whole file unreadable (wrong
columns, another encoding, a truncated parquet file) is one DataError.
"""

import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from bertie.errors import DataError, UsageError, nearest
from bertie.io.annotations import PROGRAM, cell_labels, why_unused
from bertie.io.lines import BadRecord
from bertie.io.rows import (
    LABELS,
    NAMELESS,
    PAIRS,
    RECOGNISED,
    SINGLES,
    Fields,
    TableFormat,
    as_text,
    records,
    source_of,
)

if TYPE_CHECKING:
    from bertie.training_facts import FeatureConfig

T = TypeVar("T")

MAX_TEXT = 1 << 22  # characters of a text that is to be answered: what its pieces take bounds memory


class SoftLabel(str):
    """A label that also has the probabilities of all labels. It is equal to the plain label."""

    shares: Mapping[str, float]

    @classmethod
    def of(cls, label: str, shares: Mapping[str, float]) -> Self:
        """Returns a label with its probabilities."""
        made = cls(label)
        made.shares = shares
        return made

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Returns the label by its new name. The probabilities of labels that get the same name are added."""
        shares = dict[str, float]()
        for label, share in self.shares.items():
            name = names.get(label, label)
            shares[name] = shares.get(name, 0.0) + share
        return self.of(names.get(self, self), shares)


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

    MAX_TEXT: ClassVar[int] = MAX_TEXT

    @staticmethod
    def stream(
        path: Path | str, format: TableFormat, *, on_columns: "Callable[[Columns], None]" = lambda columns: None
    ) -> "Iterator[Example | BadRecord]":
        """Yields the rows of a file, or of standard input ("-"), in order. See `stream`."""
        return stream(path, format, on_columns=on_columns)


@dataclass(frozen=True)
class Columns:
    """The columns of the text (one, or two for a pair), of the label (None: the rows have none), and of choices.

    further: the columns of choices that only other rows than the first may have. separator: between labels of a cell.
    """

    text: tuple[str, ...]
    label: str | None
    choices: tuple[str, ...] = ()
    further: re.Pattern[str] | None = None
    separator: str = ","

    def __str__(self) -> str:
        kinds = (("text", self.text), ("choice", self.choices), ("label", (self.label,) if self.label else ()))
        found = [
            f"{kind} column{'s' if len(names) > 1 else ''} {' and '.join(f'`{name}`' for name in names)}"
            for kind, names in kinds
            if names
        ]
        texts = [] if self.text or self.choices else ["no text column"]  # there are only feature vectors
        return ", ".join([*texts, *found, *([] if self.label else ["no label column"])])


@dataclass
class SkipReport:
    """The skipped rows of a table, by reason, with the first lines of each."""

    rows: int = 0
    lines: dict[str, list[int]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    SHOWN = 5

    @staticmethod
    def collect(rows: Iterable[T | BadRecord], where: str) -> "tuple[list[T], SkipReport]":
        """Separates examples from skipped rows. Raises DataError, naming `where`, without examples."""
        skipped, examples = SkipReport(), list[T]()
        for row in rows:
            skipped.rows += 1
            if isinstance(row, BadRecord):
                skipped.add(row)
            else:
                examples.append(row)
        if not examples:
            raise DataError(f"{where} contains no usable example. {skipped if skipped.rows else 'It has no rows.'}")
        return examples, skipped

    def add(self, bad: BadRecord) -> None:
        """Counts one skipped row."""
        self.counts[bad.reason] = self.counts.get(bad.reason, 0) + 1
        shown = self.lines.setdefault(bad.reason, [])
        if len(shown) < self.SHOWN:
            shown.append(bad.line)

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


def read(path: Path, format: TableFormat = RECOGNISED) -> tuple[list[Example], SkipReport]:
    """Returns all examples of a file, and the skipped rows. Raises DataError without examples."""
    return SkipReport.collect(stream(path, format), str(path))


def stream(
    path: Path | str,
    format: TableFormat = RECOGNISED,
    *,
    on_columns: Callable[[Columns], None] = lambda columns: None,
    find: "FindColumns | None" = None,
    make: "MakeExample | None" = None,
) -> Iterator[Example | BadRecord]:
    """Yields the rows of a file, or of standard input ("-"), in order. `on_columns` is called with the columns.

    find: chooses the columns, by default `find_columns`; make: makes an example from a row's fields, by default
    `example`. Raises DataError for a missing file, unknown columns, another encoding or a damaged file; UsageError for
    an unknown kind.
    """
    columns: Columns | None = None
    for line, fields in records(path, format):
        if isinstance(fields, BadRecord):
            yield fields
            continue
        if columns is None:
            columns = (find or find_columns)(tuple(fields), format, str(path))
            on_columns(columns)
        reason = why_unused(fields) if format.labelled and columns.label != "answer" else ""
        found = BadRecord(line, reason) if reason else (make or example)(fields, columns, line)
        undecided = format.undecided is not None and isinstance(found, Example) and found.label == format.undecided
        if undecided:
            found = BadRecord(line, f"no gold label ({format.undecided!r})")
        if format.label_names and isinstance(found, Example):
            found = replace(found, label=named(found.label, format.label_names))
        if format.features is not None and isinstance(found, Example):
            found = with_vectors(found, fields, format.features, Path(path).parent)
        if format.weight and isinstance(found, Example):
            found = replace(found, weight=weight_of(fields, format.weight, f"{path}, line {line}"))
        if (format.group or format.time) and isinstance(found, Example):
            where = f"{path}, line {line}"
            group = _filled(fields, format.group, where, "group") if format.group else found.group
            found = replace(found, group=group, time=time_of(fields, format.time, where) if format.time else None)
        yield replace(found, source=source_of(fields)) if format.keep else found


def example(fields: Fields, columns: Columns, line: int = 0) -> Example | BadRecord:
    """Returns one row's example. A text of white space is empty; a missing field differs from an empty one."""
    texts = []
    for name in columns.text:
        value = fields.get(name)
        if not isinstance(value, str):
            return BadRecord(line, f"no {name}")
        if not value.strip():
            return BadRecord(line, "empty text")
        if len(value) > MAX_TEXT:
            return BadRecord(line, f"a text longer than {MAX_TEXT:,} characters")
        texts.append(value)
    label = fields.get(columns.label) if columns.label else None
    label = cell_labels(label) if isinstance(label, str) else label
    if isinstance(label, list):
        if len(label) > 1:
            return BadRecord(line, f"several labels in {columns.label}, which --task multilabel reads")
        label = as_text(label[0]) if label else None
    if columns.label and not (isinstance(label, str) and label.strip()):
        return BadRecord(line, f"no {columns.label}")
    return Example(tuple(texts) or ("",), label.strip() if label else None, line)  # "": there are only vectors


def named(label: Any, names: Mapping[str, str]) -> Any:
    """Returns a label, or each of several, by its new name; labels without one are unchanged."""
    if isinstance(label, tuple):
        return tuple(sorted({named(one, names) for one in label}))
    if isinstance(label, SoftLabel):
        return label.renamed(names)
    return names.get(label, label) if isinstance(label, str) else label


def in_both_forms(known: Sequence[str], names: Mapping[str, str]) -> dict[str, str]:
    """Returns names for the labels of a file that are written in another Unicode form than the model's, with `names`.

    Labels from names of folders are decomposed on macOS.
    """
    pairs = [*zip(known, known, strict=True), *names.items()]
    others = {form: name for label, name in pairs for form in (normalize("NFC", label), normalize("NFD", label))}
    return {label: name for label, name in others.items() if label not in known} | dict(names)


def with_vectors(example: Example, fields: Fields, features: "FeatureConfig", folder: Path) -> Example | BadRecord:
    """Returns an example with the feature vectors of its row. folder: where the files are that the row names."""
    from bertie.io.features import BadFeaturesError, vectors_of

    value = source_of(fields).get(features.column)  # numbers as numbers
    try:
        return replace(example, vectors=vectors_of(value, folder, features))
    except BadFeaturesError as bad:
        return BadRecord(example.line, str(bad))


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


def find_columns(names: Sequence[str], format: TableFormat, where: str) -> Columns:
    """Returns the columns to read: those of the user, those of the training file, or recognized ones.

    Raises DataError with the available names.
    """
    vectors = (format.features.column,) if format.features else ()
    for name in (*format.text, *filter(None, (format.label, format.weight, format.group, format.time)), *vectors):
        if name not in names:
            raise DataError(f"{where} has no column {name!r}. {nearest(name, names)}")
    if len(format.text) > 2:
        raise UsageError(f"--text names {len(format.text)} columns; it must name one, or two for a pair.")
    usual = (format.usual_text,) if format.usual_text else ()
    text = format.text or next((c for c in usual + PAIRS + SINGLES if set(c) <= set(names)), ())
    if not text and not vectors:
        raise DataError(
            f"{where}: no text column was recognized among {', '.join(map(repr, names))}.",
            hint="Pass --text COLUMN (twice for a pair). If the first line is not a header, pass the column names, for "
            f"example --columns {'label,text' if format.labelled else 'text'}.",
        )
    label = format.label or next((name for name in (format.usual_label, *LABELS) if name and name in names), None)
    if format.labelled and label is None:
        others = [name for i, name in enumerate(names, 1) if name not in (*text, NAMELESS.format(i), *PROGRAM)]
        if "annotation_id" in names and len(others) == 1:  # of Label Studio: the name of its control
            return Columns(text, others[0])
        raise DataError(
            f"{where}: no label column was recognized among {', '.join(map(repr, names))}. "
            + (f"Pass --label COLUMN, for example --label {others[-1]}." if others else "Add a column of labels.")
        )
    return Columns(text, label if format.labelled else None)


FindColumns = Callable[[Sequence[str], TableFormat, str], Columns]
MakeExample = Callable[[Fields, Columns, int], Example | BadRecord]
