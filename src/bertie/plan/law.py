"""The loss to expect from a model and a number of tokens: a law fitted to measured runs (law.yaml). It is rough.

    loss = E + A / N^a + B / D^b

N parameters of the layers · D tokens that training reads · loss in nats per masked token of held-out text

Source of the form: Hoffmann et al. 2022, equation 2. The constants are fitted when asked for: exponents by search, the
rest by least squares.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from bertie.settings import read_yaml

EXPONENTS = np.arange(0.04, 0.81, 0.02)


@dataclass(frozen=True)
class Point:
    """A measured run: parameters of its layers, tokens that it read, and its loss on held-out text at the end."""

    run: str
    parameters: int
    tokens: int
    loss: float


@dataclass(frozen=True)
class Law:
    """The fitted constants, and the runs they come from. error: mean distance of a run from a law without it, nats."""

    e: float
    a: float
    alpha: float
    b: float
    beta: float
    points: tuple[Point, ...]
    error: float = 0.0

    def loss(self, parameters: float, tokens: float) -> float:
        """Returns the loss to expect."""
        return float(self.e + self.a / parameters**self.alpha + self.b / tokens**self.beta)

    def beyond(self, parameters: float, tokens: float) -> float:
        """Returns how many times larger the model or its data are than the largest that was measured; 1 inside."""
        return max(
            1.0,
            parameters / max(point.parameters for point in self.points),
            tokens / max(point.tokens for point in self.points),
        )


@cache
def law() -> Law:
    """Returns the law of Bertie's own runs."""
    rows = read_yaml(Path(__file__).with_name("law.yaml"))["runs"]
    return fit([Point(**row) for row in rows])


def fit(points: Sequence[Point]) -> Law:
    """Fits the law, and its error by leaving out each run in turn."""
    found = _fit(points)
    apart = [
        abs(_fit([*points[:i], *points[i + 1 :]]).loss(one.parameters, one.tokens) - one.loss)
        for i, one in enumerate(points)
    ]
    return Law(found.e, found.a, found.alpha, found.b, found.beta, tuple(points), sum(apart) / len(apart))


def _fit(points: Sequence[Point]) -> Law:
    n, d, loss = (
        np.array([getattr(point, name) for point in points], float) for name in ("parameters", "tokens", "loss")
    )
    best, law = float("inf"), None
    for alpha, beta in itertools.product(EXPONENTS, EXPONENTS):
        columns = np.stack([np.ones_like(n), n**-alpha, d**-beta], axis=1)
        size = np.abs(columns).max(0)
        solution, *_ = np.linalg.lstsq(columns / size, loss, rcond=None)
        error = float(((columns / size @ solution - loss) ** 2).sum())
        e, a, b = solution / size
        if min(e, a, b) >= 0 and error < best:
            best, law = error, Law(e, a, float(alpha), b, float(beta), tuple(points))
    if law is None:
        raise ValueError("no law with a loss that falls fits these points")
    return law
