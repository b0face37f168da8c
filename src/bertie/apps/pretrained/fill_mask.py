"""`bertie fill-mask`: predictions of a pre-trained model for masked tokens."""

from pathlib import Path
from typing import Annotated

import typer

import bertie
from bertie.apps.cli.shared import option
from bertie.apps.pretrained.lines import answer_lines
from bertie.platform import console


def fill_mask_command(
    model: Annotated[Path, typer.Argument(help="Name or folder of a pre-trained model, run or checkpoint.")],
    text: Annotated[str, typer.Argument(help="Text with one or more [MASK]; - reads lines of stdin.")] = "-",
    top: Annotated[int, typer.Option("--top", min=1, help="Number of predictions per mask.")] = 5,
    max_length: Annotated[int | None, option("max-length")] = None,
    engine: Annotated[str, option("engine")] = "auto",
    precision: Annotated[str, option("precision")] = "fp32",
    device: Annotated[str, option("device")] = "auto",
) -> None:
    """Predict masked tokens.

    \b
    Examples:
      bertie fill-mask starter-en "The [MASK] sat on the mat."
      bertie fill-mask starter-en --top 3 --json < lines.txt
    """
    loaded = bertie.load(model, device=device, precision=precision, engine=engine)

    def answer(text: str, line: int) -> None:
        masks = loaded.fill_mask(text, top=top, max_length=max_length)
        if console.verbosity.json:
            rows = [[{**vars(one), "probability": round(one.probability, 6)} for one in mask] for mask in masks]
            console.emit({"line": line, "text": text, "masks": rows})
            return
        from rich.markup import escape

        for mask in masks:
            for one in mask:
                console.show(
                    f"{one.probability:z6.3f}  [bold]{escape(one.token):<14}[/] {escape(one.text)}", markup=True
                )
            console.show("")

    answer_lines(text, answer)
