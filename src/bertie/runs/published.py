"""The files of a published data set, for a command that may be given a file of the user's instead."""

from dataclasses import replace
from pathlib import Path

from bertie.data.rows import RECOGNISED, TableFormat
from bertie.errors import UsageError
from bertie.tasks.datasets import DATASETS


def published(name: str, split: str, data_dir: Path | str | None, given: TableFormat) -> tuple[Path, TableFormat]:
    """Returns the file of a split and its format, with the label names of `given`.

    Raises UsageError as `check_published`; DataError for an unknown split or a missing file.
    """
    check_published(name, given)
    path, format = DATASETS[name].table(split, Path(data_dir or ""))
    return path, replace(format, label_names=given.label_names)


def check_published(name: str, given: TableFormat) -> None:
    """Raises UsageError for columns, an encoding or a format of the user's: the files are read as published."""
    options = {"text": "text", "label": "label", "columns": "columns", "encoding": "encoding", "kind": "format"}
    for field, option in options.items():
        if getattr(given, field) != getattr(RECOGNISED, field):
            raise UsageError(
                f"--{option} and --data exclude each other: the files of {name} are read as published. Omit --{option}."
            )
