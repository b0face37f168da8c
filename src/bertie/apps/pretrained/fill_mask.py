"""`bertie fill-mask`: predictions of a pre-trained model for masked tokens."""

from pathlib import Path
from typing import Annotated

import typer

import bertie
from bertie import platform
from bertie.apps.cli.shared import option
from bertie.platform import BadRecord, DataError, console


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

    def answer(text: str, line: int = 1) -> None:
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

    if text != "-":
        answer(text)
        return
    left_out = number = 0
    for number, line in platform.SourceFile("-").numbered_lines():
        try:
            if isinstance(line, BadRecord):
                raise DataError(f"It is {line.reason}.")
            answer(line, number)
        except DataError as error:  # this line alone
            left_out += 1
            if console.verbosity.json:
                console.emit({"line": number, "error": str(error)})
            else:
                console.warn(f"line {number}: {error}")
    if left_out:
        console.warn(f"{left_out:,} of {number:,} lines skipped")
