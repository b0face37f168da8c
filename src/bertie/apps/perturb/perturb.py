"""Perturbed examples: how a model's metrics change with typing errors, spaces and case, and whether opposites change
its answers.

A perturbation is one row of PERTURBATIONS, a function of a text and a random generator. All but `contrast` keep the
label. Sources: Pruthi et al. 2019 (typing errors), Gardner et al. 2020 (contrast sets and their consistency).
"""

import re
import unicodedata
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import cast

from bertie.apps.perturb.swaps import Swaps
from bertie.platform import (
    DataError,
    Example,
    PairedDifference,
    Prediction,
    Predictor,
    Registry,
    TableFormat,
    UsageError,
    nearest,
    parse_yaml,
)

IntervalOf = Callable[[float, float], tuple[float, float]]
"""The 95% interval of a share, from the number of those that are right, and of all."""


@dataclass(frozen=True)
class Perturbation:
    """A change of texts. change: (text, random generator, rate) -> text. rate: share of the places that change.

    exchanges: whether the label of a task with two labels becomes the other one.
    """

    change: Callable[[str, Random, float], str]
    rate: float = 1.0
    exchanges: bool = False


# Changes of texts ----------------------------------------------------------------------------------------------------

_WORD = re.compile(r"[^\W\d_]{2,}")
_SPACE = re.compile(r"(?<=[가-힣]) (?=[가-힣])")
_KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
NEIGHBORS = {
    key: row[max(at - 1, 0) : at] + row[at + 1 : at + 2] for row in _KEYS for at, key in enumerate(row)
}  # of a key, on its row
SYLLABLES, FINALS = 0xAC00, 28  # the first Hangul syllable; a syllable's number modulo 28 is its final consonant


def typos(text: str, rng: Random, rate: float) -> str:
    """Changes one letter of a share of the words: exchanged with the next, left out, doubled, or a neighboring key.

    In Hangul, the neighboring key is a missing final consonant.
    """
    return _WORD.sub(lambda word: _typo(word[0], rng) if rng.random() < rate else word[0], text)


def _typo(word: str, rng: Random) -> str:
    at, kind = rng.randrange(len(word)), rng.randrange(4)
    letter, after = word[at], word[at + 1 : at + 2]
    if kind == 0 and after:
        return word[:at] + after + letter + word[at + 2 :]
    if kind == 1:
        return word[:at] + word[at + 1 :]
    if kind == 2:
        return word[: at + 1] + word[at:]
    if "가" <= letter <= "힣":
        return word[:at] + chr(ord(letter) - (ord(letter) - SYLLABLES) % FINALS) + word[at + 1 :]
    keys = NEIGHBORS.get(letter.lower(), letter)
    key = rng.choice(keys)
    return word[:at] + (key.upper() if letter.isupper() else key) + word[at + 1 :]


def spacing(text: str, rng: Random, rate: float) -> str:
    """Removes a share of the spaces between Korean words, which many writers leave out."""
    return _SPACE.sub(lambda space: "" if rng.random() < rate else " ", text)


def punctuation(text: str, rng: Random, rate: float) -> str:
    """Removes punctuation and symbols. The vowel signs and accents of a word stay."""
    letters = "".join(" " if unicodedata.category(letter)[0] in "PS" else letter for letter in text)
    return text if letters == text else " ".join(letters.split())


@cache
def opposites() -> Swaps:
    """Returns the words of opposites.yaml with their opposites."""
    text = Path(__file__).with_name("opposites.yaml").read_text(encoding="utf-8")
    groups = cast(dict[str, list[tuple[str, str]]], parse_yaml(text))
    return Swaps.of((first, second) for group in groups.values() for first, second in group)


PERTURBATIONS: Registry[Perturbation] = Registry(
    "perturbation",
    [
        ("typos", Perturbation(typos, rate=0.1)),
        ("spacing", Perturbation(spacing, rate=0.5)),
        ("lowercase", Perturbation(lambda text, rng, rate: text.lower())),
        ("uppercase", Perturbation(lambda text, rng, rate: text.upper())),
        ("punctuation", Perturbation(punctuation)),
        ("contrast", Perturbation(lambda text, rng, rate: opposites()(text), exchanges=True)),
    ],
)


# Measures ------------------------------------------------------------------------------------------------------------


def chosen_perturbations(predictor: Predictor, names: Sequence[str]) -> dict[str, Perturbation]:
    """Returns the perturbations of these names. Raises UsageError for an unknown name, or one that exchanges two labels
    where the model has another number."""
    rows = {name: _perturbation(name) for name in names}
    labels = predictor.task.labels
    if len(labels) != 2 and any(one.exchanges for one in rows.values()):
        raise UsageError(f"--perturb contrast exchanges two labels; the model has {len(labels)}.")
    return rows


def measure_perturbations(
    predictor: Predictor,
    path: Path | str,
    format: TableFormat,
    names: Sequence[str],
    *,
    interval: IntervalOf,
    seed: int = 0,
    without: Collection[str] = (),
) -> dict[str, dict[str, object]]:
    """Measures a model on perturbed examples of a labeled file. names: rows of PERTURBATIONS, also with a rate,
    "typos=0.2". Only changed texts are predicted again. without: metrics that the examples do not define.

    Returns, by name: `changed` rows `of` all, `same_answers` (share of the changed rows; None for numbers), and
    `differences` of each metric, perturbed minus original. Of `contrast`: the shares that are `right` on the originals,
    on the opposites and on both, with `interval_95`.
    Raises what `chosen` raises, and DataError without examples.
    """
    task, hows = predictor.task, chosen_perturbations(predictor, names)
    original = [
        (row, answer)
        for row, answer in predictor.stream(task.rows(path, predictor.pipeline.reading(format)))
        if isinstance(row, Example) and row.label is not None and isinstance(answer, Prediction)
    ]
    if not original:
        raise DataError(f"{path} contains no labeled example that the model can read.", code="no-rows")
    return {name: _measured(predictor, original, how, seed, without, interval) for name, how in hows.items()}


def _measured(
    predictor: Predictor,
    original: list[tuple[Example, Prediction]],
    how: Perturbation,
    seed: int,
    without: Collection[str],
    interval: IntervalOf,
) -> dict[str, object]:
    changed: dict[int, Example] = {}
    for number, (row, _) in enumerate(original):
        rng = Random(f"{seed}:{number}")
        composed = tuple(unicodedata.normalize("NFC", text) for text in row.texts)  # macOS writes Hangul in parts
        texts = tuple(how.change(text, rng, how.rate) for text in composed)
        if texts != composed and all(text.strip() for text in texts):
            changed[number] = replace(row, texts=texts)
    again = dict(zip(changed, (answer for _, answer in predictor.stream(changed.values())), strict=True))
    answers = {number: answer for number, answer in again.items() if isinstance(answer, Prediction)}
    facts: dict[str, object] = {"changed": len(answers), "of": len(original)}
    if how.exchanges:
        return facts | _contrast(predictor.task.labels, original, answers, interval)
    labels = {number: answer.label for number, answer in answers.items() if not isinstance(answer.label, float)}
    same = [original[number][1].label == label for number, label in labels.items()]
    rows = [(row, answers.get(number, answer), answer) for number, (row, answer) in enumerate(original)]
    differences = PairedDifference.of_rows(predictor.task, predictor.task, rows, seed=seed)
    return facts | {
        "same_answers": sum(same) / len(same) if same else None,
        "differences": {name: one.as_json() for name, one in differences.items() if name not in without},
    }


def _contrast(
    labels: Sequence[str],
    original: list[tuple[Example, Prediction]],
    answers: dict[int, Prediction],
    interval: IntervalOf,
) -> dict[str, object]:
    other = dict(zip(labels, reversed(labels), strict=True))
    first = [original[number][1].label == original[number][0].label for number in answers]
    second = [answer.label == other.get(original[number][0].label) for number, answer in answers.items()]
    both = [one and two for one, two in zip(first, second, strict=True)]
    shares = {"original": first, "opposite": second, "both": both}
    return {
        "right": {name: sum(of) / len(of) if of else None for name, of in shares.items()},
        "interval_95": {name: interval(sum(of), len(of)) for name, of in shares.items()},
    }


def _perturbation(name: str) -> Perturbation:
    """Returns a row of the table, with the rate of "typos=0.2"."""
    kind, equals, rate = name.partition("=")
    if kind not in PERTURBATIONS:
        raise UsageError(f"--perturb {name}: unknown. {nearest(kind, PERTURBATIONS)}", code="unknown-name")
    if not equals:
        return PERTURBATIONS[kind]
    try:
        share = float(rate)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1 or kind not in ("typos", "spacing"):
        raise UsageError(f"--perturb {name}: only typos and spacing take a rate, above 0 and at most 1.")
    return replace(PERTURBATIONS[kind], rate=share)
