"""`bertie detect`: words of a text that look wrong to a pre-trained model.

    the chef ate the meal  ->  head "rtd"                         ->  0.02 0.05 0.91 0.03 0.04
                           ->  head "mlm", each word masked once  ->  1 - p(word)

Clark et al. 2020, arXiv:2003.10555: the discriminator of ELECTRA says of every token whether it was replaced. A masked
language model says how probable a word is where it is hidden.

N masked tokens · S tokens of the text · V vocabulary
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import bertie
from bertie.apps.cli.shared import option
from bertie.apps.pretrained.lines import answer_lines
from bertie.platform import DataError, Encoding, Sequences, UsageError, console

_HEADS = {"rtd": 0.5, "mlm": 0.9999}
"""Head -> the lowest probability of a word that is printed by default: rare words are improbable everywhere."""


@dataclass(frozen=True)
class ReadWord:
    """A word of a text. start, end: its characters.

    probability: that it was replaced, the highest of its tokens; of a masked language model, that of all other words.
    """

    word: str
    start: int
    end: int
    probability: float


def read_words(model: bertie.Model, text: str, *, max_length: int | None = None) -> list[ReadWord]:
    """Returns the words of a text, each with the probability that it does not belong there.

    Raises:
        UsageError: The model has neither head, or max_length is more than its positions.
        DataError: The text has no words, or more tokens than the model reads.
    """
    head = _head_of(model)
    predictor = model.predictor(max_length=max_length)
    encoding = predictor.tokenizer.encode(text)
    if len(encoding) > predictor.max_length:
        raise DataError(
            f"The text has {len(encoding):,} tokens, more than the maximum of {predictor.max_length:,}. "
            "Pass one sentence or paragraph at a time."
        )
    words: dict[int, list[int]] = {}
    for place, word in enumerate(encoding.word_ids):
        if word is not None:  # [CLS], [SEP]
            words.setdefault(word, []).append(place)
    if not words:
        raise DataError("The text has no words.")
    scores = {"rtd": _by_head, "mlm": _by_masks}[head](model, encoding, list(words.values()))
    ends = ((encoding.offsets[places[0]][0], encoding.offsets[places[-1]][1]) for places in words.values())
    return [ReadWord(text[start:end], start, end, score) for (start, end), score in zip(ends, scores, strict=True)]


def _head_of(model: bertie.Model) -> str:
    """Returns the head that tells of words. Raises UsageError for a model without one."""
    for head in _HEADS:
        if head in model.runner.facts.heads:
            return head
    raise UsageError(
        "This model has no head for replaced tokens and none for masked ones. Use a pre-trained model, such as "
        "starter-en or the discriminator of an ELECTRA. Fine-tuned models have no such head."
    )


def _by_head(model: bertie.Model, encoding: Encoding, words: list[list[int]]) -> list[float]:
    """Returns the highest probability of the tokens of each word."""
    ids, types = (np.array(each, np.int64) for each in (encoding.ids, encoding.type_ids))
    (logits,) = model.runner.run(Sequences(ids, types, np.array([len(ids)])), ("rtd",)).values()
    return [float(1 / (1 + np.exp(-logits.ravel()[places].max()))) for places in words]


def _by_masks(model: bertie.Model, encoding: Encoding, words: list[list[int]]) -> list[float]:
    """Returns 1 - p of each word, whose tokens are all masked: p is the geometric mean of theirs."""
    engine, ids_S = model.runner, np.array(encoding.ids, np.int64)
    rows = np.repeat(ids_S[None], len(words), 0)
    for row, places in zip(rows, words, strict=True):
        row[places] = model.tokenizer.mask_id
    most, values = max(1, engine.facts.batch_tokens // len(ids_S)), list[float]()
    for start in range(0, len(words), most):
        part = words[start : start + most]
        positions = np.array([row * len(ids_S) + place for row, places in enumerate(part) for place in places])
        ids = rows[start : start + most].ravel()
        lengths = np.full(len(part), len(ids_S))
        batch = Sequences(ids, np.tile(np.array(encoding.type_ids, np.int64), len(part)), lengths, positions)
        logits_NV = engine.run(batch, ("mlm",))["mlm"].astype(np.float64)
        mass_N = np.logaddexp.reduce(logits_NV, axis=-1)
        nats = iter(mass_N - logits_NV[np.arange(len(positions)), ids_S[[place for one in part for place in one]]])
        values += [1 - float(np.exp(-np.mean([next(nats) for _ in places]))) for places in part]
    return values


def detect_command(
    model: Annotated[Path, typer.Argument(help="Name or folder of a pre-trained model, run or checkpoint.")],
    text: Annotated[str, typer.Argument(help="Text to check; - reads lines of stdin.")] = "-",
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold",
            min=0.0,
            max=1.0,
            help="Lowest probability of a word that is printed. Default: 0.5, or 0.9999 of a masked language model.",
        ),
    ] = None,
    max_length: Annotated[int | None, option("max-length")] = None,
    engine: Annotated[str, option("engine")] = "auto",
    precision: Annotated[str, option("precision")] = "fp32",
    device: Annotated[str, option("device")] = "auto",
) -> None:
    """Find words that look wrong in a text.

    Prints the words that do not fit, with their probability and their characters. A model that was pre-trained on
    replaced tokens, such as ELECTRA, says how probable it is that a word was replaced. A masked language model reads
    the text once per word, and says how probable all other words are there.

    \b
    Examples:
      bertie detect starter-en "The train was late, and the passengers were very banana."
      bertie detect runs/electra --threshold 0.3 --json < scanned.txt
    """
    loaded = bertie.load(model, device=device, precision=precision, engine=engine)
    least = _HEADS[_head_of(loaded)] if threshold is None else threshold

    def answer(line: str, number: int) -> None:
        words = [word for word in read_words(loaded, line, max_length=max_length) if word.probability >= least]
        if console.verbosity.json:
            rows = [{**asdict(word), "probability": round(word.probability, 6)} for word in words]
            console.emit({"line": number, "text": line, "words": rows})
            return
        for word in words:
            where = f"{number}:" if text == "-" else ""
            console.show(f"{word.probability:z.5f}  {where}{word.start}-{word.end}  {word.word}")

    answer_lines(text, answer)
