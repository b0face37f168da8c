"""`bertie detect`: words of a text that look wrong to a model that was trained on replaced tokens.

    the chef ate the meal  ->  head "rtd"  ->  0.02 0.05 0.91 0.03 0.04

Clark et al. 2020, arXiv:2003.10555: the discriminator of ELECTRA says of every token whether it was replaced.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import bertie
from bertie import platform
from bertie.apps.cli.shared import option
from bertie.platform import BadRecord, DataError, Sequences, UsageError, console

_HEAD = "rtd"


@dataclass(frozen=True)
class ReadWord:
    """A word of a text. start, end: its characters; probability: that it was replaced, the highest of its tokens."""

    word: str
    start: int
    end: int
    probability: float


def read_words(model: bertie.Model, text: str, *, max_length: int | None = None) -> list[ReadWord]:
    """Returns the words of a text, each with the probability that it does not belong there.

    Raises:
        UsageError: The model has no head for replaced tokens, or max_length is more than its positions.
        DataError: The text has no words, or more tokens than the model reads.
    """
    engine = model.runner
    if _HEAD not in engine.facts.heads:
        raise UsageError(
            "This model has no head for replaced tokens. Use the discriminator of an ELECTRA, or a model that was "
            "pre-trained with objectives.rtd={} (bertie help objectives). Fine-tuned models have no such head."
        )
    predictor = model.predictor(max_length=max_length)
    encoding = predictor.tokenizer.encode(text)
    if len(encoding) > predictor.max_length:
        raise DataError(
            f"The text has {len(encoding):,} tokens, more than the maximum of {predictor.max_length:,}. "
            "Pass one sentence or paragraph at a time."
        )
    ids, types = (np.array(each, np.int64) for each in (encoding.ids, encoding.type_ids))
    (logits_T1,) = engine.run(Sequences(ids, types, np.array([len(ids)])), (_HEAD,)).values()
    words: dict[int, ReadWord] = {}
    for word, (start, end), logit in zip(encoding.word_ids, encoding.offsets, logits_T1.ravel().tolist(), strict=True):
        if word is None:  # [CLS], [SEP]
            continue
        probability = float(1 / (1 + np.exp(-logit)))
        if word in words:
            start, probability = words[word].start, max(probability, words[word].probability)
        words[word] = ReadWord(text[start:end], start, end, probability)
    if not words:
        raise DataError("The text has no words.")
    return list(words.values())


def detect_command(
    model: Annotated[Path, typer.Argument(help="Name or folder of a model with a head for replaced tokens: ELECTRA.")],
    text: Annotated[str, typer.Argument(help="Text to check; - reads lines of stdin.")] = "-",
    threshold: Annotated[
        float, typer.Option("--threshold", min=0.0, max=1.0, help="Lowest probability of a word that is printed.")
    ] = 0.5,
    max_length: Annotated[int | None, option("max-length")] = None,
    engine: Annotated[str, option("engine")] = "auto",
    precision: Annotated[str, option("precision")] = "fp32",
    device: Annotated[str, option("device")] = "auto",
) -> None:
    """Find words that look wrong in a text.

    Prints the words that the model takes for replaced ones, with their probability and their characters. The model must
    have been pre-trained on replaced tokens, as ELECTRA's discriminator is.

    \b
    Examples:
      bertie detect runs/electra "The capital of France is banana."
      bertie detect runs/electra --threshold 0.3 --json < scanned.txt
    """
    loaded = bertie.load(model, device=device, precision=precision, engine=engine)

    def answer(line: str, number: int = 1) -> None:
        words = [word for word in read_words(loaded, line, max_length=max_length) if word.probability >= threshold]
        if console.verbosity.json:
            rows = [{**asdict(word), "probability": round(word.probability, 6)} for word in words]
            console.emit({"line": number, "text": line, "words": rows})
            return
        for word in words:
            where = f"{number}:" if text == "-" else ""
            console.show(f"{word.probability:z.3f}  {where}{word.start}-{word.end}  {word.word}")

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
