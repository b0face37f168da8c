"""Metrics of dependency parsing: attachment scores, and those of KLUE-DP.

uas is the fraction of words with the correct head, las that of words with the correct head and relation. KLUE-DP
reports the mean F1 over classes instead (Park et al. 2021, 3.6; KLUE-baseline, klue_dp_uas_macro_f1 and
klue_dp_las_macro_f1). For uas_macro_f1, a class is the number of the head. For las_macro_f1, a class is a relation;
rare relations are one class, and a wrong head is a class that is never correct.

K classes
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from bertie.files import JsonObject
from bertie.metrics.base import Float, MetricsOf, Units, ratio
from bertie.metrics.resample import Bootstrap, triples

if TYPE_CHECKING:
    from scipy import sparse

Arc = tuple[int | None, str | None]
"""The number of a word's head, from 1 (0: the root; None: no prediction), and the relation to it."""
WRONG_HEAD, RARE = "wrong head", "rare"
_WORDS = ("words", "")


@dataclass
class ParseScores(Units):
    """Counter of true and predicted arcs by sentence: uas, las, uas_macro_f1 and las_macro_f1.

    labels: of the model, frequent ones first; an unknown relation is an error. frequent: the number of labels that are
    separate classes in las_macro_f1; None: all.
    """

    labels: tuple[str, ...]
    frequent: int | None = None
    sentences: list[dict[tuple[str, str], list[int]]] = field(default_factory=list)
    """Per sentence: ("head", number), ("relation", name) or WORDS -> correct, predicted, true; of WORDS correct head,
    correct head and relation, words."""
    unknown: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._classes = set(self.labels[: self.frequent])

    @property
    def total(self) -> int:
        """The number of sentences."""
        return len(self.sentences)

    def add(self, truth: Iterable[Sequence[Arc]], predicted: Iterable[Sequence[Arc]]) -> None:
        """Counts more sentences. Raises ValueError when the numbers of words differ."""
        for true_arcs, given_arcs in zip(truth, predicted, strict=True):
            counts: dict[tuple[str, str], list[int]] = {_WORDS: [0, 0, 0]}
            for (head, relation), (given_head, predicted_relation) in zip(true_arcs, given_arcs, strict=True):
                right_head = head == given_head
                counts[_WORDS][0] += right_head
                counts[_WORDS][1] += right_head and relation == predicted_relation
                counts[_WORDS][2] += 1
                _count(counts, "head", str(head), str(given_head))
                _count(
                    counts,
                    "relation",
                    self._class(relation),
                    self._class(predicted_relation) if right_head else WRONG_HEAD,
                )
                if relation not in self.labels:
                    self.unknown[str(relation)] = self.unknown.get(str(relation), 0) + 1
            self.sentences.append(counts)

    def _class(self, relation: str | None) -> str:
        return relation if relation in self._classes else RARE

    def report(self) -> JsonObject:
        """Returns every metric with its interval over resampled sentences, and the metrics of each relation.

        A relation is correct together with the correct head only.
        """
        keys = self._keys()
        counts_NK, of_sums = self.units()
        sums_K3 = counts_NK.sum(0).reshape(-1, 3)
        relations = {name: sums_K3[i] for i, (kind, name) in enumerate(keys) if kind == "relation"}
        return {
            "examples": self.total,
            **self.compute(),
            "interval_95": Bootstrap(counts_NK).intervals(of_sums),
            "words": int(sums_K3[keys.index(_WORDS), 2]) if self.total else 0,
            "labels": [name for name in relations if name != WRONG_HEAD],
            "per_label": {
                name: {
                    "precision": float(ratio(right, predicted_count)),
                    "recall": float(ratio(right, true)),
                    "f1": float(ratio(2 * right, predicted_count + true)),
                    "examples": int(true),
                }
                for name, (right, predicted_count, true) in relations.items()
                if name != WRONG_HEAD
            },
            "unknown_labels": self.unknown,
        }

    def units(self) -> tuple["sparse.csr_array", MetricsOf]:
        """Returns per sentence and key: correct, predicted, true. (N, 3 K)"""
        keys = self._keys()
        return triples(self.sentences, keys), partial(_metrics_of, keys=keys)

    def _keys(self) -> list[tuple[str, str]]:
        return sorted({key for counts in self.sentences for key in counts})


def _count(counts: dict[tuple[str, str], list[int]], kind: str, true: str, predicted: str) -> None:
    counts.setdefault((kind, true), [0, 0, 0])[2] += 1
    counts.setdefault((kind, predicted), [0, 0, 0])[1] += 1
    counts[kind, true][0] += true == predicted


def _metrics_of(sums: Float, keys: Sequence[tuple[str, str]]) -> dict[str, Float]:
    """sums (..., 3 K) -> (...) each"""
    sums_K3 = sums.reshape(*sums.shape[:-1], len(keys), 3)
    kinds = np.array([kind for kind, _ in keys], str)
    words = sums_K3[..., kinds == _WORDS[0], :].sum(-2)

    def macro_f1(kind: str) -> Float:
        right, answers, true = np.moveaxis(sums_K3[..., kinds == kind, :], -1, 0)
        return ratio(ratio(2 * right, answers + true).sum(-1), (answers + true > 0).sum(-1))

    return {
        "las": ratio(words[..., 1], words[..., 2]),
        "uas": ratio(words[..., 0], words[..., 2]),
        "las_macro_f1": macro_f1("relation"),
        "uas_macro_f1": macro_f1("head"),
    }
