"""The files of a published data set, for a command that may be given a file of the user's instead."""

from dataclasses import replace
from pathlib import Path

from bertie.errors import UsageError
from bertie.io.table_format import RECOGNISED, TableFormat
from bertie.metrics.compare import SCORE_SETTINGS
from bertie.tasks import TASKS, Task
from bertie.tasks.datasets import DATASETS


def published(
    name: str, split: str, data_dir: Path | str | None, table_format: TableFormat
) -> tuple[Path, TableFormat]:
    """Returns the file of a split and its format, with the label names of `table_format`.

    Raises UsageError as `check_published`; DataError for an unknown split or a missing file.
    """
    check_published(name, table_format)
    path, format = DATASETS[name].table(split, Path(data_dir or ""))
    return path, replace(format, labels=replace(format.labels, names=table_format.labels.names))


def scored_as_published(task: Task, name: str) -> tuple[Task, tuple[str, ...]]:
    """Returns a model's task with the settings of a published set that its scores depend on, such as the script of
    KorQuAD; and the metrics of the set that the task has, or else its own."""
    dataset = DATASETS[name]
    if isinstance(task, TASKS[dataset.task]):
        options = {option: value for option, value in dataset.options.items() if option in SCORE_SETTINGS}
        if task.labels != dataset.labels:
            options.pop("frequent", None)  # it counts the first labels of the set
        task = replace(task, **options) if options else task
    return task, choose_published_metrics(task, name)


def choose_published_metrics(task: Task, name: str) -> tuple[str, ...]:
    """Returns the metrics of a published set that a task has, or else the task's own."""
    known = task.scores().compute()
    return tuple(metric for metric in DATASETS[name].metrics if metric in known) or task.metrics


def check_published(name: str, table_format: TableFormat) -> None:
    """Raises UsageError for columns, an encoding or a format of the user's: the files are read as published."""
    file, columns = table_format.file, table_format.columns
    options = {
        "text": columns.text,
        "label": columns.label,
        "columns": file.names,
        "encoding": file.encoding != RECOGNISED.file.encoding,
        "format": file.kind,
        "label-separator": columns.separator,
    }
    if option := next((option for option, value in options.items() if value), ""):
        raise UsageError(
            f"--{option} and --data exclude each other: the files of {name} are read as published. Omit --{option}."
        )
