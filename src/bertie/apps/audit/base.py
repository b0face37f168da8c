"""The interface of an audit set: it reads items, scores them with a model, and computes measures from the scores.

    files -> read -> items -> scores (the model) -> measures -> figures with intervals and controls (figures.py)

One set is one file and one row of sets.py. Scores are JSON values, so that a stopped audit can resume from them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from bertie import Model, Tokenizer
from bertie.platform import Bootstrap, Engine, Predictor, SkipReport, TableFormat

_Item = TypeVar("_Item")
Score = Any
Interval = tuple[float, float]
_HEADS = {
    "mlm": "a masked-LM head",
    "pair": "a next-sentence head",
    "choice": "a multiple-choice head",
    "span": "a question-answering head",
    "sequence": "a classifier",
}


@dataclass(frozen=True)
class Subject:
    """A model that is audited. kind: the objective of its head for pairs, nsp or sop."""

    engine: Engine
    tokenizer: Tokenizer
    kind: str = ""

    @cached_property
    def predictor(self) -> Predictor:
        """The model with the settings of its fine-tuning."""
        return Predictor(self.engine, self.tokenizer)

    @cached_property
    def embedder(self) -> Predictor:
        """The model's vectors as it was trained to make them, or the means of its tokens."""
        return Model(self.engine, self.tokenizer).embedder()

    @property
    def max_length(self) -> int:
        """The maximum number of tokens."""
        return self.engine.facts.max_length


@dataclass(frozen=True)
class AuditSource:
    """What a set reads: its files, and a table of texts with the column of a group, for classifiers."""

    paths: tuple[Path, ...] = ()
    table: Path | None = None
    format: TableFormat = field(default_factory=TableFormat)
    group: str = ""


@dataclass(frozen=True)
class AuditMeasure:
    """One number. items: what it was computed from. interval: computes its 95% interval.

    note: computes a remark, such as a p-value. neutral: the value without a preference. detail: whether the page shows
    it in a folded table. scale: the unit of the value, where it is not that of the set.
    """

    value: float
    items: int
    interval: Callable[[], Interval]
    note: Callable[[], str] = lambda: ""
    neutral: float | None = None
    detail: bool = False
    scale: str = ""


@dataclass(frozen=True)
class FigureExamples:
    """Rows to read next to the figures: those that decide most."""

    title: str
    columns: tuple[str, ...]
    rows: list[list[Any]]


@dataclass
class Read(Generic[_Item]):
    """The items of the files of a set. skipped: unreadable rows by file; notes: other remarks."""

    items: list[_Item] = field(default_factory=list)
    skipped: dict[str, SkipReport] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class AuditSet(ABC, Generic[_Item]):
    """A set of items with its measures. `about` and `criticism` are shown next to every figure."""

    name: ClassVar[str]
    title: ClassVar[str]
    about: ClassVar[str]
    criticism: ClassVar[str]
    unit: ClassVar[str]
    """The plural of what `Measure.items` counts; also the unit of resampling."""
    scale: ClassVar[str] = "%"
    """The unit of the values."""
    needs: ClassVar[tuple[str, ...]] = ()
    """The heads of which a model must have one; none: every model has vectors."""
    chunk: ClassVar[int] = 16
    """Items that are scored between two writes."""

    def missing(self, subject: Subject) -> str:
        """Returns what a model lacks for this set; "" if it lacks nothing."""
        if not self.needs or set(self.needs) & set(subject.engine.facts.heads):
            return ""
        return " or ".join(_HEADS[name] for name in self.needs)

    def recognizes(self, path: Path, head: bytes) -> bool:
        """Returns whether a file belongs to this set. head: its first bytes."""
        return False

    remedy: ClassVar[str] = "Pass its files with --files PATH."
    """What to pass to have data for this set."""

    def offered(self, source: AuditSource) -> bool:
        """Returns whether there is something to read. Built-in items are always there."""
        return bool(source.paths)

    @abstractmethod
    def read(self, subject: Subject, source: AuditSource) -> Read[_Item]:
        """Returns the items. Raises DataError for a damaged file or a missing column."""

    @abstractmethod
    def scores(self, subject: Subject, items: Sequence[_Item]) -> list[Score]:
        """Returns one JSON value for each item: its score, or a text that tells why it has none."""

    @abstractmethod
    def measures(self, items: Sequence[_Item], scores: Sequence[Score]) -> dict[str, AuditMeasure]:
        """Returns the measures of scored items, by name."""

    @abstractmethod
    def shuffled(
        self, items: Sequence[_Item], scores: Sequence[Score], rng: np.random.Generator
    ) -> tuple[Sequence[_Item], Sequence[Score]]:
        """Returns items and scores whose relation to each other is random, as a control."""

    def key(self, item: _Item) -> Hashable:
        """Returns what tells an item from others, to pair the scores of two models."""
        return repr(item)

    def unit_of(self, item: _Item) -> Hashable:
        """Returns the unit of resampling that an item belongs to. Default: the item itself."""
        return id(item)

    def copy_of(self, item: _Item, number: int) -> _Item:
        """Returns an item of the unit that was drawn as this number, where `measures` must tell two draws of a unit."""
        return item

    def redrawn(
        self, items: Sequence[_Item], scores: Sequence[Sequence[Score]], rng: np.random.Generator
    ) -> tuple[Sequence[_Item], Sequence[Sequence[Score]]]:
        """Returns items whose units are drawn with replacement, with the scores of several models for them."""
        units: dict[Hashable, list[int]] = {}
        for i, item in enumerate(items):
            units.setdefault(self.unit_of(item), []).append(i)
        groups = list(units.values())
        drawn = enumerate(rng.integers(len(groups), size=len(groups)).tolist())
        rows = [(number, i) for number, group in drawn for i in groups[group]]
        copies = [self.copy_of(items[i], number) for number, i in rows]
        return copies, [[one[i] for _, i in rows] for one in scores]

    def examples(self, items: Sequence[_Item], scores: Sequence[Score]) -> FigureExamples | None:
        """Returns rows to read, or None."""
        return None


def has_known_words(tokenizer: Tokenizer, texts: Sequence[str]) -> bool:
    """Returns whether every word of some texts is in the vocabulary."""
    unknown = tokenizer.special_id("unk")
    return not any(unknown in ids for ids in tokenizer.ids(list(texts)))


def middle(values: NDArray[np.float64]) -> Interval:
    """Returns the ends of the middle 95% of resampled values."""
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def fraction(right: int, total: int, *, neutral: float | None = 50.0, detail: bool = False) -> AuditMeasure:
    """Returns a percentage of items that do not depend on each other, with its Wilson interval."""

    def interval() -> Interval:
        from scipy.stats import binomtest

        low, high = binomtest(right, total).proportion_ci(method="wilson")
        return 100 * low, 100 * high

    return AuditMeasure(100 * right / total, total, interval, neutral=neutral, detail=detail, scale="%")


def of_units(
    counts: NDArray[np.float64],
    metrics_of: Callable[[NDArray[np.float64]], Mapping[str, NDArray[np.float64]]],
    *,
    items: dict[str, int],
    neutral: dict[str, float],
    detail: Sequence[str] = (),
    centered: Sequence[str] = (),
) -> dict[str, AuditMeasure]:
    """Returns measures of the sums of units (U, K), with the bootstrap over the units.

    metrics_of: sums (..., K) -> metrics (...) each. A metric that is not defined, or without items, is omitted.
    centered: metrics of squares or absolute values, which noise makes larger, so that resamples lie above the value.
    Their resamples are moved until their median is the value.
    """
    if not counts.shape[0]:
        return {}
    draws: dict[str, list[NDArray[np.float64]]] = {}

    def interval(name: str) -> Interval:
        if not draws:
            for sums in Bootstrap(counts).draws():
                for metric, values in metrics_of(sums).items():
                    draws.setdefault(metric, []).append(values)
        drawn = np.concatenate(draws[name])
        finite: NDArray[np.float64] = drawn[np.isfinite(drawn)]  # a resample may lack what the metric divides by
        if name in centered:
            finite = np.maximum(finite + own[name] - np.median(finite), 0)
        return middle(finite)

    own = {name: float(value) for name, value in metrics_of(counts.sum(0)).items()}
    return {
        name: AuditMeasure(
            value, items[name], partial(interval, name), neutral=neutral.get(name), detail=name in detail
        )
        for name, value in own.items()
        if items.get(name) and np.isfinite(value)
    }


def mean_of(name: str, values: Sequence[float], *, neutral: dict[str, float] | None = None) -> dict[str, AuditMeasure]:
    """Returns the mean of independent items under a name, with the bootstrap over the items."""

    def metrics_of(sums: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        return {name: sums[..., 0] / sums[..., 1]}

    counts = np.array([[value, 1.0] for value in values], np.float64)
    return of_units(counts, metrics_of, items={name: len(values)}, neutral=neutral or {})
