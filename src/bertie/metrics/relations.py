"""Metrics of relation classification: F1 of existing relations, and the area under the precision-recall curve.

micro_f1 ignores the label for no relation (confusion.py). auprc is the mean over all labels, as in KLUE-RE (Park et al.
2021, 3.5; KLUE-baseline, klue_re_auprc), by the trapezoidal rule between points with different scores.

N examples · L labels · R resamples
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bertie.files import JsonObject
from bertie.metrics.base import RESAMPLES, Float, percent_points, ratio
from bertie.metrics.confusion import Confusion

_BLOCK_WEIGHTS = 1_000_000  # weights of a label's resampled examples held at once


@dataclass
class RelationScores(Confusion):
    """Counts of true and predicted labels, and the probability of every label: 4 L bytes per example."""

    truth: list[int] = field(default_factory=list)
    probabilities: list[NDArray[np.float32]] = field(default_factory=list)

    def add_probabilities(self, truth: Iterable[str], probabilities: Iterable[Mapping[str, float]]) -> None:
        """Counts the probabilities of more examples. A missing label has the probability 0."""
        number = {label: i for i, label in enumerate(self.labels)}
        self.truth += (number.get(label, -1) for label in truth)
        self.probabilities += (
            np.array([scores.get(label, 0.0) for label in self.labels], np.float32) for scores in probabilities
        )

    def compute(self) -> dict[str, float]:
        """Returns the metrics of `Confusion`, and auprc."""
        return {**super().compute(), "auprc": float(self._areas(np.ones((1, len(self.truth))))[0])}

    def report(self, *, resamples: int = RESAMPLES, seed: int = 0) -> JsonObject:
        """Returns the report of `Confusion`, and auprc with its interval."""
        report, total = super().report(resamples=resamples, seed=seed), len(self.truth)
        if total:
            rng, areas = np.random.default_rng(seed), []
            at_once = max(1, _BLOCK_WEIGHTS // total)
            for start in range(0, resamples, at_once):
                rows = min(at_once, resamples - start)
                areas.append(self._areas(rng.multinomial(total, np.full(total, 1 / total), size=rows)))
            report["interval_95"]["auprc"] = list(percent_points(np.concatenate(areas)))
        return report

    def _areas(self, times_RN: Float | NDArray[np.int64]) -> Float:
        if not self.truth:
            return np.zeros(len(times_RN))
        return mean_area(np.stack(self.probabilities), np.array(self.truth), np.asarray(times_RN, np.float64))


def mean_area(scores_NL: NDArray[np.float32], truth_N: NDArray[np.int64], times_RN: Float) -> Float:
    """Returns the mean over labels of the area under the precision-recall curve. times_RN: multiplicities. -> (R,)

    A label that is never true has no curve and is ignored (scikit-learn's functions give it one half).
    """
    areas, curves = np.zeros(len(times_RN)), np.zeros(len(times_RN))
    for label, scores_N in ((label, scores_NL[:, label]) for label in np.unique(truth_N) if label >= 0):
        order = np.argsort(-scores_N, kind="stable")
        last_of_equals = np.append(scores_N[order][:-1] != scores_N[order][1:], True)
        times, is_true = times_RN[:, order], truth_N[order] == label
        hits = np.cumsum(times * is_true, -1)[:, last_of_equals]
        answers = np.cumsum(times, -1)[:, last_of_equals]
        precision = np.where(answers > 0, ratio(hits, answers), 1.0)
        recall = ratio(hits, hits[:, -1:])
        precision_before = np.column_stack([np.ones(len(times)), precision[:, :-1]])
        areas += (np.diff(recall, axis=1, prepend=0.0) * (precision + precision_before) / 2).sum(-1)
        curves += hits[:, -1] > 0
    return ratio(areas, curves)
