"""`bertie trace`: one text through a model, step by step."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertie import platform
from bertie.apps import trace as app
from bertie.platform import console

if TYPE_CHECKING:
    from bertie.apps.trace.trace import Step


def trace_command(
    text: Annotated[str, typer.Argument(help="Text to trace.")],
    model: Annotated[
        Path | None,
        typer.Option("--model", "-m", help="Folder of a pre-trained model or run. Default: an untrained model."),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", help="Seed of the masks, and of the weights of an untrained model.")
    ] = 0,
) -> None:
    """Trace a text through a model, with the shape of every array.

    The steps are the tokenizer, masking, embeddings, each layer, the vocabulary head and the loss. The page "BERT in
    the code" explains them. Without --model, Bertie makes a bert-tiny with random weights and a vocabulary of the
    text and of the sample reviews. The shapes are those of a trained model, but the predictions are random.

    \b
    Examples:
      bertie trace "The cat sat on the mat."
      bertie trace "The cat sat on the mat." --model starter-en --seed 3
      bertie trace "The cat sat on the mat." --json
    """

    if model is None:
        console.say("No --model: these are the steps of an untrained bert-tiny with random weights.")
    loaded = app.trace.untrained(text, seed) if model is None else platform.ModelFolder(model).load()
    for number, step in enumerate(app.trace.trace(loaded, text, seed=seed), 1):
        if console.verbosity.json:
            console.emit({"step": number, **asdict(step)})
        else:
            _show(number, step)


def _show(number: int, step: "Step") -> None:
    console.show(f"{number}. {step.name}  ({step.symbol})")
    for array in step.arrays:
        axes, shape = (", ".join(map(str, parts)) for parts in (array.axes.split(), array.shape))
        console.show(f"   {array.name} ({axes}) = ({shape})")
    rows = [{key: _value(value) for key, value in row.items() if value is not None} for row in step.values]
    width = {key: max(len(key), *(len(row[key]) for row in rows)) for key in rows[0]}
    if len(rows) > 1:
        console.show("   " + "  ".join(key.ljust(width[key]) for key in width).rstrip())
        for row in rows:
            console.show("   " + "  ".join(row[key].ljust(width[key]) for key in width).rstrip())
    else:
        console.show("   " + ", ".join(f"{key} {value}" for key, value in rows[0].items()))
    console.show("")


def _value(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(_value, value))
    return f"{value:z.3f}" if isinstance(value, float) else str(value)
