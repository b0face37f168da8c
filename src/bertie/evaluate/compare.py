"""Are two numbers different? Seeds summed up with an interval, two models compared on the same examples."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


@dataclass(frozen=True)
class Seeds:
    """Runs that differ in their seed alone. low, high: Student's 95 % interval of the mean; None for one run."""

    runs: int
    mean: float
    sd: float | None
    low: float | None
    high: float | None

    def __str__(self) -> str:
        if self.runs == 1:
            return f"{self.mean:.3f} (one run)"
        return f"{self.mean:.3f} ± {self.sd:.3f} sd, 95 % interval {self.low:.3f} to {self.high:.3f}, {self.runs} runs"

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)


def over_seeds(values: Sequence[float]) -> Seeds:
    """Sum up one metric over seeds. Raises ValueError for no values."""
    if not values:
        raise ValueError("no runs to sum up")
    mean = float(np.mean(values))
    if len(values) == 1:
        return Seeds(1, mean, None, None, None)
    sd = float(np.std(values, ddof=1))
    half = float(stats.t.ppf(0.975, len(values) - 1)) * sd / len(values) ** 0.5
    return Seeds(len(values), mean, sd, mean - half, mean + half)


@dataclass(frozen=True)
class Paired:
    """Accuracy of A minus that of B on the same examples. p: how often chance alone shows as large a difference."""

    difference: float
    low: float
    high: float
    p: float


def paired_bootstrap(right_a: ArrayLike, right_b: ArrayLike, *, resamples: int = 10_000, seed: int = 0) -> Paired:
    """Compare two models example by example. right_a, right_b (E,): 1 where each was right.

    Each example says +1, 0 or -1 (A alone right, no difference, B alone right), so that resampling examples is one
    multinomial draw over three counts. p is two-sided, by the shift method (Berg-Kirkpatrick et al. 2012, section 2).
    Raises ValueError when the two lists differ in length or are empty.
    """
    a, b = np.asarray(right_a, bool), np.asarray(right_b, bool)
    if a.shape != b.shape or not len(a):
        raise ValueError(f"paired lists of one length are wanted; these have {len(a)} and {len(b)} examples")
    counts = np.array([(a & ~b).sum(), (a == b).sum(), (~a & b).sum()])
    difference = float(counts[0] - counts[2]) / len(a)
    draws = np.random.default_rng(seed).multinomial(len(a), counts / len(a), size=resamples)
    differences = (draws[:, 0] - draws[:, 2]) / len(a)
    low, high = np.percentile(differences, [2.5, 97.5])
    beyond = int((np.abs(differences - difference) >= abs(difference) - 1e-12).sum())
    return Paired(difference, float(low), float(high), min(1.0, (beyond + 1) / (resamples + 1)))
