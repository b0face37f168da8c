"""The search space of tuning: choices and ranges by dotted keys of a run's settings. The default is the published
grid."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertie.errors import UsageError
from bertie.runs.config import FinetuneConfig
from bertie.settings import build, merge, nested, scalar


@dataclass(frozen=True)
class Range:
    """Any number from low to high, an integer if both are; on a logarithmic scale where low is above 0."""

    low: float
    high: float


Space = Mapping[str, tuple[Any, ...] | Range]
"""Dotted key of a run's settings -> its choices, or a range."""

PAPER: Space = {"train.batch_size": (16, 32), "optim.lr": (5e-5, 3e-5, 2e-5), "epochs": (2, 3, 4)}


def parse_space(varied: Sequence[str]) -> Space:
    """Parses "optim.lr=5e-5,3e-5" and "optim.lr=1e-5..1e-4" to a space; without items, the published grid."""
    space: dict[str, tuple[Any, ...] | Range] = {}
    for text in varied:
        name, equals, values = text.partition("=")
        low, dots, high = values.partition("..")
        if not (name and equals and values):
            raise UsageError(
                f"{text!r} has no values. Write KEY=A,B,C or KEY=LOW..HIGH, for example optim.lr=5e-5,3e-5."
            )
        if not dots:
            space[name] = tuple(scalar(value) for value in values.split(","))
            continue
        ends = scalar(low), scalar(high)
        if not all(isinstance(end, (int, float)) for end in ends) or not ends[0] < ends[1]:
            raise UsageError(
                f"{text!r}: {values} is not a range. Write LOW..HIGH with two numbers, the smaller one first."
            )
        space[name] = Range(*ends)
    return space or PAPER


def grid(space: Space) -> list[dict[str, Any]] | None:
    """Returns every point of a space of choices; None where there is a range."""
    if any(isinstance(values, Range) for values in space.values()):
        return None
    return [dict(zip(space, point, strict=True)) for point in itertools.product(*space.values())]  # type: ignore[arg-type]


def varied(config: FinetuneConfig, values: Mapping[str, Any]) -> FinetuneConfig:
    """Returns the config with some dotted keys changed. Raises UsageError for an unknown key or a bad value."""
    tree = config.model_dump()
    if not config.rate_is_set:
        del tree["optim"]["lr"]  # the model's width decides it, unless the values have it
    for dotted, value in values.items():
        merge(tree, nested(dotted, value))
    return build(FinetuneConfig, tree)
