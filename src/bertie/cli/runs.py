"""`bertie verify`, `bertie report`, `bertie compare` and `bertie export-checkpoint`: the contents of a run folder."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bertie import console
from bertie.cli import tables
from bertie.cli.app import Overwrite, emit
from bertie.errors import DataError

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
    from bertie.runs import verify as runs
    from bertie.runs.models import model_folder

    report = runs.verify(folder if folder.exists() else model_folder(folder))
    if console.verbosity.json:
        emit(report)
    else:
        console.show(runs.shown(report))
    wrong = [check["name"] for check in report["checks"] if not check["ok"]]
    if wrong:
        raise DataError(f"{folder} failed the check of: {', '.join(wrong)}.")


def report(run: Run) -> None:
    """Write the HTML report of a run: RUN/report.html.

    The run may be pre-training or fine-tuning, and may be in progress.

    \b
    Examples:
      bertie report runs/tiny
      bertie report runs/sst2
    """
    from bertie.runs import finetune_page
    from bertie.runs.folder import redraw
    from bertie.runs.page import page

    drawn = redraw(run, (finetune_page.page if finetune_page.is_finetuning(run) else page)(run))
    if console.verbosity.json:
        emit({"report": str(drawn)})
    else:
        console.show(str(drawn))


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
    from bertie.runs import models

    step = models.export_checkpoint(run, output, overwrite=overwrite)
    if console.verbosity.json:
        emit({"model": str(output), "step": step})
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
    from bertie.files import check_new_file
    from bertie.report.card import put
    from bertie.report.card import table as markdown
    from bertie.runs import compare as comparing

    if output is not None:
        check_new_file(output, overwrite=overwrite)
    if card is not None and not (card / "config.json").is_file():
        raise DataError(f"{card} is not a model folder: it has no config.json. Pass --card MODEL.")
    gathered = comparing.gather(runs)
    found = comparing.compare(gathered)
    if card is not None:
        put(card, "Compared runs", markdown(*comparing.card_rows(gathered)), comparing.INTERVALS)
    if output is not None:
        comparing.page(gathered, "bertie compare " + " ".join(map(str, runs))).save(output)
    if console.verbosity.json:
        emit(found)
        return
    show_comparison(found)
    if output is not None:
        console.say(f"Report: {output}")


def show_comparison(found: dict[str, Any]) -> None:
    """Prints a comparison as tables."""
    from rich.table import Table

    from bertie.runs import compare as comparing

    for rows in comparing.TABLES:
        columns, body = rows(found)
        table = Table(*columns, box=None)
        for row in body:
            table.add_row(*row)
        if body:
            console.show(table)
