"""`bertie data`: the supported data sets, their sources, and a check of downloaded files."""

from pathlib import Path
from typing import Annotated

import typer

from bertie import console
from bertie.cli.app import emit
from bertie.errors import DataError, UsageError


def data(
    names: Annotated[list[str] | None, typer.Argument(help="Names of data sets. Default: all.")] = None,
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="Folder of downloaded files to check.")] = None,
) -> None:
    """List supported data sets, or check downloaded files.

    The list has the source and the licence of every data set. The check compares the number of examples with the
    published number.

    \b
    Examples:
      bertie data
      bertie data mrpc stsb --data-dir glue
    """
    from bertie.tasks.datasets import DATASETS

    rows = {name: DATASETS[name] for name in names or DATASETS}
    if data_dir is not None:
        if not data_dir.is_dir():
            raise UsageError(f"{data_dir} is not a folder.")
        _check(list(rows), data_dir)
        return
    if console.verbosity.json:
        emit(
            {
                name: {
                    "title": row.title,
                    "task": row.task,
                    "metrics": list(row.metrics),
                    "recipe": row.recipe,
                    "licence": row.licence,
                    "source": row.source,
                    "splits": {split: {"file": file.file, "examples": file.rows} for split, file in row.splits.items()},
                }
                for name, row in rows.items()
            }
        )
        return
    for name, row in rows.items():
        sizes = ", ".join(f"{split} {file.rows:,}" if file.rows else split for split, file in row.splits.items())
        console.show(f"[bold]{name}[/]  {row.title}", markup=True)
        console.show(f"    {row.task}; {', '.join(row.metrics)}; {sizes}")
        console.show(f"    {row.licence}; {row.source}")
        console.show(f"    settings: {row.recipe}")


def _check(names: list[str], data_dir: Path) -> None:
    """Raises DataError when a file differs from the published one, or when no file is found."""
    from bertie.tasks.datasets import DATASETS, check

    answers, wrong, found = [], 0, 0
    for name in names:
        for checked in check(DATASETS[name], data_dir):
            found += checked.rows is not None
            bad = checked.rows is not None and not checked.as_published
            wrong += bad
            answers.append(
                {
                    "data": name,
                    "split": checked.split,
                    "examples": checked.rows,
                    "expected": checked.expected,
                    "left_out": checked.skipped.counts if checked.skipped else {},
                    "problem": checked.problem,
                }
            )
            if console.verbosity.json:
                continue
            if checked.rows is None:
                if len(names) == 1:
                    console.warn(checked.problem)
                continue
            expected = f" of {checked.expected:,}" if checked.expected else ""
            console.show(f"{'✗' if bad else '✓'} {name} {checked.split}: {checked.rows:,}{expected} examples")
            for note in (str(checked.skipped) if checked.skipped and checked.skipped.total else "", checked.problem):
                if note:
                    console.warn(f"{name} {checked.split}: {note}")
    if console.verbosity.json:
        emit(answers)
    if wrong:
        raise DataError(f"{wrong:,} of {found:,} files differ from the published ones.")
    if not found:
        raise DataError(
            f"{data_dir} contains none of the files of {', '.join(names)}. `bertie data` lists their sources."
        )
