"""The search space of tuning: choices and ranges by dotted keys of a run's settings. The default is the published
grid."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bertie.errors import UsageError
from bertie.runs.config import FinetuneConfig
from bertie.settings import build_config, merge, nested, scalar, typed
from bertie.train.schedule import BASE


@dataclass(frozen=True)
class Range:
    """Any number from low to high, an integer if both are; on a logarithmic scale where low is above 0."""

    low: float
    high: float


Space = Mapping[str, tuple[object, ...] | Range]
"""Dotted key of a run's settings -> its choices, or a range."""


def published_space(rate: float) -> Space:
    """Returns the published grid, whose rates are around that of BERT-base, for a model with another usual rate."""
    rates = (float(f"{rate * one / BASE:.2g}") for one in (5e-5, 3e-5, 2e-5))
    return {"train.batch_size": (16, 32), "optim.lr": tuple(rates), "epochs": (2, 3, 4)}


def parse_space(varied: Sequence[str]) -> Space:
    """Parses "optim.lr=5e-5,3e-5" and "optim.lr=1e-5..1e-4" to a space."""
    space: dict[str, tuple[object, ...] | Range] = {}
    for text in varied:
        name, equals, values = text.partition("=")
        ends = [scalar(end) for end in values.split("..", 1)]
        if not (name and equals and values):
            raise UsageError(
                f"{text!r} has no values. Write KEY=A,B,C or KEY=LOW..HIGH, for example optim.lr=5e-5,3e-5."
            )
        if name in space:
            raise UsageError(f"{name} is varied twice. Write all its values in one: {name}=A,B,C.")
        if len(ends) < 2 or not all(isinstance(end, (int, float)) for end in ends):  # ../model is a folder
            space[name] = tuple(dict.fromkeys(typed(FinetuneConfig, name, value) for value in values.split(",")))
            continue
        if not ends[0] < ends[1]:
            raise UsageError(
                f"{text!r}: {values} is not a range. Write LOW..HIGH with two numbers, the smaller one first."
            )
        space[name] = Range(*ends)
    return space


def grid(space: Space) -> list[dict[str, object]] | None:
    """Returns every point of a space of choices; None where there is a range."""
    return None if any(isinstance(values, Range) for values in space.values()) else corners(space)


def corners(space: Space) -> list[dict[str, object]]:
    """Returns every point of a space of choices, and of a range both ends."""
    choices = [(values.low, values.high) if isinstance(values, Range) else values for values in space.values()]
    return [dict(zip(space, point, strict=True)) for point in itertools.product(*choices)]


def varied(config: FinetuneConfig, values: Mapping[str, object]) -> FinetuneConfig:
    """Returns the config with some dotted keys changed. Raises UsageError for an unknown key or a bad value."""
    tree = config.model_dump()
    for dotted, value in values.items():
        merge(tree, nested(dotted, value))
    built = build_config(FinetuneConfig, tree)
    return built if config.rate_is_set or "optim.lr" in values else built.with_rate_of_recipe()
