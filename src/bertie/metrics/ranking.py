"""Metrics of multiple choice, and of passages ranked for a question.

N questions
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

import numpy as np

from bertie.files import JsonObject
from bertie.metrics.base import Float, MetricsOf, Units, ratio
from bertie.metrics.resample import Bootstrap

CUT = 10  # of mrr@10, which MS MARCO reports


@dataclass
class Accuracy:
    """The fraction of correct answers, where the possible answers differ between questions."""

    right: list[bool] = field(default_factory=list)
    answers: set[str] = field(default_factory=set)
    truths: set[str] = field(default_factory=set)

    def add(self, truth: Iterable[str], predicted: Iterable[str]) -> None:
        """Counts more questions."""
        for true, answer in zip(truth, predicted, strict=True):
            self.right.append(true == answer)
            self.answers.add(answer)
            self.truths.add(true)

    @property
    def total(self) -> int:
        """The number of questions."""
        return len(self.right)

    def compute(self) -> dict[str, float]:
        """Returns the accuracy without its interval."""
        return {"accuracy": sum(self.right) / max(1, self.total)}

    def report(self) -> JsonObject:
        """Returns the accuracy with its 95% interval, as JSON values."""
        same = len(self.answers) == 1 < len(self.truths)
        counts, of_sums = self.units()
        return {
            "examples": self.total,
            **self.compute(),
            "interval_95": Bootstrap(counts).intervals(of_sums),
            "all_given": next(iter(self.answers)) if same else None,
        }

    def units(self) -> tuple[Float, MetricsOf]:
        """Returns whether each question is correct, and 1. (N, 2)"""
        counts_N2 = np.array([[right, 1.0] for right in self.right], np.float64).reshape(-1, 2)
        return counts_N2, lambda sums: {"accuracy": ratio(sums[..., 0], sums[..., 1])}


@dataclass
class Ranking(Units):
    """Passages by question, with scores and whether they are relevant. Questions without a relevant passage are
    ignored."""

    questions: dict[Hashable, list[tuple[float, bool]]] = field(default_factory=dict)

    def add(self, truth: Iterable[tuple[Hashable, bool]], predicted: Iterable[float]) -> None:
        """Counts more passages: (question, relevant) and the score."""
        for (question, right), score in zip(truth, predicted, strict=True):
            self.questions.setdefault(question, []).append((score, right))

    @property
    def total(self) -> int:
        """The number of passages."""
        return sum(map(len, self.questions.values()))

    def report(self) -> JsonObject:
        """Returns every metric with its 95% interval over questions, as JSON values."""
        rows_N4, _ = self.units()
        answered = rows_N4[rows_N4[:, -1] > 0]
        return {
            "examples": self.total,
            "questions": len(answered),
            "questions_without_answer": len(self.questions) - len(answered),
            **self.compute(),
            "interval_95": Bootstrap(answered).intervals(average_rankings),
            "undefined": {} if len(answered) else dict.fromkeys(self.compute(), "no question has an answer"),
        }

    def units(self) -> tuple[Float, MetricsOf]:
        """Returns `of_question` of each question. (N, 4)"""
        return np.array([of_question(question) for question in self.questions.values()], np.float64).reshape(
            -1, 4
        ), average_rankings


def of_question(passages: Iterable[tuple[float, bool]]) -> tuple[float, float, float, float]:
    """Returns reciprocal rank, the same in the top ten, average precision, and 1; zeros if no passage is relevant.

    For ties, irrelevant passages go first.
    """
    ordered = sorted(passages, key=lambda passage: (-passage[0], passage[1]))
    ranks = [rank for rank, (_, right) in enumerate(ordered, 1) if right]
    if not ranks:
        return 0.0, 0.0, 0.0, 0.0
    precision = sum(hits / rank for hits, rank in enumerate(ranks, 1)) / len(ranks)
    return 1 / ranks[0], (1 / ranks[0] if ranks[0] <= CUT else 0.0), precision, 1.0


def average_rankings(sums: Float) -> dict[str, Float]:
    """sums (..., 4) of `of_question` -> mrr, mrr@10, map: (...) each"""
    return {name: ratio(sums[..., i], sums[..., 3]) for i, name in enumerate(("mrr", "mrr@10", "map"))}
