"""`bertie fill-mask`: predictions of a pre-trained model for masked tokens."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import bertie
from bertie.cli import tables
from bertie.console import console
from bertie.errors import DataError
from bertie.io.lines import BadRecord, text_lines

if TYPE_CHECKING:
    from bertie.infer.fill import MaskPrediction


def fill_mask(
    model: Annotated[Path, typer.Argument(help="Name or folder of a pre-trained model, run or checkpoint.")],
    text: Annotated[str, typer.Argument(help="Text with one or more [MASK]; - reads lines of stdin.")] = "-",
    top: Annotated[int, typer.Option("--top", min=1, help="Number of predictions per mask.")] = 5,
    max_length: tables.MaxLength = None,
    engine: tables.Engine = "auto",
    precision: tables.Precision = "fp32",
    device: tables.Device = "auto",
) -> None:
    """Predict masked tokens.

    \b
    Examples:
      bertie fill-mask starter-en "The [MASK] sat on the mat."
      bertie fill-mask starter-en --top 3 --json < lines.txt
    """
    opened = bertie.load(model, device=device, precision=precision, engine=engine)
    if text != "-":
        _answer(opened.fill_mask(text, top=top, max_length=max_length), text)
        return
    left_out = number = 0
    for number, line in text_lines(sys.stdin.buffer, "standard input"):
        try:
            if isinstance(line, BadRecord):
                raise DataError(f"It is {line.reason}.")
            _answer(opened.fill_mask(line, top=top, max_length=max_length), line, number)
        except DataError as error:  # this line alone
            left_out += 1
            if console.verbosity.json:
                console.emit({"line": number, "error": str(error)})
            else:
                console.warn(f"line {number}: {error}")
    if left_out:
        console.warn(f"{left_out:,} of {number:,} lines skipped")


def _answer(masks: "list[list[MaskPrediction]]", text: str, line: int = 1) -> None:
    if console.verbosity.json:
        shown = [[{**vars(filled), "probability": round(filled.probability, 6)} for filled in mask] for mask in masks]
        console.emit({"line": line, "text": text, "masks": shown})
        return
    from rich.markup import escape

    for mask in masks:
        for filled in mask:
            console.show(
                f"{filled.probability:z6.3f}  [bold]{escape(filled.token):<14}[/] {escape(filled.text)}", markup=True
            )
        console.show("")
