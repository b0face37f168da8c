"""Predictions as a person reads them, on a terminal. A pipe and --json get JSON lines instead."""

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bertie.console import console

if TYPE_CHECKING:
    from rich.text import Text

    from bertie.tasks import Prediction
    from bertie.tasks.render import TextSpan

SURE, UNSURE = 0.8, 0.5  # probabilities from which on one is green, or below which it is red
LABEL_WIDTH = 12
LINE_ENDS = re.compile(r"[\r\n]+")


def for_people() -> bool:
    """Returns whether a person reads standard output."""
    return sys.stdout.isatty() and not console.verbosity.json


def show_prediction(texts: Sequence[str], prediction: "Prediction") -> None:
    """Prints the label, its probability and the text on one line, with entities and answers marked in the text."""
    from rich.text import Text

    if prediction.error:
        console.show(Text.assemble((f"no answer: {prediction.error}", "red"), f"  {' | '.join(texts)}".rstrip()))
        return
    shown = prediction.render(texts)
    line = Text()
    if shown.given:
        line.append(f"{shown.given:<{LABEL_WIDTH}} ", "bold")
    if shown.probability is not None:
        color = "green" if shown.probability >= SURE else "red" if shown.probability < UNSURE else "yellow"
        line.append(f"{shown.probability:z5.3f}  ", color)
    for number, text in enumerate(shown.short_texts):
        line.append(" | " if number else "", "dim")
        for part in text:
            _append(line, part)
    line.append(f"  ({shown.note})" if shown.note else "", "dim")
    console.show(line)


def _append(line: "Text", part: "TextSpan") -> None:
    line.append(LINE_ENDS.sub(" ", part.text), "bold reverse" if part.kind else "")
    if part.note:
        line.append(f" [{part.note}]", "bold cyan")
