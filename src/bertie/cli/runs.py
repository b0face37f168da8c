"""`bertie verify` and `bertie report`: a run folder, looked over and looked at."""

from pathlib import Path
from typing import Annotated

import typer

from bertie import console
from bertie.cli.app import Json, Quiet, Verbose, app, emit
from bertie.errors import DataError

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")]


@app.command()
def verify(run: Run, json_: Json = False, quiet: Quiet = False, verbose: Verbose = False) -> None:
    """Check that a run folder is whole and can be made again.

    Looks at the config, the lines of the metrics, every byte of the checkpoints, the model, and whether corpus and
    tokenizer still are those the run read. Exit code 3 when something is wrong.

    [bold]Examples[/]

      bertie verify runs/tiny

      bertie verify runs/tiny --json
    """
    from bertie.runs import verify as runs

    report = runs.verify(run)
    if console.verbosity.json:
        emit(report)
    else:
        console.show(runs.shown(report))
    wrong = [check["name"] for check in report["checks"] if not check["ok"]]
    if wrong:
        raise DataError(f"{run}: {', '.join(wrong)} {'is' if len(wrong) == 1 else 'are'} not as it should be.")


@app.command()
def report(run: Run, json_: Json = False, quiet: Quiet = False, verbose: Verbose = False) -> None:
    """Draw a run as one page, RUN/report.html: of pre-training or of fine-tuning.

    Works while the run is going on, too.

    [bold]Examples[/]

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
