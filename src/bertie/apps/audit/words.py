"""WEAT and SEAT (Caliskan et al. 2017, May et al. 2019): two sets of words, nearer to one attribute than to another?

    s(w) = mean cosine(w, A) - mean cosine(w, B)
    d    = (mean of s over X - mean of s over Y) / standard deviation of s over both (ddof 1)
    p    = share of the partitions of X and Y, of the same sizes, whose sum of s over X is at least as large

All partitions are counted where there are at most SAMPLES. Otherwise that many are drawn, with the own one among them.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, with_config

from bertie.apps.audit.base import (
    AuditMeasure,
    AuditSet,
    AuditSource,
    Interval,
    Read,
    Score,
    Subject,
    has_known_words,
    middle,
)
from bertie.apps.audit.files import check_unique_names, validated
from bertie.platform import DataError, File, SourceFile

WORDS_FILE = Path(__file__).with_name("words.yaml")
SAMPLES = 100_000
_EPS = 1e-9  # relative: two sums of the same numbers in another order are equal
_NUMBERS_HELD = 1 << 22  # numbers of sampled partitions held at once
SIDES = {"X": "targ1", "Y": "targ2", "A": "attr1", "B": "attr2"}
"""Our names of the four sets -> those of the published files."""


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class WordTest:
    """Two sets of targets, X and Y, and two of attributes, A and B: each a name with words or sentences."""

    name: str
    X: dict[str, tuple[str, ...]]
    Y: dict[str, tuple[str, ...]]
    A: dict[str, tuple[str, ...]]
    B: dict[str, tuple[str, ...]]
    source: str = ""

    @cached_property
    def words(self) -> tuple[tuple[str, ...], ...]:
        """The words of X, Y, A and B."""
        return tuple(next(iter(side.values())) for side in (self.X, self.Y, self.A, self.B))

    def check(self, where: str) -> None:
        """Raises DataError for a test that cannot be computed."""
        for name, side in zip(SIDES, (self.X, self.Y, self.A, self.B), strict=True):
            if len(side) != 1:
                raise DataError(
                    f"{where}: {name} of {self.name!r} has {len(side)} names. Write {name}: {{name: [words]}}."
                )
        for name, words in zip(SIDES, self.words, strict=True):
            if len(words) < 2 or not all(word.strip() for word in words):
                raise DataError(f"{where}: {name} of {self.name!r} needs at least two words, none of them empty.")


def effect_size(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Returns d from the associations s of X and Y; nan where all are equal. Caliskan et al. 2017."""
    spread = np.concatenate([x, y]).std(ddof=1)
    return float((x.mean() - y.mean()) / spread) if spread > _EPS * np.abs(np.concatenate([x, y])).max() else math.nan


def permute_partitions(
    x: NDArray[np.float64], y: NDArray[np.float64], *, samples: int = SAMPLES, seed: int = 0
) -> tuple[float, int, bool]:
    """Returns the one-sided p-value, the number of partitions, and whether these are all there are."""
    both, size = np.concatenate([x, y]), len(x)
    bound = x.sum() - _EPS * np.abs(both).sum()
    partitions = math.comb(len(both), size)
    if partitions <= samples:
        chosen = np.fromiter((i for one in combinations(range(len(both)), size) for i in one), np.int64)
        hits = int((both[chosen.reshape(-1, size)].sum(1) >= bound).sum())
        return hits / partitions, partitions, True
    rng, hits, left = np.random.default_rng(seed), 1, samples - 1
    while left:
        rows = min(left, max(1, _NUMBERS_HELD // len(both)))
        order = rng.random((rows, len(both))).argpartition(size - 1, axis=1)[:, :size]
        hits += int((both[order].sum(1) >= bound).sum())
        left -= rows
    return hits / samples, samples, False


def associations(
    targets: NDArray[np.float64], first: NDArray[np.float64], second: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns s of each target from vectors (N, H), of attributes (A, H) and (B, H)."""
    targets_NH, first_AH, second_BH = (_unit(one.astype(np.float32)) for one in (targets, first, second))
    values: NDArray[np.float64] = ((targets_NH @ first_AH.T).mean(1) - (targets_NH @ second_BH.T).mean(1)).astype(
        np.float64
    )
    return values


class WordAssociations(AuditSet[WordTest]):
    """Associations of vectors of words or sentences."""

    name = "words"
    title = "WEAT and SEAT"
    about = (
        "Two sets of target words or sentences are compared by their cosines to two sets of attributes. The effect "
        "size d is between -2 and 2 if both have the same number of words. It is positive where the first targets are "
        "nearer to the first attributes. The p-value is one-sided and comes from a permutation test. Vectors "
        "are those that the model was trained to make, or else the mean of all tokens."
    )
    criticism = (
        "May et al. 2019 state that these tests can show the presence of bias and never its absence; Goldfarb-Tarrant "
        "et al. 2021 found no reliable correlation with the behavior of models in tasks."
    )
    unit = "tests, resampled by target"
    scale = "d"
    chunk = 1

    def recognizes(self, path: Path, head: bytes) -> bool:
        """A published JSON file, or a YAML file of own tests."""
        own = path.suffix in (".yaml", ".yml") and b"tests:" in head
        return own or (path.suffix in (".json", ".jsonl") and b'"targ1"' in head)

    def offered(self, source: AuditSource) -> bool:
        """Built-in words are always there."""
        return True

    def read(self, subject: Subject, source: AuditSource) -> Read[WordTest]:
        """Returns the tests whose words the vocabulary can write."""
        tests_read = Read[WordTest]()
        tests = [one for path in source.paths or (WORDS_FILE,) for one in read_tests(path)]
        check_unique_names(one.name for one in tests)
        for one in tests:
            if all(has_known_words(subject.tokenizer, words) for words in one.words):
                tests_read.items.append(one)
        if left := [one.name for one in tests if one not in tests_read.items]:
            tests_read.notes.append(f"Left out, because the vocabulary lacks some of their words: {', '.join(left)}.")
        return tests_read

    def scores(self, subject: Subject, items: Sequence[WordTest]) -> list[Score]:
        """Returns s of the targets of each test: {"x": [...], "y": [...]}, or why it has no effect size."""
        scores: list[Score] = []
        for one in items:
            words = [word for side in one.words for word in side]
            vectors = np.array([answer.label for answer in subject.embedder.predict(words)], np.float64)
            x, y, a, b = np.split(vectors, np.cumsum([len(side) for side in one.words])[:-1])
            sides = associations(x, a, b), associations(y, a, b)
            defined = math.isfinite(effect_size(*sides))
            scores.append(
                dict(zip("xy", (side.tolist() for side in sides), strict=True))
                if defined
                else f"the targets of {one.name!r} have equal vectors"
            )
        return scores

    def measures(self, items: Sequence[WordTest], scores: Sequence[Score]) -> dict[str, AuditMeasure]:
        """Returns d of each test, and the mean of their absolute values for several tests."""
        measures, sizes = dict[str, AuditMeasure](), list[float]()
        for item, score in zip(items, scores, strict=True):
            x, y = np.array(score["x"]), np.array(score["y"])
            size = effect_size(x, y)
            if math.isfinite(size):
                sizes.append(abs(size))
                measures[item.name] = AuditMeasure(
                    size, len(x) + len(y), partial(_interval, x, y), partial(_told, x, y), neutral=0.0
                )
        return measures if len(sizes) < 3 else {"mean of |d|": _mean(np.array(sizes)), **measures}

    def shuffled(
        self, items: Sequence[WordTest], scores: Sequence[Score], rng: np.random.Generator
    ) -> tuple[Sequence[WordTest], Sequence[Score]]:
        """Divides the targets of each test at random."""
        mixed = []
        for score in scores:
            both = rng.permutation(score["x"] + score["y"])
            mixed.append({"x": both[: len(score["x"])], "y": both[len(score["x"]) :]})
        return items, mixed

    def key(self, item: WordTest) -> Hashable:
        """The name of the test."""
        return item.name

    def redrawn(
        self, items: Sequence[WordTest], scores: Sequence[Sequence[Score]], rng: np.random.Generator
    ) -> tuple[Sequence[WordTest], Sequence[Sequence[Score]]]:
        """Draws the targets of each test with replacement, the same ones for all models."""
        draws: list[list[Score]] = [[] for _ in scores]
        for of_test in zip(*scores, strict=True):
            drawn = {side: rng.integers(len(of_test[0][side]), size=len(of_test[0][side])) for side in ("x", "y")}
            for into, score in zip(draws, of_test, strict=True):
                into.append({side: np.array(score[side])[rows] for side, rows in drawn.items()})
        return items, draws


_RESAMPLES = 2000  # the 2.5 and 97.5 percent points then rest on 50 resamples each


def _interval(x: NDArray[np.float64], y: NDArray[np.float64]) -> Interval:
    """The bootstrap over the targets of each set."""
    rng = np.random.default_rng(0)
    draws = [effect_size(rng.choice(x, len(x)), rng.choice(y, len(y))) for _ in range(_RESAMPLES)]
    finite = np.array([one for one in draws if math.isfinite(one)])
    return middle(finite) if len(finite) else (math.nan, math.nan)


def _mean(sizes: NDArray[np.float64]) -> AuditMeasure:
    def interval() -> Interval:
        rng = np.random.default_rng(0)
        return middle(rng.choice(sizes, (_RESAMPLES, len(sizes))).mean(1))

    return AuditMeasure(float(sizes.mean()), len(sizes), interval, lambda: "items: tests")


def _told(x: NDArray[np.float64], y: NDArray[np.float64]) -> str:
    p, partitions, whole = permute_partitions(x, y)
    return f"p = {p:.3g} ({'all' if whole else 'sampled'} {partitions:,} partitions)"


def read_tests(path: Path) -> list[WordTest]:
    """Returns the tests of a file: YAML of our own, or a published JSON. Raises DataError for another layout."""
    raw: object = (
        [_published(path)] if path.suffix != ".yaml" and path.suffix != ".yml" else SourceFile(path).yaml().get("tests")
    )
    tests = validated(WordTest, raw, path)
    for one in tests:
        one.check(str(path))
    return tests


def _published(path: Path) -> dict[str, object]:
    content: Mapping[str, Any] = File(path).read_json()
    try:
        sides = {ours: {content[theirs]["category"]: content[theirs]["examples"]} for ours, theirs in SIDES.items()}
    except (KeyError, TypeError) as error:
        raise DataError(f"{path} does not have the layout of WEAT and SEAT: {error} is missing.") from None
    return {"name": path.stem, **sides}


def _unit(vectors_NH: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns vectors of length 1; zero vectors stay zero. (N, H) -> (N, H)"""
    unit: NDArray[np.float32] = vectors_NH / np.maximum(np.linalg.norm(vectors_NH, axis=-1, keepdims=True), 1e-12)
    return unit
