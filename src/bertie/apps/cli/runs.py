"""`bertie compare`: runs beside each other."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

import bertie
from bertie.apps.cli import tables
from bertie.apps.cli.app import Overwrite
from bertie.platform import console


def compare_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders, finished or in progress.")],
    output: tables.PageFile = None,
    card_of: Annotated[
        Path | None, typer.Option(help="Model folder whose card gets the metrics: MODEL/README.md.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Compare runs: metrics, cost, and the settings that differ.

    All runs must be of pre-training, or all of fine-tuning. A folder of several seeds is one row with a 95% confidence
    interval. A folder of `bertie tune` has one row per trial. The page also shows the curves of all runs in one chart.

    \b
    Examples:
      bertie compare runs/a runs/b
      bertie compare runs/a runs/b runs/c -o compare.html
      bertie compare runs/tuning --json
      bertie compare runs/sst2 runs/mrpc --card-of models/base
    """
    comparison = bertie.compare(runs, output, card_of=card_of, overwrite=overwrite)
    if console.verbosity.json:
        console.emit(comparison.to_dict())
        return
    show_tables(comparison.tables())
    if output is not None:
        console.say(f"Report: {output}")


def show_tables(tables: Iterable[tuple[Sequence[str], Iterable[Sequence[str]]]]) -> None:
    """Prints tables: columns, and rows."""
    from rich.table import Table

    for columns, rows in tables:
        table = Table(*columns, box=None)
        for row in rows:
            table.add_row(*row)
        console.show(table)
