"""`bertie write`: text that a model generates for a text."""

import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

import bertie
from bertie import platform
from bertie.apps.cli.shared import option
from bertie.platform import BadRecord, BertieError, DataError, console


def write_command(
    model: Annotated[
        Path,
        typer.Argument(help="Folder of a model that generates text: T5, GPT-2 ..."),
    ],
    text: Annotated[str, typer.Argument(help="Text to continue or to transform; - reads lines of stdin.")] = "-",
    max_new_tokens: Annotated[
        int | None, typer.Option("--max-new-tokens", min=1, help="Maximum number of tokens. Default: as trained.")
    ] = None,
    beams: Annotated[
        int | None, typer.Option("--beams", min=1, help="Number of beams. Default: as trained; 1 is greedy.")
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option("--length-penalty", help="With beams: above 0 prefers long texts, below 0 short ones."),
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw each token at random.")] = False,
    temperature: Annotated[
        float | None, typer.Option("--temperature", help="With --sample: below 1 prefers probable tokens.")
    ] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", help="With --sample: draw among the k likeliest.")] = None,
    top_p: Annotated[
        float | None, typer.Option("--top-p", help="With --sample: draw among the likeliest of this probability.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of --sample.")] = 0,
    max_length: Annotated[int | None, option("max-length")] = None,
    precision: Annotated[str, option("precision")] = "fp32",
    device: Annotated[str, option("device")] = "auto",
) -> None:
    """Generate text from a text.

    The text is printed while it is generated. A fine-tuned model reads the text in the template of its training. From
    standard input, each line gives one line.

    \b
    Examples:
      bertie write runs/summaries/model "The report of the committee says ..."
      bertie write runs/tiny-gpt/model "Once upon a time" --sample --top-p 0.9 --seed 3
      bertie write runs/spacing/model --beams 4 < lines.txt
    """
    writer = bertie.load(model, device=device, precision=precision, engine="torch").writer(
        max_new_tokens=max_new_tokens,
        beams=beams,
        length_penalty=length_penalty,
        sample=sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        max_length=max_length,
    )

    def answer(one: str, number: int = 1) -> None:
        parts = writer(one)
        if console.verbosity.json:
            console.emit({"line": number, "text": "".join(parts)})
            return
        for part in parts:
            sys.stdout.write(part)
            sys.stdout.flush()
        sys.stdout.write("\n")

    if text != "-":
        answer(text)
        _warn(writer.notes)
        return
    reasons, number = Counter[str](), 0
    for number, line in platform.SourceFile("-").numbered_lines():
        try:
            if isinstance(line, BadRecord) or not line.strip():
                raise DataError(line.reason if isinstance(line, BadRecord) else "empty text")
            answer(line, number)
        except BertieError as error:  # of this line: an empty one, or one that is too long
            reasons[str(error)] += 1
            if console.verbosity.json:
                console.emit({"line": number, "error": str(error)})
            else:
                sys.stdout.write("\n")  # so that lines of output are lines of input
    for reason, skipped in reasons.items():
        console.warn(f"{skipped:,} of {number:,} lines skipped: {reason}")
    _warn(writer.notes)


def _warn(notes: list[str]) -> None:
    for note in notes:
        console.warn(note)
