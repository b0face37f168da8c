"""`bertie export-checkpoint`: a model folder from a checkpoint of a run."""

from pathlib import Path
from typing import Annotated

import typer

import bertie
from bertie.apps.cli.shared import option
from bertie.platform import console


def export_checkpoint_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, or one of its checkpoint folders.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model folder to write.")],
    overwrite: Annotated[bool, option("overwrite")] = False,
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
