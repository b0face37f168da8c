"""The threshold of a probability, chosen for a goal: F1, F2, recall at a precision, precision at a recall.

    a text has the label where its probability is at least the threshold

N examples · C thresholds, one below each different probability
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from bertie.errors import UnknownLabel, UsageError, WrongValue, nearest
from bertie.files import JsonObject
from bertie.metrics.base import Float, ratio

COST = "cost"

Costs = Mapping[str, Mapping[str, float]]
"""The cost of a predicted label, by the true one."""
GOALS = "f1, f2, f0.5, recall@precision=0.9, precision@recall=0.95, cost"
F_BETA = re.compile(r"f(\d+(?:\.\d+)?)")
AT_LEAST = re.compile(r"(recall@precision|precision@recall)=(\d*\.?\d+)")
APART = 2e-6  # below the lowest probability: twice what predictions are rounded to
_CURVE_POINTS = 60  # points of a curve in a report


@dataclass(frozen=True)
class Goal:
    """What a threshold is chosen for. beta: of the F measure; least: of the figure that must be kept, otherwise."""

    name: str
    beta: float | None = None
    least: float = 0.0

    @classmethod
    def of(cls, name: str) -> Self:
        """Returns the goal of this name. Raises UsageError for another name than those of GOALS, and other numbers."""
        if name == COST:
            return cls(name)
        if match := F_BETA.fullmatch(name):
            if (beta := float(match[1])) > 0:
                return cls(name, beta)
        elif (match := AT_LEAST.fullmatch(name)) and 0 < float(match[2]) <= 1:
            return cls(name, None, float(match[2]))
        own = "a share of your own above 0, at most 1" if AT_LEAST.fullmatch(name) else "numbers of your own above 0"
        raise UsageError(f"optimize is {name!r}. Choose one of {GOALS}, with {own}.")

    def best(self, precision_C: Float, recall_C: Float) -> tuple[int, bool]:
        """Returns the number of the best threshold, and whether it keeps what it must; (C,) each, highest first."""
        if self.beta is not None:
            squared = self.beta**2
            f_C = ratio((1 + squared) * precision_C * recall_C, squared * precision_C + recall_C)
            return int(f_C.argmax()), True
        kept_C, wanted_C = precision_C, recall_C
        if self.name.startswith("precision"):
            kept_C, wanted_C = wanted_C, kept_C
        reached = bool((kept_C >= self.least).any())
        rank_C = np.where(kept_C >= self.least, wanted_C, -1.0) if reached else kept_C
        ties = np.flatnonzero(rank_C == rank_C.max())
        return int(ties[(kept_C if reached else wanted_C)[ties].argmax()]), reached


@dataclass(frozen=True)
class ChosenThreshold:
    """A threshold with its precision and recall on the examples it was chosen on. reached: whether the goal was; cost:
    the mean one, where costs chose it."""

    threshold: float
    precision: float
    recall: float
    reached: bool
    examples: int
    positives: int
    curve: tuple[tuple[float, float, float], ...] = ()
    cost: float | None = None

    def as_json(self) -> JsonObject:
        """Returns the fields; curve: threshold, precision and recall of some points."""
        return {**vars(self), "curve": [list(point) for point in self.curve]}


def choose_threshold(
    scores: ArrayLike, truth: ArrayLike, goal: str = "f1", costs: ArrayLike | None = None
) -> ChosenThreshold:
    """Returns the best threshold for a goal. scores (N,), truth (N,) bool. 0.5 where nothing is true.

    costs: for the goal "cost", of each example with and without the label (N, 2).
    """
    scores_N, truth_N = np.asarray(scores, np.float64), np.asarray(truth, bool)
    if not truth_N.any():
        return ChosenThreshold(0.5, 0.0, 0.0, False, len(scores_N), 0)
    order = np.argsort(-scores_N, kind="stable")
    scores_N, right_N = scores_N[order], np.cumsum(truth_N[order])
    last_C = np.flatnonzero(np.append(scores_N[:-1] != scores_N[1:], True))  # equal scores go together
    precision_C, recall_C = right_N[last_C] / (last_C + 1), right_N[last_C] / truth_N.sum()
    below_C = np.append(scores_N[last_C[:-1] + 1], scores_N[-1] - APART)
    threshold_C = np.maximum((scores_N[last_C] + below_C) / 2, 0.0)
    mean_cost = None
    if costs is None:
        best, reached = Goal.of(goal).best(precision_C, recall_C)
    else:
        with_N, without_N = np.asarray(costs, np.float64)[order].T
        # The highest threshold predicts nothing: it is above the highest score, where there is room.
        threshold_C = np.append(threshold_C, min(1.0, (scores_N[0] + 1) / 2))
        precision_C, recall_C = np.append(precision_C, 0.0), np.append(recall_C, 0.0)
        predicted_C = np.append(last_C + 1, 0)
        sums = (np.concatenate([[0], np.cumsum(one)]) for one in (with_N, without_N))
        with_C, without_C = (one[predicted_C] for one in sums)
        total_C = with_C + without_N.sum() - without_C
        total_C[-1] = np.inf if scores_N[0] >= 1 else total_C[-1]
        best, reached = int(total_C.argmin()), True
        mean_cost = float(total_C[best] / len(scores_N))
    drawn = np.unique(np.linspace(0, len(last_C) - 1, _CURVE_POINTS).round().astype(int))
    points = np.stack([threshold_C, precision_C, recall_C], 1)[drawn].round(6).tolist()
    figures = float(threshold_C[best]), float(precision_C[best]), float(recall_C[best])
    curve = tuple((t, p, r) for t, p, r in points)
    return ChosenThreshold(*figures, reached, len(scores_N), int(truth_N.sum()), curve, mean_cost)


def cost_of(costs: Costs, truth: str, predicted: str) -> float:
    """Returns the cost of a prediction: that of the matrix, otherwise 0 for the right label and 1 for another."""
    return costs.get(truth, {}).get(predicted, float(truth != predicted))


def check_costs(costs: Costs, labels: Sequence[str]) -> None:
    """Raises UsageError for costs of unknown labels, and for those that are negative, not finite or all 0."""
    for truth, row in costs.items():
        for label, cost in ((truth, 0.0), *row.items()):
            if label not in labels:
                raise UnknownLabel(f"costs has {label!r}, which is no label. {nearest(label, labels)}")
            if not 0 <= cost < float("inf"):
                raise WrongValue(
                    f"costs: that of {label!r} for {truth!r} is {cost:g}; a number of 0 or more was expected."
                )
    if not any(cost_of(costs, truth, label) for truth in labels for label in labels):
        raise UsageError("costs: all are 0, so that no threshold is better than another. Raise one of them.")


def check_threshold(threshold: float) -> None:
    """Raises UsageError for a threshold that is no probability."""
    if not 0 <= threshold <= 1:
        raise WrongValue(f"threshold is {threshold:g}; it must be between 0 and 1.")
