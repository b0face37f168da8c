"""`bertie demo`: the whole pipeline, from raw text to predictions, and a report."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from bertie import platform
from bertie.apps import demo as app
from bertie.apps.cli.shared import option
from bertie.platform import console


def demo_command(
    output: Annotated[Path, typer.Option("--output", "-o", help="Run folder to write.")] = Path("runs/demo"),
    corpus: Annotated[
        str | None, typer.Option("--corpus", help="Your own text: a file, folder or glob, as for `bertie corpus`.")
    ] = None,
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.5, help="Time budget in minutes, including the report.")
    ] = 7.5,
    overwrite: Annotated[bool, option("overwrite")] = False,
) -> None:
    """Run the whole pipeline on sample text, from corpus to report.

    Without --corpus, the sample text is the documentation inside the installed Python packages. The task is to classify
    which library a passage documents: with the pre-trained model, from random weights, and by counting words. An
    interrupted demo resumes with the same command.

    \b
    Examples:
      bertie demo
      bertie demo --corpus texts/ -o runs/mine --minutes 20
    """

    report = app.pipeline.run_demo(output, text=corpus, minutes=minutes, overwrite=overwrite)
    if console.verbosity.json:
        task = platform.File(output / "task.json").read_json()
        counted: dict[str, list[float]] = {"bag_of_words": task["bag_of_words"]} if "bag_of_words" in task else {}
        accuracies = app.headline.accuracies(output, task)
        counted |= {"random_longer": [app.headline.longer(output)]} if accuracies else {}
        console.emit({"report": str(report), "accuracy": {**accuracies, **counted}})
    else:
        for line in app.headline.headline(output):
            console.show(line)
        console.show(f"Report: {report}")
        text = "Return the [MASK] of the array." if corpus is None else "A sentence with one [MASK]."
        folders = [output / "pretrain/model", *sorted(output.glob("finetune/pretrained-*"))[:1]]
        models = " ".join(shlex.quote(str(folder)) for folder in folders)
        console.say(f"Try the model: bertie fill-mask {shlex.quote(str(folders[0]))} '{text}'")
        console.say(f"Play with it in the browser (pip install 'bertie[serve]'): bertie serve {models}")
