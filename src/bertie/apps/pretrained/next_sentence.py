"""`bertie next-sentence`: whether a text follows another, by the head of pre-training, or a language model."""

from pathlib import Path
from typing import Annotated

import typer

import bertie
from bertie.apps.cli.shared import option
from bertie.platform import console

SAID = {
    "follows": "follows: the second text follows the first",
    "random": "random: the second text does not follow the first",
    "in_order": "in order: the texts are in their original order",
    "swapped": "swapped: the texts are in reverse order",
}


def next_sentence_command(
    model: Annotated[Path, typer.Argument(help="Name or folder of a pre-trained model, run or checkpoint.")],
    first: Annotated[str, typer.Argument(help="First text.")],
    second: Annotated[str, typer.Argument(help="Second text.")],
    max_length: Annotated[int | None, option("max-length")] = None,
    engine: Annotated[str, option("engine")] = "auto",
    precision: Annotated[str, option("precision")] = "fp32",
    device: Annotated[str, option("device")] = "auto",
) -> None:
    """Predict whether one text follows another.

    Prints the prediction and its probability. Models trained with next-sentence prediction (NSP) predict whether the
    second text follows the first. Models pre-trained with sentence order prediction (SOP) predict whether the two
    texts are in order. Another language model answers by how much the first text tells of the second: by their topic
    more than by their order.

    \b
    Examples:
      bertie next-sentence starter-en "He was born in Paris." "His father was a French merchant."
      bertie next-sentence runs/tiny "It began to rain." "She opened her umbrella."
    """
    verdict = bertie.next_sentence(
        model, first, second, max_length=max_length, device=device, precision=precision, engine=engine
    )
    if console.verbosity.json:
        console.emit(verdict.as_json())
    else:
        gain = "" if verdict.gain is None else f", {verdict.gain:z.2f} nats per token from the first text"
        console.show(f"{SAID[verdict.verdict]} (probability {verdict.probability:z.3f}{gain})")
