"""Metrics of retrieval, from the grades of the documents in the order of a ranking: MRR, nDCG and recall.

nDCG has the grade itself as gain, as trec_eval, and not 2^grade - 1. N questions
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

CUTS = (1, 10, 100)  # of recall
RETRIEVAL_METRICS = ("mrr@10", "ndcg@10", *(f"recall@{cut}" for cut in CUTS))


def of_ranking(grades: Sequence[float], judged: Sequence[float]) -> tuple[float, ...]:
    """Returns the metrics of one question, in the order of NAMES.

    grades: the grade of each document of the ranking, 0 for one not relevant. judged: the grades of all relevant
    documents. A grade from 1 on is relevant.
    """
    relevant = [grade > 0 for grade in grades]
    first = next((rank for rank, right in enumerate(relevant[:10], 1) if right), 0)
    best = _gain(sorted(judged, reverse=True)[:10])
    total = sum(grade > 0 for grade in judged)
    recalls = [sum(relevant[:cut]) / total if total else 0.0 for cut in CUTS]
    return (1 / first if first else 0.0, _gain(grades[:10]) / best if best else 0.0, *recalls)


def _gain(grades: Sequence[float]) -> float:
    return sum(max(0.0, grade) / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))


def average_metrics(
    sums: NDArray[np.float64], names: Sequence[str] = RETRIEVAL_METRICS
) -> dict[str, NDArray[np.float64]]:
    """sums (..., K + 1) of the metrics of questions, and their number -> each metric (...)"""
    return {name: sums[..., i] / np.maximum(sums[..., -1], 1) for i, name in enumerate(names)}
