"""Significance: a summary of seeds with an interval, and the comparison of two models on the same examples."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from bertie.files import JsonObject
from bertie.metrics.base import Counts, Float, ScoreCounter, Sums, Units, metric_range
from bertie.metrics.confusion import Confusion, ListedConfusion
from bertie.metrics.resample import Bootstrap

SCORE_SETTINGS = ("script", "strict", "frequent", "outside", "threshold", "positive")  # of a task, and the labels
MOST, LEAST, COUNTED = 2000, 200, 4_000_000  # resamples: as many as count this many examples, within bounds

_E = TypeVar("_E", contravariant=True)
_P = TypeVar("_P", contravariant=True)


class Scoring(Protocol[_E, _P]):
    """Protocol of what scores predictions (_P) of examples (_E): a task. Its settings are fields of a dataclass."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels."""
        ...

    def scores(self) -> ScoreCounter:
        """Returns a counter without examples."""
        ...

    def count(self, scores: ScoreCounter, examples: Sequence[_E], answers: Sequence[_P]) -> None:
        """Adds examples and their predictions to the counter."""
        ...

    def group(self, example: _E) -> Hashable | None:
        """Returns the group that an example is resampled with, if any."""
        ...


@dataclass(frozen=True)
class SeedSummary:
    """Summary of runs that differ only in the random seed.

    `low`, `high`: 95% confidence interval of the mean (t distribution); None for a single run.
    """

    runs: int
    mean: float
    sd: float | None
    low: float | None
    high: float | None

    def __str__(self) -> str:
        if self.runs == 1:
            return f"{self.mean:z.3f} (one run)"
        return (
            f"{self.mean:z.3f} ± {self.sd:z.3f} sd, 95% interval {self.low:z.3f} to {self.high:z.3f}, {self.runs} runs"
        )

    @classmethod
    def over(cls, values: Sequence[float], metric: str = "") -> Self:
        """Summarizes one metric over seeds. Raises ValueError for no values.

        metric: its name, so that the interval stays in the range of the metric. "": a difference, which has no range.
        """
        if not values:
            raise ValueError("no runs to summarize")
        mean = float(np.mean(values))
        if len(values) == 1:
            return cls(1, mean, None, None, None)
        sd = float(np.std(values, ddof=1))
        from scipy import stats

        half = float(stats.t.ppf(0.975, len(values) - 1)) * sd / len(values) ** 0.5
        lowest, highest = metric_range(metric)
        return cls(len(values), mean, sd, max(lowest, mean - half), min(highest, mean + half))

    def as_json(self) -> JsonObject:
        """Returns the fields as JSON values."""
        return asdict(self)


SMALLEST_P = 0.001  # a smaller p-value is printed as below it


@dataclass(frozen=True)
class PairedDifference:
    """A metric of model A minus that of model B on the same examples. p: two-sided paired-bootstrap p-value."""

    difference: float
    low: float
    high: float
    p: float

    def __str__(self) -> str:
        p = f"p = {self.p:z.3f}" if self.p >= SMALLEST_P else f"p < {SMALLEST_P}"
        return f"{self.difference:+z.3f}, 95% interval {self.low:+z.3f} to {self.high:+z.3f}, {p}"

    @classmethod
    def of_metrics(
        cls,
        figures_a: Callable[[NDArray[np.int64]], Mapping[str, float]],
        figures_b: Callable[[NDArray[np.int64]], Mapping[str, float]],
        examples: int,
        *,
        seed: int = 0,
        counted: int | None = None,
    ) -> dict[str, Self]:
        """Compares two models on resampled examples, metric by metric (paired bootstrap).

        figures_a, figures_b: example numbers, possibly repeated -> each metric. With groups, a number is that of a
        group, and counted is the number of examples. p is two-sided, by the shift method (Berg-Kirkpatrick et al.
        2012, section 2). Raises ValueError for no examples.
        """
        if not examples:
            raise ValueError("no examples to compare on")
        rng, drawn = np.random.default_rng(seed), dict[str, list[float]]()

        def differences(rows: NDArray[np.int64]) -> dict[str, float]:
            a, b = figures_a(rows), figures_b(rows)
            return {name: a[name] - b[name] for name in a if name in b}

        whole = differences(np.arange(examples))
        for _ in range(min(MOST, max(LEAST, COUNTED // (counted or examples)))):
            for name, value in differences(rng.integers(examples, size=examples)).items():
                drawn.setdefault(name, []).append(value)
        return {name: cls._of(whole[name], np.array(values)) for name, values in drawn.items()}

    @classmethod
    def of_rows(
        cls,
        a: Scoring[_E, _P],
        b: Scoring[_E, _P],
        rows: Sequence[tuple[_E, _P, _P]],
        *,
        seed: int = 0,
        resamples: int = COUNTED,
    ) -> dict[str, Self]:
        """Compares two models from their predictions, both scored by the settings of the first.

        resamples: maximum number of counted examples if the metrics are no functions of sums (metrics.base.Sums).
        """
        examples = np.array([example for example, *_ in rows], object)
        answers = [np.array([row[column] for row in rows], object) for column in (1, 2)]

        def counted(
            task: Scoring[_E, _P], column: int, numbers: NDArray[np.int64], *, listed: bool = False
        ) -> ScoreCounter:
            scores = task.scores()
            if listed and type(scores) is Confusion:
                scores = ListedConfusion(scores.labels, scores.outside, scores.positive, costs=scores.costs)
            task.count(scores, examples[numbers].tolist(), answers[column][numbers].tolist())
            return scores

        every, b = np.arange(len(rows)), _scored_as(a, b)
        groups = [
            ("alone", i) if (group := a.group(row[0])) is None else ("group", group) for i, row in enumerate(rows)
        ]
        scores = [counted(task, column, every, listed=True) for column, task in enumerate((a, b))]
        sums = [one if isinstance(one, Sums) else getattr(one, "sums", None) for one in scores]
        if sums[0] is not None and sums[1] is not None:
            return cls._of_sums(sums[0], sums[1], groups, seed=seed)

        members: dict[Hashable, list[int]] = {}
        for number, group in enumerate(groups):
            members.setdefault(group, []).append(number)
        drawn = [np.array(numbers) for numbers in members.values()]

        def figures(task: Scoring[_E, _P], column: int) -> Callable[[NDArray[np.int64]], Mapping[str, float]]:
            return lambda numbers: counted(task, column, np.concatenate([drawn[i] for i in numbers.tolist()])).compute()

        return cls.of_metrics(
            figures(a, 0), figures(b, 1), len(members), seed=seed, counted=max(1, len(rows) * COUNTED // resamples)
        )

    @classmethod
    def _of_sums(cls, a: Units, b: Units, groups: Sequence[Hashable], *, seed: int) -> dict[str, Self]:
        """`of_metrics` of metrics that are functions of sums: examples are counted once, and the counts resampled."""
        from scipy import sparse

        (counts_a, figures_a), (counts_b, figures_b) = a.units(), b.units()
        both: Counts = sparse.csr_array(sparse.hstack([sparse.csr_array(counts_a), sparse.csr_array(counts_b)]))
        if both.shape[0] == len(groups):  # else the units are the groups: questions, of passages
            both = Bootstrap(both, groups).counts

        def differences(sums: Float) -> dict[str, Float]:
            of_a, of_b = figures_a(sums[..., : counts_a.shape[1]]), figures_b(sums[..., counts_a.shape[1] :])
            return {name: of_a[name] - of_b[name] for name in of_a if name in of_b}

        whole = differences(np.asarray(both.sum(0), np.float64))
        drawn = [differences(sums) for sums in Bootstrap(both).draws(resamples=MOST, seed=seed)]
        return {name: cls._of(float(whole[name]), np.concatenate([each[name] for each in drawn])) for name in whole}

    @classmethod
    def _of(cls, difference: float, differences: NDArray[np.float64]) -> Self:
        low, high = np.percentile(differences, [2.5, 97.5])
        beyond = int((np.abs(differences - difference) >= abs(difference) - 1e-12).sum())
        return cls(difference, float(low), float(high), min(1.0, (beyond + 1) / (len(differences) + 1)))

    def as_json(self) -> JsonObject:
        """Returns the fields as JSON values."""
        return asdict(self)


def _scored_as(a: Scoring[_E, _P], b: Scoring[_E, _P]) -> Scoring[_E, _P]:
    """Returns b with the settings of a that its scores depend on. The order of labels says which one is positive."""
    settings = {name: getattr(a, name) for name in SCORE_SETTINGS if hasattr(a, name)}
    settings |= {"labels": a.labels} if {*a.labels} == {*b.labels} else {}
    other = {name: value for name, value in settings.items() if getattr(b, name) != value}
    return replace(b, **other) if other else b  # type: ignore[type-var]
