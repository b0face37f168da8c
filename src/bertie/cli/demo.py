"""`bertie demo`: the whole straight line, from raw text to predictions, and a report."""

from pathlib import Path
from typing import Annotated

import typer

from bertie import console
from bertie.cli.app import Json, Overwrite, Quiet, Verbose, app, emit


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Run folder.")] = Path("runs/demo"),
    corpus: Annotated[
        str | None, typer.Option("--corpus", help="Your own text: a file, folder or glob, as `bertie corpus` takes it.")
    ] = None,
    minutes: Annotated[float, typer.Option("--minutes", min=0.5, help="About how long it may take in all.")] = 7.5,
    overwrite: Overwrite = False,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Walk the whole road: corpus, vocabulary, pre-training, fine-tuning, report.

    Without --corpus it reads the documentation inside installed Python packages and learns to tell which library a
    passage documents, from pre-trained and from random weights. The same command goes on where it was stopped.

    [bold]Examples[/]

      bertie demo

      bertie demo --corpus texts/ -o runs/mine --minutes 20
    """
    from bertie.demo.road import demo as walk

    report = walk(output, text=corpus, minutes=minutes, overwrite=overwrite)
    if console.verbosity.json:
        emit({"report": str(report)})
    else:
        console.show(f"The report is in {report}")
        text = "Return the [MASK] of the array." if corpus is None else "A sentence with one [MASK]."
        console.say(f"Try the model: bertie fill-mask {output / 'pretrain/model'} '{text}'")
