"""The loss to expect from a model and a number of tokens: a law fitted to measured runs (law.yaml). It is rough.

    loss = E + A / N^0.34 + B / D^0.28

N parameters of the layers · D tokens that training reads · loss in nats per masked token of held-out text

Form and exponents: Hoffmann et al. 2022, equation 10. E, A and B are fitted by least squares. Small models stay on a
plateau at first, where they predict word frequencies. Runs that ended there are listed, and do not count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from bertie.platform import SourceFile

ALPHA, BETA = 0.34, 0.28
PLATEAU = 6.4  # nats: a run with a higher loss has hardly left it
FARTHEST = 10.0  # times the largest run: beyond, the law tells nothing


@dataclass(frozen=True)
class Point:
    """A measured run: parameters of its layers, tokens that it read, and its loss on held-out text at the end."""

    run: str
    parameters: int
    tokens: int
    loss: float

    @property
    def counts(self) -> bool:
        """Whether the run left the plateau."""
        return self.loss < PLATEAU


@dataclass(frozen=True)
class Law:
    """The fitted constants, and the runs that they come from. error: mean distance of a run from the law, in nats."""

    e: float
    a: float
    b: float
    points: tuple[Point, ...]

    @property
    def fitted(self) -> list[Point]:
        """The runs that count."""
        return [point for point in self.points if point.counts]

    @property
    def error(self) -> float:
        """Mean distance of the runs that count from the law, in nats."""
        return sum(abs(self.loss(one.parameters, one.tokens) - one.loss) for one in self.fitted) / len(self.fitted)

    def loss(self, parameters: float, tokens: float) -> float:
        """Returns the loss of the law."""
        return float(self.e + self.a / parameters**ALPHA + self.b / tokens**BETA)

    def beyond(self, parameters: float, tokens: float) -> float:
        """Returns how many times larger the model or its data are than the largest that counts; 1 inside."""
        return max(
            1.0,
            parameters / max(point.parameters for point in self.fitted),
            tokens / max(point.tokens for point in self.fitted),
        )

    def expected(self, parameters: float, tokens: float) -> float | None:
        """Returns the loss to expect. None: with fewer tokens than any run that counts, or FARTHEST times beyond the
        largest one."""
        inside = tokens >= min(point.tokens for point in self.fitted)
        return (
            round(self.loss(parameters, tokens), 2) if inside and self.beyond(parameters, tokens) <= FARTHEST else None
        )


@cache
def law() -> Law:
    """Returns the law of Bertie's own runs."""
    rows = SourceFile(Path(__file__).with_name("law.yaml")).yaml()["runs"]
    return fit_law([Point(**row) for row in rows])


def fit_law(points: Sequence[Point]) -> Law:
    """Fits the constants to the runs that count."""
    n, d, loss = (
        np.array([getattr(point, name) for point in points if point.counts], float)
        for name in ("parameters", "tokens", "loss")
    )
    columns = np.stack([np.ones_like(n), n**-ALPHA, d**-BETA], axis=1)
    size = columns.max(0)
    (e, a, b), *_ = np.linalg.lstsq(columns / size, loss, rcond=None)
    return Law(float(e / size[0]), float(a / size[1]), float(b / size[2]), tuple(points))
