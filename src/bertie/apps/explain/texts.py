"""The text or pair of texts that a command explains."""

from collections.abc import Sequence
from typing import Annotated

import typer

from bertie.platform import UsageError

OneOrTwoTexts = Annotated[list[str], typer.Argument(metavar="TEXT [TEXT]", help="Text, or a pair of texts.")]


def check_one_or_two(texts: Sequence[str]) -> None:
    """Raises UsageError unless there are one or two texts."""
    if len(texts) > 2:
        raise UsageError(f"{len(texts)} texts are given; pass one text, or two for a pair. Quote each of them.")
