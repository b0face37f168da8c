"""`bertie verify` and `bertie report`: the contents of a folder that Bertie wrote, and the page of a run."""

from pathlib import Path
from typing import Annotated

import typer

import bertie
from bertie.platform import console

_Run = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")]
_Written = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="Folder of a run, corpus, tokenizer or model, or the name of a model.")
]


def verify_command(folder: _Written) -> None:
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


def report_command(run: _Run) -> None:
    """Write the HTML report of a run: RUN/report.html.

    The run may be pre-training or fine-tuning, and may be in progress.

    \b
    Examples:
      bertie report runs/tiny
      bertie report runs/sst2
    """
    drawn = str(bertie.write_report(run))
    console.emit({"report": drawn}) if console.verbosity.json else console.show(drawn)
