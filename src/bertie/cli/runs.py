"""`bertie verify`, `bertie report`, `bertie compare` and `bertie export-checkpoint`: the contents of a run folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import bertie
from bertie.cli import tables
from bertie.cli.app import Overwrite
from bertie.console import console

if TYPE_CHECKING:
    from bertie.api.folders import Comparison

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")]
Written = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="Folder of a run, corpus, tokenizer or model, or the name of a model.")
]


def verify(folder: Written) -> None:
    """Check the integrity of a folder that Bertie wrote.

    Of a run, checks the config, the lines of the metrics, every byte of the checkpoints, and the model. Also checks
    that corpus and tokenizer are those of the run, and every file of the folders that it read. The exit code is 3 when
    something is wrong.

    \b
    Examples:
      bertie verify runs/tiny
      bertie verify corpora/mine --json
    """
    checked = bertie.verify(folder)
    console.emit(checked.to_dict()) if console.verbosity.json else console.show(checked.text())
    checked.raise_if_damaged()


def report(run: Run) -> None:
    """Write the HTML report of a run: RUN/report.html.

    The run may be pre-training or fine-tuning, and may be in progress.

    \b
    Examples:
      bertie report runs/tiny
      bertie report runs/sst2
    """
    drawn = str(bertie.write_report(run))
    console.emit({"report": drawn}) if console.verbosity.json else console.show(drawn)


def export_checkpoint(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, or one of its checkpoint folders.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model folder to write.")],
    overwrite: Overwrite = False,
) -> None:
    """Write a model folder from a checkpoint of a run.

    For a run folder, the newest intact checkpoint is used. The run itself does not change and can be resumed. Commands
    that take a model accept RUN and RUN/checkpoint-N directly. Export a checkpoint to keep it or to open it elsewhere.

    \b
    Examples:
      bertie export-checkpoint runs/tiny -o models/so-far
      bertie export-checkpoint runs/tiny/checkpoint-4000 -o models/tiny-4000
    """
    step = bertie.export_checkpoint(run, output, overwrite=overwrite)
    if console.verbosity.json:
        console.emit({"model": str(output), "step": step})
    else:
        console.show(f"{output}: the model of {run} at {step}")


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders, finished or in progress.")],
    output: tables.PageFile = None,
    card: Annotated[
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
      bertie compare runs/sst2 runs/mrpc --card models/base
    """
    comparison = bertie.compare(runs, output, card=card, overwrite=overwrite)
    if console.verbosity.json:
        console.emit(comparison.to_dict())
        return
    show_comparison(comparison)
    if output is not None:
        console.say(f"Report: {output}")


def show_comparison(comparison: "Comparison") -> None:
    """Prints a comparison as tables."""
    from rich.table import Table

    for columns, rows in comparison.tables():
        table = Table(*columns, box=None)
        for row in rows:
            table.add_row(*row)
        console.show(table)
