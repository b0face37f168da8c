"""Mask rates that change during a run, as a function of the number of sequences read before.

Sequences, not steps, so that a rate does not depend on the batch size, also in phases: with a batch size of 256, step
10,000 begins with sequence 2,560,000.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertie.errors import UnknownName, UsageError, WrongValue, nearest

_FORMS = ("linear", "steps")
Rates = float | Mapping[str, Mapping[int | str, float]]
"""A rate in a config: 0.15, {"linear": {0: 0.3, 2560000: 0.15}}, {"steps": {0: 0.3, 2560000: 0.15}}."""


@dataclass(frozen=True)
class RateCurve:
    """Rates at some numbers of sequences; between them linear, or as the previous one. Constant outside."""

    points: tuple[tuple[int, float], ...]
    form: str = "steps"

    def at(self, sequences: ArrayLike) -> NDArray[np.float64]:
        """Returns the rate of sequence number n of a run. (B,) -> (B,)"""
        where, rates = (np.array(column, np.float64) for column in zip(*self.points, strict=True))
        sequences = np.asarray(sequences, np.float64)
        if self.form == "linear":
            on_line: NDArray[np.float64] = np.interp(sequences, where, rates)
            return on_line
        reached: NDArray[np.float64] = rates[np.maximum(np.searchsorted(where, sequences, side="right") - 1, 0)]
        return reached


def rate_of(value: Rates, name: str) -> RateCurve:
    """Returns a rate from a config. Raises UsageError, with `name`, for a rate out of range, an unknown form or
    decreasing numbers."""
    if not isinstance(value, Mapping):
        form, points = "steps", {0: value}
    elif len(value) == 1 and isinstance(next(iter(value.values())), Mapping):
        form, points = next(iter(value.items()))  # type: ignore[assignment]
    else:
        raise WrongValue(
            f"{name} is {value!r}; it must be a number between 0 and 1, or one of "
            "{linear: {0: 0.3, 2560000: 0.15}}, steps."
        )
    if form not in _FORMS:
        raise UnknownName(f"Unknown kind {form!r} of {name}. {nearest(str(form), _FORMS)}")
    try:
        rate = RateCurve(tuple((int(at), float(share)) for at, share in points.items()), form)
    except (TypeError, ValueError):
        raise UsageError(f"{name} is {value!r}; it must map numbers of sequences to rates.") from None
    starts = [at for at, _ in rate.points]
    if not starts or min(starts) < 0 or sorted(set(starts)) != starts:
        raise UsageError(f"{name} has the numbers of sequences {starts}; they must be increasing and 0 or more.")
    for _, share in rate.points:
        if not 0 < share < 1:
            raise WrongValue(f"{name} is {share}; it must be between 0 and 1.")
    return rate
