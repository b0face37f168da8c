"""Predictions for rows in any form, as a value or as a file that is written while they are computed.

N rows
"""

import codecs
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import IO

from bertie.api.once import STDIN
from bertie.api.options import Output, ReceivePrediction
from bertie.api.results import Predictions, Written
from bertie.console import console
from bertie.errors import DataError, UsageError
from bertie.files import JsonObject, atomic_writes, check_new_file, exists
from bertie.infer.pipeline import TextCount
from bertie.infer.predict import Predictor
from bertie.infer.records import TABLE_EXTENSIONS, WRITERS, Form
from bertie.infer.texts import TextRow, tell_unread
from bertie.infer.traffic import Traffic
from bertie.io import memory
from bertie.io.lines import BadRecord, check_encoding
from bertie.io.memory import RowsInput
from bertie.io.rows import PLAIN_PAIR, table_kind
from bertie.io.table_format import Columns, TableFormat
from bertie.io.tables import Example, SkipReport
from bertie.tasks import Prediction
from bertie.tasks.capabilities import Embeds


@dataclass(frozen=True)
class TextSource:
    """Where texts are read: rows in any form, and how their columns are chosen.

    Attributes:
        rows: The rows, or "-" for standard input.
        text: Columns of the text.
        columns: Column names of a file without a header line.
        encoding: Text encoding of a file.
        format: Format of a file. Default: by its suffix.
    """

    rows: RowsInput
    text: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    encoding: str = "utf-8"
    format: str = ""

    @classmethod
    def of(
        cls, rows: RowsInput, text: str | Sequence[str], columns: Sequence[str], encoding: str, format: str
    ) -> "TextSource":
        """Returns the source. text: a column, or several."""
        source = cls(rows, (text,) if isinstance(text, str) else tuple(text), tuple(columns), encoding, format)
        if memory.is_path(rows):
            source.kind_of_file(str(rows))
        return source

    @cached_property
    def in_columns(self) -> memory.Table | None:
        """The rows as a table, where they are in memory and have columns."""
        return None if memory.is_path(self.rows) else memory.with_columns(self.rows)

    @property
    def standard_input(self) -> bool:
        """Whether rows come from standard input, as they are typed."""
        return memory.is_path(self.rows) and str(self.rows) == STDIN

    @property
    def name(self) -> str:
        """What messages call it."""
        return "Standard input" if self.standard_input else str(self.rows) if memory.is_path(self.rows) else "texts"

    def kind_of_file(self, path: str) -> str:
        """Returns the format of a file. Raises UsageError for a column of one that has one text per line."""
        kind = self.format or table_kind(path)
        if kind == "lines" and len(self.text) == 1 and not self.columns:
            raise UsageError(
                f"{self.name} is read as one text per line, without columns. "
                f"Omit `text={self.text[0]}`, or pass a table: csv, tsv, jsonl ..."
            )
        return kind

    def check_texts(self) -> bool:
        """Returns whether the rows have columns. Raises UsageError for a column of texts that have none."""
        if self.standard_input or isinstance(self.rows, PathLike):
            return True
        if isinstance(self.rows, str):
            if not (exists(self.rows) and Path(self.rows).is_file()):
                raise UsageError(
                    f'texts must be a list of texts: ["..."], or the path of a file; {str(self.rows)!r:.80} is no file.'
                )
            return True
        if self.text and self.in_columns is None:
            raise UsageError("`text` names a column, and the texts have none. Omit `text`.")
        return self.in_columns is not None

    @contextmanager
    def table(self, *, keep: bool) -> Iterator[tuple[str, TableFormat]]:
        """Context with a path that the rows can be read from, and their format. keep: whether to read all columns."""
        with memory.open_as("texts", self.in_columns or self.rows, labeled=False) as path:
            kind = "jsonl" if memory.in_memory(path) else self.kind_of_file(path)
            yield path, TableFormat.of(self.text, "", self.columns, self.encoding, kind, labelled=False, keep=keep)


@dataclass(frozen=True)
class RecordTarget:
    """Where records are written, and how.

    Attributes:
        output: A file, whose suffix is its format, or an open binary stream, which gets JSON lines.
        only_answers: Whether to omit the columns of the rows.
        excel: Whether to write .csv or .tsv as Excel does: with a byte order mark.
        encoding: Text encoding of the file.
        overwrite: Whether to replace the file.
    """

    output: Path | IO[bytes]
    only_answers: bool = False
    excel: bool = False
    encoding: str = "utf-8"
    overwrite: bool = False

    @classmethod
    def of(cls, output: Output, only_answers: bool, excel: bool, encoding: str, overwrite: bool) -> "RecordTarget":
        """Returns the target."""
        path = Path(output) if isinstance(output, str | Path) else output
        return cls(path, only_answers, excel, encoding, overwrite)

    def kind(self, kinds: Iterable[str]) -> str:
        """Returns the suffix of the file, one of `kinds`; .jsonl for a stream. Raises UsageError for another one."""
        if not isinstance(self.output, Path):
            return ".jsonl"
        kind, known = self.output.suffix.lower(), tuple(kinds)
        if kind not in known:
            has = f"has the extension {kind!r}" if kind else "has no extension"
            raise UsageError(f"{self.output} {has}. Use {'one of ' * (len(known) > 1)}{', '.join(known)}.")
        return kind

    def form(self, kind: str) -> Form:
        """Returns the format of the records. Raises UsageError for options that it does not have."""
        check_encoding(self.encoding)
        if self.excel and kind not in TABLE_EXTENSIONS:
            raise UsageError(
                f"`excel` works with {' and '.join(TABLE_EXTENSIONS)} files. "
                f"Pass `output=FILE.csv`, or `output=FILE.xlsx` without "
                "`excel`."
            )
        if self.excel and codecs.lookup(self.encoding).name != "utf-8":
            raise UsageError(f"`excel` writes UTF-8, and `output_encoding` is {self.encoding}. Omit one of them.")
        if self.encoding != "utf-8" and kind not in (*TABLE_EXTENSIONS, ".jsonl"):
            raise UsageError(
                f"`output_encoding` works with text files; {kind} files have a fixed encoding. Omit the option."
            )
        encoding = "utf-8" if self.excel else self.encoding
        return Form(only_answers=self.only_answers, encoding=encoding, excel=self.excel)

    def numbers(self, row: TextRow, number: int) -> JsonObject:
        """Returns the numbers of a row and of its last line, and its id unless one of its columns has that name."""
        name = getattr(row, "id", "") if "id" not in (row.source or ()) else ""
        return {**({} if self.only_answers else {"row": number}), "line": row.line, **({"id": name} if name else {})}


@contextmanager
def traffic_log(
    folder: Path | None, log: str | Path | Traffic | None, others: Sequence[str]
) -> Iterator[Traffic | None]:
    """Context with what counts rows, which are added to a file at the end; None without a log.

    others: options in use with which the answers are not those of the model. Raises UsageError for them, and for a
    model without a folder; DataError for another file.
    """
    if log is None:
        yield None
        return
    if others:
        raise UsageError(f"`log` counts the answers of one model, and does not work with `{others[0]}`. Omit one.")
    if isinstance(log, Traffic):
        yield log
        return
    if folder is None:
        raise UsageError("`log` needs a model with a folder. Save it, and open the folder: bertie.load(model.save(F)).")
    Traffic.check_file(path := Path(log))  # now, before anything is computed
    yield (traffic := Traffic.of_model(folder))
    Traffic.add_to(path, [traffic])


def predictions(predictor: Predictor, source: TextSource, traffic: Traffic | None = None) -> Predictions:
    """Returns the predictions for texts, or for rows with columns. traffic: counts them."""
    columns, index = predictor.task.table_columns, memory.index_of(source.rows)
    if not source.check_texts():
        plain = tuple(predictor.predict(source.rows, traffic=traffic))  # type: ignore[arg-type]  # it checks
        if not plain and isinstance(source.rows, Iterator):
            console.warn("There are no texts. An iterator can be read only once: pass a list to use it twice.")
        return Predictions(plain, columns=columns, row_index=index)

    def check(columns: Columns) -> None:
        if columns.recognized:
            check_columns(predictor, columns, source)

    with source.table(keep=True) as (path, format):
        rows = predictor.task.rows(path, predictor.pipeline.reading(paired(predictor, format)), on_columns=check)
        pairs = [*predictor.stream(rows, traffic=traffic)]
    unread = [answer for _, answer in pairs if isinstance(answer, BadRecord)]
    tell_unread(unread, len(pairs))
    answers = (Prediction(None, error=one.reason) if isinstance(one, BadRecord) else one for _, one in pairs)
    return Predictions(tuple(answers), tuple(row.source for row, _ in pairs), columns, index)


def paired(predictor: Predictor, format: TableFormat) -> TableFormat:
    """Returns the format of lines FIRST<TAB>SECOND for a model of pairs."""
    if format.file.kind == "lines" and predictor.pipeline.texts == 2 and not format.file.names:
        return replace(format, file=replace(format.file, names=format.columns.text or PLAIN_PAIR))
    return format


def check_columns(predictor: Predictor, columns: Columns, source: TextSource) -> None:
    """Says which columns of a file are read. Raises DataError for pairs and a model of single texts, or the reverse."""
    if columns == Columns():
        return  # a table without rows
    where, file = (str(source.rows), True) if memory.is_path(source.rows) else (source.name, False)
    console.say(f"{where}: {columns}", level=0 if columns.recognized or (file and not source.standard_input) else 1)
    task, texts = predictor.pipeline.task_or_none, predictor.pipeline.texts
    most = task.input_texts.stop - 1 if task else len(columns.text)  # of three, pairs are made
    if texts not in (None, min(len(columns.text), most)):
        wants = "pairs of texts" if texts == 2 else "single texts"
        raise DataError(
            f"{where}: the model reads {wants}, but the file has {' + '.join(columns.text)}. Choose "
            f"the column{'s' if texts == 2 else ''} with `text`."
        )


def _check_unlabeled(predictor: Predictor, source: TextSource, columns: Columns) -> None:
    check_columns(predictor, columns, source)
    if isinstance(predictor.task, Embeds) and not predictor.task.labels and len(columns.text) == 1:
        console.say(
            "This model has no labels: the label of a text is its vector. `bertie embed` writes vectors; "
            "`candidates` classifies."
        )


def pass_predictions(
    predictor: Predictor, source: TextSource, receive: ReceivePrediction, traffic: Traffic | None = None
) -> Written:
    """Calls a function with the texts of each row and its prediction, in order, while they are computed."""
    skipped, long = SkipReport(), TextCount(predictor.too_long, predictor.max_length)
    with source.table(keep=False) as (path, format):
        format = predictor.pipeline.reading(paired(predictor, format))
        rows = predictor.task.rows(path, format, on_columns=partial(_check_unlabeled, predictor, source))
        for row, answer in predictor.stream(rows, eager=source.standard_input, count=long, traffic=traffic):
            skipped.count(answer)
            if isinstance(answer, BadRecord):
                answer = Prediction(None, error=answer.reason)
            receive(row.texts if isinstance(row, Example) else (), answer)
    return written(source, (), "predictions", skipped, long)


def write_predictions(
    predictor: Predictor, source: TextSource, target: RecordTarget, traffic: Traffic | None = None
) -> Written:
    """Writes one record per row, in order, while they are computed. Rows without a prediction have an error instead."""
    kind = target.kind(WRITERS)
    form = target.form(kind)
    parts = predictor.task.by_id() if kind == ".json" else {"": ""}
    output = target.output
    paths = {output.with_stem(output.stem + end): key for end, key in parts.items()} if isinstance(output, Path) else {}
    inputs = [str(source.rows)] if memory.is_path(source.rows) else []
    for file in paths:
        check_new_file(file, overwrite=target.overwrite, inputs=inputs)
    columns = predictor.task.table_columns
    forms = [replace(form, columns=columns, key=key, notes=[]) for key in paths.values()] or [form]
    skipped, long = SkipReport(), TextCount(predictor.too_long, predictor.max_length)

    def check(columns: Columns) -> None:
        for one in forms:
            one.starts_with(columns.names)
        _check_unlabeled(predictor, source, columns)

    with ExitStack() as stack:
        path, format = stack.enter_context(source.table(keep=not target.only_answers))
        rows = predictor.task.rows(path, predictor.pipeline.reading(paired(predictor, format)), on_columns=check)
        outs = stack.enter_context(atomic_writes(paths)) if paths else [output]
        advance = stack.enter_context(console.progress("predicting", unit="rows"))
        with ExitStack() as writing:
            writers = [
                writing.enter_context(WRITERS[kind](out, form))  # type: ignore[arg-type]  # a stream, as no path is here
                for out, form in zip(outs, forms, strict=True)
            ]
            for row, answer in predictor.stream(rows, eager=source.standard_input, count=long, traffic=traffic):
                skipped.count(answer)
                record = {"error": answer.reason} if isinstance(answer, BadRecord) else answer.as_json()
                for write in writers:
                    write(row.source, target.numbers(row, skipped.rows), record)
                advance(1)
    notes = dict.fromkeys(note for one in forms for note in one.notes)
    return written(source, tuple(paths), "predictions", skipped, long, notes)


def written(
    source: TextSource,
    files: tuple[Path, ...],
    what: str,
    skipped: SkipReport,
    long: TextCount,
    notes: Iterable[str] = (),
) -> Written:
    """Returns what was written, and warns of rows that were not read."""
    empty = [] if skipped.rows else [f"{source.name} has no rows, so there are no {what}."]
    for note in (lines := [*empty, *notes, *skipped.notes, *long.notes]):
        console.warn(note)
    return Written(files, skipped.rows, skipped.rows - skipped.total, tuple(lines))
