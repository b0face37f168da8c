"""The figures of an audit: each measure with its interval, and the same for random weights and shuffled items."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bertie.apps.audit.base import AuditMeasure, AuditSet, Score, middle

SHUFFLES = 200  # the 2.5 and 97.5 percent points rest on 5 of them

_RESAMPLES = 400  # of a paired difference, each of which computes every figure twice
Scored = tuple[list[object], list[Score]]
"""Items and their scores."""


@dataclass(frozen=True)
class Control:
    """A measure of a control: the value for random weights with its interval, or the mean and the middle 95% of
    SHUFFLES shuffles."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Figure:
    """A measure with its 95% interval and its controls."""

    name: str
    value: float
    low: float
    high: float
    items: int
    unit: str
    neutral: float | None = None
    note: str = ""
    detail: bool = False
    random: Control | None = None
    shuffled: Control | None = None

    def as_json(self) -> dict[str, Any]:
        """Returns the figure as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Figure":
        """Returns what `as_json` wrote."""
        controls = {name: Control(**fields[name]) for name in ("random", "shuffled") if fields[name]}
        return cls(**{**fields, **controls})


def compute_figures(
    audited: AuditSet[object],
    items: Sequence[object],
    scores: Sequence[Score],
    random: Sequence[Score] | None,
    *,
    shuffles: int = SHUFFLES,
    seed: int = 0,
) -> list[Figure]:
    """Returns the figures of scored items. Items whose score is a text are left out. random: those of random weights;
    None for no such control."""
    own = audited.measures(*scored(items, scores))
    other = {} if random is None else audited.measures(*scored(items, random))
    chance = _shuffled(audited, *scored(items, scores), shuffles, seed)
    return [_figure(name, one, other.get(name), chance.get(name), audited.scale) for name, one in own.items()]


def scored(items: Sequence[object], scores: Sequence[Score]) -> Scored:
    """Returns the items that have a score, and their scores."""
    pairs = [(item, score) for item, score in zip(items, scores, strict=True) if not isinstance(score, str)]
    return [item for item, _ in pairs], [score for _, score in pairs]


def _shuffled(
    audited: AuditSet[object], items: Sequence[object], scores: Sequence[Score], shuffles: int, seed: int
) -> dict[str, Control]:
    rng, values = np.random.default_rng(seed), dict[str, list[float]]()
    for _ in range(shuffles):
        for name, one in audited.measures(*audited.shuffled(items, scores, rng)).items():
            values.setdefault(name, []).append(one.value)
    return {name: Control(float(np.mean(values)), *middle(np.array(values))) for name, values in values.items()}


def _figure(name: str, own: AuditMeasure, random: AuditMeasure | None, shuffled: Control | None, unit: str) -> Figure:
    low, high = own.interval()
    control, unit = None if random is None else Control(random.value, *random.interval()), own.scale or unit
    return Figure(name, own.value, low, high, own.items, unit, own.neutral, own.note(), own.detail, control, shuffled)


def differences(
    audited: AuditSet[Any], before: Scored, after: Scored, *, resamples: int = _RESAMPLES, seed: int = 0
) -> dict[str, Control]:
    """Returns every figure after a change minus before it, with the 95% interval of a paired bootstrap.

    The units of the set are resampled, the same ones for both. Items that one of the two lacks are left out.
    """
    later = dict(zip(map(audited.key, after[0]), after[1], strict=True))
    rows = [
        (item, score, later[key]) for item, score in zip(*before, strict=True) if (key := audited.key(item)) in later
    ]
    items, scores = [item for item, _, _ in rows], ([row[1] for row in rows], [row[2] for row in rows])

    def apart(items: Sequence[object], scores: Sequence[Sequence[Score]]) -> dict[str, float]:
        first, second = (audited.measures(items, one) for one in scores)
        return {name: second[name].value - one.value for name, one in first.items() if name in second}

    rng, draws = np.random.default_rng(seed), dict[str, list[float]]()
    for _ in range(resamples):
        for name, value in apart(*audited.redrawn(items, scores, rng)).items():
            draws.setdefault(name, []).append(value)
    whole = apart(items, scores)
    return {name: Control(one, *middle(np.array(draws[name]))) for name, one in whole.items() if name in draws}
