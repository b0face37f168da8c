"""Retrieval among the passages of an evaluation: how far above stand those that belong to a query?

Q queries · P passages · H numbers of a vector
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bertie.files import JsonObject
from bertie.metrics.base import Float, MetricsOf, Units, ratio
from bertie.metrics.resample import Bootstrap

COUNTED_PLACES = 10
RETRIEVAL_METRICS = (f"ndcg@{COUNTED_PLACES}", f"mrr@{COUNTED_PLACES}", f"recall@{COUNTED_PLACES}", "map")
QUERIES_AT_ONCE = 512  # queries whose similarities to all passages are held at once

TextVectors = NDArray[np.float32]
Compare = Callable[[TextVectors, TextVectors], TextVectors]
"""The similarity of each of some vectors to each of others: (Q, H), (P, H) -> (Q, P)."""


@dataclass
class Retrieval(Units):
    """Counter of queries and passages, by their vectors. A passage that several rows have is one.

    compare: the similarity of vectors.
    """

    compare: Compare
    queries: dict[Hashable, int] = field(default_factory=dict)
    passages: dict[Hashable, int] = field(default_factory=dict)
    query_vectors: list[TextVectors] = field(default_factory=list)
    passage_vectors: list[TextVectors] = field(default_factory=list)
    relevant: list[set[int]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    rows: int = 0

    def add(self, query: str, others: Sequence[tuple[str, bool]], vectors: TextVectors) -> None:
        """Adds a query and passages, each with whether it is relevant. vectors: of the query and of each passage."""
        self.rows += 1
        number = self.queries.setdefault(query, len(self.queries))
        if number == len(self.relevant):
            self.relevant.append(set())
            self.query_vectors.append(vectors[0])
        for (text, right), vector in zip(others, vectors[1:], strict=True):
            place = self.passages.setdefault(text, len(self.passages))
            if place == len(self.passage_vectors):
                self.passage_vectors.append(vector)
            if right:
                self.relevant[number].add(place)

    def add_labeled(self, text: str, label: str, vector: TextVectors) -> None:
        """Adds a text that is a query for the others of its label, and a passage for them."""
        self.rows += 1
        if text not in self.passages:
            self.passages[text] = len(self.passages)
            self.labels.append(label)
            self.passage_vectors.append(vector)

    @property
    def total(self) -> int:
        """The number of rows."""
        return self.rows

    def report(self) -> JsonObject:
        """Returns every metric with its 95% interval over queries, as JSON values."""
        counts_Q5, _ = self.units()
        answered = counts_Q5[counts_Q5[:, -1] > 0]
        return {
            "examples": self.rows,
            "questions": len(answered),
            "passages": len(self.passages),
            **{name: float(value) for name, value in retrieval_means(counts_Q5.sum(0)).items()},
            "interval_95": Bootstrap(answered).intervals(retrieval_means),
            "undefined": {} if len(answered) else dict.fromkeys(RETRIEVAL_METRICS, "no query has a relevant passage"),
        }

    def units(self) -> tuple[Float, MetricsOf]:
        """Returns `of_query` of each query. (Q, 5)"""
        counts: list[tuple[float, ...]] = []
        passages_PH = np.array(self.passage_vectors, np.float32)
        queries, labels_P = self.query_vectors or self.passage_vectors, np.array(self.labels)
        for start in range(0, len(queries), QUERIES_AT_ONCE):
            similarities_QP = self.compare(np.array(queries[start : start + QUERIES_AT_ONCE], np.float32), passages_PH)
            for number, row_P in enumerate(similarities_QP, start):
                if self.labels:
                    right_P, others_P = labels_P == labels_P[number], np.arange(len(labels_P)) != number
                    counts.append(of_query(row_P[others_P], right_P[others_P]))
                else:
                    right_P = np.zeros(len(row_P), np.bool_)
                    right_P[[*self.relevant[number]]] = True
                    counts.append(of_query(row_P, right_P))
        return np.array(counts, np.float64).reshape(-1, len(RETRIEVAL_METRICS) + 1), retrieval_means


def of_query(similarities_P: TextVectors, right_P: NDArray[np.bool_]) -> tuple[float, ...]:
    """Returns nDCG, reciprocal rank and recall in the top ten, average precision, and 1; zeros without a relevant
    passage.

    Of equally similar passages, irrelevant ones go first.
    """
    if not right_P.any():
        return (0.0,) * (len(RETRIEVAL_METRICS) + 1)
    wrong, own = np.sort(similarities_P[~right_P]), np.sort(similarities_P[right_P])[::-1]
    above = len(wrong) - np.searchsorted(wrong, own, side="left")  # wrong ones at least as similar as each
    ranks = above + np.arange(1, len(own) + 1)
    top = ranks[ranks <= COUNTED_PLACES]
    ideal = (1 / np.log2(np.arange(2, min(len(own), COUNTED_PLACES) + 2))).sum()
    return (
        float((1 / np.log2(top + 1)).sum() / ideal),
        float(1 / ranks[0]) if ranks[0] <= COUNTED_PLACES else 0.0,
        len(top) / len(own),
        float((np.arange(1, len(own) + 1) / ranks).mean()),
        1.0,
    )


def retrieval_means(sums: Float) -> dict[str, Float]:
    """sums (..., 5) of `of_query` -> each metric (...)"""
    return {name: ratio(sums[..., i], sums[..., len(RETRIEVAL_METRICS)]) for i, name in enumerate(RETRIEVAL_METRICS)}
