"""The metrics of a model on labeled rows in any form: alone, against a second model, and on changed texts."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np

from bertie.api.predicting import TextSource, check_columns
from bertie.api.scores import Scores
from bertie.console import console
from bertie.errors import DataError, NoRows, UsageError
from bertie.files import atomic_writes, check_new_file, json_bytes
from bertie.infer.engine import Engine
from bertie.infer.findings import Findings
from bertie.infer.perplexity import Perplexity, text_perplexity
from bertie.infer.predict import Predictor
from bertie.infer.texts import each_row
from bertie.io import memory
from bertie.io.lines import BadRecord
from bertie.io.table_format import TableFormat
from bertie.io.tables import Example, SkipReport, stream_examples
from bertie.metrics.base import baseline_notes, undefined, wilson, with_intervals
from bertie.metrics.compare import PairedDifference
from bertie.metrics.confusion import leading
from bertie.order import key
from bertie.registry import Later
from bertie.runs.examples import draw_examples
from bertie.runs.finetune_page import render_evaluation_page
from bertie.tasks import task_name
from bertie.tasks.datasets import DATASETS
from bertie.tasks.sequence import with_positive
from bertie.text.tokenizer import Tokenizer

CHOOSE_PERTURBED = Later[Callable[[Predictor, Sequence[str]], object]](
    "bertie.apps.perturb.perturb", "chosen_perturbations"
)
MEASURE_PERTURBED = Later[Callable[..., dict[str, dict[str, object]]]](
    "bertie.apps.perturb.perturb", "measure_perturbations"
)


def perplexity_of(
    engine: Engine, tokenizer: Tokenizer, source: TextSource, limit: int | None, max_length: int | None
) -> Perplexity:
    """Returns the perplexity of texts, with the rows that were skipped by reason. limit: of the rows."""
    if not source.check_texts():
        rows = ("" if isinstance(row, BadRecord) else str(row) for row in each_row(source.rows))  # type: ignore[arg-type]
        return text_perplexity(engine, islice(rows, limit), tokenizer=tokenizer, max_length=max_length)
    skipped = SkipReport()
    with source.table(keep=False) as (path, format):
        try:
            texts = _texts(stream_examples(path, format), limit, skipped)
            scores = text_perplexity(engine, texts, tokenizer=tokenizer, max_length=max_length)
        except DataError as error:
            raise DataError(f"{error} {skipped}." if skipped.total else str(error)) from None
    if skipped.total:
        console.warn(str(skipped))
    return replace(scores, skipped=skipped.counts)


def _texts(rows: Iterator[Example | BadRecord], limit: int | None, skipped: SkipReport) -> Iterator[str]:
    """Yields the texts of rows, with progress."""
    with console.progress("perplexity", limit, unit="texts") as advance:
        for row in islice(rows, limit):
            skipped.count(row)
            if isinstance(row, Example):
                yield " ".join(row.texts)
            advance(1)


@dataclass(frozen=True)
class LabeledRows:
    """Labeled rows in any form, or a split of a published data set, and how they are read.

    Attributes:
        source: The rows; "" for a published set.
        data: The name of the published set.
        data_dir: The folder of its files.
        split: Its split.
        label: Column of the label.
        label_names: Names for the labels of the rows.
        label_separator: What separates several labels in a cell.
        weight: Column of the weight of a row in the metrics.
    """

    source: TextSource
    data: str = ""
    data_dir: Path | None = None
    split: str = "dev"
    label: str = ""
    label_names: Mapping[str, str] = field(default_factory=dict)
    label_separator: str = ""
    weight: str = ""

    def __post_init__(self) -> None:
        if (memory.is_path(self.source.rows) and not str(self.source.rows)) != bool(self.data):
            raise UsageError("Give either examples, or `data` and `data_dir`.")
        if self.data and self.data_dir is None:
            raise UsageError(f"`data={self.data}` needs `data_dir`: the folder with its files.")
        if self.data:
            DATASETS[self.data].check_format(self.format)

    @property
    def format(self) -> TableFormat:
        """The format of the rows."""
        source, names = self.source, {str(label): str(name) for label, name in self.label_names.items()}
        kind = source.format if memory.is_path(source.rows) else "jsonl"
        own = (source.text, self.label, source.columns, source.encoding, kind)
        return TableFormat.of(*own, label_names=names, label_separator=self.label_separator, weight=self.weight)


@dataclass(frozen=True)
class Measures:
    """What is measured besides the metrics, and the files that are written.

    Attributes:
        positive: Label of a classification whose F1 is the main metric.
        against: A second model.
        second: What messages call it.
        perturb: Changes of the texts, by name.
        output: JSON file of the metrics.
        report: HTML page.
        name: What the page calls the model.
        overwrite: Whether to replace the files.
    """

    positive: str = ""
    against: Predictor | None = None
    perturb: Sequence[str] = ()
    second: str = ""
    output: Path | None = None
    report: Path | None = None
    name: str = ""
    overwrite: bool = False

    def check(self, examples: LabeledRows) -> None:
        """Raises UsageError for files that exist, and for examples that can be read only once."""
        if (self.against or self.perturb) and examples.source.standard_input:
            option = "against" if self.against else "perturb"
            raise UsageError(f"With `{option}`, the examples cannot come from standard input. Pass a file.")
        for path, kind in ((self.output, ".json"), (self.report, ".html")):
            if path is not None and path.suffix.lower() != kind:
                raise UsageError(f"{path} does not end in {kind}. Choose another name: {path.with_suffix(kind)}.")
            if path is not None:
                check_new_file(path, overwrite=self.overwrite)


def demonstrations_of(rows: LabeledRows, shots: int | None) -> list[Example]:
    """Returns labeled examples, or `shots` of each label. Raises DataError where there are none or fewer."""
    with memory.open_as("demonstrations", rows.source.rows) as path:
        read = stream_examples(path, rows.format)
        examples = [one for one in read if isinstance(one, Example) and one.label is not None]
    if not examples:
        raise NoRows("The demonstrations have no labeled example.")
    if shots is None:
        return examples
    if shots < 0 or (least := min(Counter(one.label for one in examples).values())) < shots:
        raise DataError(f"shots is {shots}; it must be 0 to {least}, the examples of the rarest label.")
    drawn = draw_examples(examples, shots, seed=0)
    return [drawn[i] for i in np.argsort(key(0, np.arange(len(drawn))))]


def measured_scores(predictor: Predictor, examples: LabeledRows, measures: Measures) -> Scores:
    """Computes the metrics of a model on labeled examples, and writes the files."""
    measures.check(examples)
    source, format = examples.source, examples.format
    task, metrics = predictor.task, predictor.task.metrics
    if examples.data:
        file, format = DATASETS[examples.data].table_for(examples.split, examples.data_dir, format)
        source = replace(source, rows=file)
        task, metrics = DATASETS[examples.data].scored(task)
    if measures.positive:
        task = with_positive(task, measures.positive)
        metrics = task.metrics
    predictor = predictor.replace(task_or_none=task)
    if measures.against:  # what is wrong with the second is said before the first is measured
        check_comparable(predictor, measures.against)
    check_perturbations(predictor, measures.perturb)
    with memory.open_as("examples", source.rows, row_of=task.row_of) as path:
        return _scores(predictor, path, format, source, metrics, measures)


def check_perturbations(predictor: Predictor, names: Sequence[str]) -> None:
    """Raises UsageError for an unknown change of texts, and for a task whose labels or entities are positions in the
    text."""
    task = predictor.task
    if names and (task.problem_type is None or task.places):
        raise UsageError(f"--perturb measures the classification and rating of texts, not the task {task_name(task)}.")
    if names:
        CHOOSE_PERTURBED.found()(predictor, names)


def _scores(
    predictor: Predictor,
    path: str,
    format: TableFormat,
    source: TextSource,
    metrics: tuple[str, ...],
    measures: Measures,
) -> Scores:
    in_memory = memory.in_memory(path)
    findings = Findings(predictor.task, metrics[0]) if measures.report else None
    report = predictor.score(
        path,
        format,
        on_columns=lambda columns: check_columns(predictor, columns, source),
        findings=findings,
    )
    if measures.against:
        differences, notes = difference_between(predictor, measures.against, path, format)
        defined = {name: one for name, one in differences.items() if name not in report.get("undefined", {})}
        report["against"] = {name: one.as_json() for name, one in defined.items()}
        report["notes"] += notes
    if measures.perturb:
        without = report.get("undefined", ())
        report["perturbed"] = MEASURE_PERTURBED.found()(
            predictor, path, format, measures.perturb, interval=wilson, without=without
        )
    scores = Scores(report, leading(metrics, report), measures.second)
    files = {measures.output: json_bytes(report)} if measures.output else {}
    if measures.report and findings:
        name = "standard input" if source.standard_input else Path(path).name
        page = render_evaluation_page(
            f"Evaluation: {name}",
            f"{measures.name} on {'examples' if in_memory else path}",
            with_intervals(report),
            findings.as_json(),
            scores.metrics,
            notes=[*report["notes"], *undefined(report), *baseline_notes(report)],
            source=name,
        )
        files[measures.report] = page.footer(docs="evaluation").encode()
    with atomic_writes(files) as streams:
        for stream, content in zip(streams, files.values(), strict=True):
            stream.write(content)
    return scores


def check_comparable(a: Predictor, b: Predictor) -> None:
    """Raises UsageError for models of different tasks, or without a common label."""
    if type(a.task) is not type(b.task):
        raise UsageError(f"{task_name(a.task)} and {task_name(b.task)} are different tasks, which cannot be compared.")
    if len(a.task.labels) > 1 and len(b.task.labels) > 1 and not {*a.task.labels} & {*b.task.labels}:
        labels = (", ".join(task.labels[:5]) for task in (a.task, b.task))
        raise UsageError(f"The models have no label in common, so they cannot be compared: {'; '.join(labels)}.")


def difference_between(
    a: Predictor, b: Predictor, path: str | Path, format: TableFormat
) -> tuple[dict[str, PairedDifference], list[str]]:
    """Compares two models of one task on one labeled file: the differences by metric, and notes on skipped rows.

    A group of examples (the passages of a question, the questions about a context) is resampled as a unit. Rows that
    one of the models cannot read are skipped for both. Raises UsageError as `check_comparable`.
    """
    check_comparable(a, b)
    first, second = ([*one.stream(one.task.rows(path, one.pipeline.reading(format)))] for one in (a, b))
    rows = [
        (row, one, other)
        for (row, one), (_, other) in zip(first, second, strict=True)
        if isinstance(row, Example) and row.label is not None
        if not isinstance(one, BadRecord) and not isinstance(other, BadRecord)
    ]
    if not rows:
        raise NoRows(f"{path} contains no labeled example that both models can read.")

    left_out = len(first) - len(rows)
    notes = [f"{left_out:,} of {len(first):,} rows skipped: not readable for both models"] if left_out else []
    return PairedDifference.of_rows(a.task, b.task, rows), notes
