"""Classification metrics from counts of (true label, predicted label), for any number of examples.

All are functions of three counts per label (correct, true, predicted), and so is their bootstrap: resampling n examples
is one multinomial draw over the pairs that occur. scikit-learn computes the same metrics one sample at a time, and the
tests compare both. An example may have a weight, which its counts have too; a resample draws examples, not weights.

L labels · C pairs of labels that occur, of each weight · R resamples
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bertie.files import Json, JsonObject
from bertie.metrics.base import MEAN_COST, RESAMPLES, Float, MetricsOf, percent_points, ratio
from bertie.metrics.calibration import Calibration, Selective, SetCounts
from bertie.metrics.thresholds import cost_of

if TYPE_CHECKING:
    from scipy import sparse

Int = NDArray[np.int64]

MATRIX = 200  # labels beyond which the matrix is left out of the report
CONFUSED = 20  # pairs of labels in the report
RARE = 0.2  # share of the examples below which a label is rare, if it has less than half of an equal share, too
CELLS = 1_000_000  # numbers of an array of the bootstrap; a dozen are held at once


@dataclass(frozen=True)
class LabelCells:
    """Pairs of labels that occur: true and predicted label by number, the number of examples, and the weight of each.
    4 x (C,)"""

    truth: Int
    predicted: Int
    count: Int
    weight: Float


@dataclass
class Confusion:
    """Counts of (true label, predicted label). A true label that the model does not know is an error in all metrics.

    outside: the label for nothing to find (no_relation), which micro_f1 ignores; None: no micro_f1. positive: the label
    of f1; "": the second of two labels. weighted: the pairs of each weight. calibration, selective: of the
    probabilities, where they are known. sets: prediction sets. costs: of a predicted label, by the true one.
    """

    labels: tuple[str, ...]
    outside: str | None = None
    positive: str = ""
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    weighted: Counter[tuple[str, str, float]] = field(default_factory=Counter)
    calibration: Calibration = field(default_factory=Calibration)
    selective: Selective = field(default_factory=Selective)
    sets: SetCounts = field(default_factory=SetCounts)
    costs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def add(self, truth: Iterable[str], predicted: Iterable[str], weights: Sequence[float] | None = None) -> None:
        """Counts more examples. weights: of each; None: all are 1."""
        added = list(zip(truth, predicted, strict=True))
        self.pairs.update(added)
        self.weighted.update((*pair, weight) for pair, weight in zip(added, weights or [1.0] * len(added), strict=True))

    @property
    def total(self) -> int:
        """The number of examples."""
        return self.pairs.total()

    @property
    def of_f1(self) -> str | None:
        """The label of f1, which only a binary task, or a chosen label, has."""
        return self.positive or (self.labels[1] if len(self.labels) == 2 else None)

    @property
    def positives(self) -> dict[str, str]:
        """The label of each binary figure."""
        return {} if self.of_f1 is None else {"f1": self.of_f1}

    @property
    def unknown(self) -> dict[str, int]:
        """True labels that the model does not know, with their numbers of examples."""
        counts, known = Counter[str](), set(self.labels)
        for (truth, _), n in self.pairs.items():
            if truth not in known:
                counts[truth] += n
        return dict(counts)

    @property
    def all_labels(self) -> tuple[str, ...]:
        """The model's labels, then the unknown ones."""
        return (*self.labels, *sorted(self.unknown))

    def cells(self) -> "LabelCells":
        """Returns the pairs that occur."""
        index = {label: i for i, label in enumerate(self.all_labels)}
        rows = [(index[truth], index[predicted], n) for (truth, predicted, _), n in self.weighted.items()]
        truth, predicted, count = np.array(rows, np.int64).reshape(-1, 3).T
        return LabelCells(truth, predicted, count, np.array([weight for *_, weight in self.weighted], np.float64))

    def degenerate(self) -> str | None:
        """The only predicted label, where the true labels differ."""
        labels_given = {predicted for _, predicted in self.pairs}
        return (
            next(iter(labels_given)) if len(labels_given) == 1 and len({truth for truth, _ in self.pairs}) > 1 else None
        )

    def compute(self) -> dict[str, float]:
        """Returns every metric without its interval."""
        return {name: float(value) for name, value in self._metrics_of(*self._sums()).items()}

    def _metrics_of(self, right: Float, truth: Float, predicted: Float) -> dict[str, Float]:
        of_f1 = self.of_f1
        positive = None if of_f1 is None else self.labels.index(of_f1)
        metrics = compute_confusion_metrics(right, truth, predicted, positive=positive)
        if self.outside is not None:
            inner = np.array([label != self.outside for label in self.all_labels])
            parts = (sums[..., inner].sum(-1) for sums in (right, truth, predicted))
            metrics["micro_f1"] = micro_f1(*parts)
        return metrics

    def _sums(self) -> tuple[Float, Float, Float]:
        cells = self.cells()
        right_1L, true_1L, predicted_1L = sums(cells, cells.count[None], len(self.all_labels))
        return right_1L[0], true_1L[0], predicted_1L[0]

    def report(self, *, resamples: int = RESAMPLES, seed: int = 0) -> JsonObject:
        """Returns every metric with its 95% interval, metrics per label, and the matrix, as JSON values."""
        cells, labels = self.cells(), self.all_labels
        right_L, true_L, predicted_L = self._sums()
        examples = Counter(truth for truth, _ in self.pairs.elements())
        precision, recall, f1 = per_label(right_L, true_L, predicted_L)
        return {
            "examples": self.total,
            **self.compute(),
            **self.calibration.report(),
            **self.selective.report(),
            **self.sets.report(),
            **{name: float(value) for name, value in self.mean_cost(cells.count).items()},
            "interval_95": bootstrap(cells, len(labels), self._metrics_of, resamples=resamples, seed=seed),
            "per_label": {
                label: {
                    "precision": float(precision[i]),
                    "recall": float(recall[i]),
                    "f1": float(f1[i]),
                    "examples": examples[label],
                }
                for i, label in enumerate(labels)
            },
            "labels": list(labels),
            "positive": self.positives,
            "confusion": _matrix(cells, len(labels)) if len(labels) <= MATRIX else None,
            "most_confused": most_confused(self.pairs),
            "unknown_labels": self.unknown,
            "all_given": self.degenerate(),
            "undefined": self.undefined(),
            **({"weighted": True} if (cells.weight != 1).any() else {}),
        }

    def mean_cost(self, counts: Int | Float) -> dict[str, Float]:
        """Returns MEAN_COST of numbers of the pairs that occur, (..., C) -> (...); {} without costs."""
        if not self.costs:
            return {}
        cost_C = np.array([cost_of(self.costs, truth, label) for truth, label, _ in self.weighted])
        weight_C = np.array([weight for *_, weight in self.weighted])
        return {MEAN_COST: ratio(counts @ (cost_C * weight_C), counts @ weight_C)}

    def undefined(self) -> dict[str, str]:
        """Returns metrics that are not defined for these examples, with the reason."""
        truth, reasons = {truth for truth, _ in self.pairs}, {}
        if len(truth) == 1:
            reasons["mcc"] = f"every example has the label {next(iter(truth))!r}"
        if self.of_f1 is not None and self.of_f1 not in truth:
            reasons["f1"] = f"no example has the label {self.of_f1!r}"
        if truth == {self.outside}:
            reasons["micro_f1"] = f"every example has the label {self.outside!r}"
        return reasons


@dataclass
class ListedConfusion(Confusion):
    """A `Confusion` that stores its examples, so that they can be resampled."""

    rows: list[tuple[str, str, float]] = field(default_factory=list)

    def add(self, truth: Iterable[str], predicted: Iterable[str], weights: Sequence[float] | None = None) -> None:
        """Counts more examples. weights: of each; None: all are 1."""
        added = list(zip(truth, predicted, strict=True))
        self.rows += [(*pair, weight) for pair, weight in zip(added, weights or [1.0] * len(added), strict=True)]
        super().add([one for one, _ in added], [other for _, other in added], weights)

    def units(self) -> tuple["sparse.csr_array", MetricsOf]:
        """Returns which of the pairs that occur each example is. (N, C)"""
        from scipy import sparse

        cells, labels = self.cells(), len(self.all_labels)
        cell = {pair: i for i, pair in enumerate(self.weighted)}
        columns = [cell[pair] for pair in self.rows]
        shape = len(self.rows), len(cell)
        counts_NC = sparse.csr_array((np.ones(len(columns)), (np.arange(len(columns)), columns)), shape=shape)

        def metrics_of(counts: Float) -> Mapping[str, Float]:
            metrics = self._metrics_of(*sums(cells, np.atleast_2d(counts), labels))
            own = metrics if counts.ndim > 1 else {name: values[0] for name, values in metrics.items()}
            return {**own, **self.mean_cost(counts)}

        return counts_NC, metrics_of


def rarest(examples: Mapping[str, int]) -> tuple[str, float] | None:
    """Returns the label with the fewest examples and its share of them, if it is rare (RARE); None otherwise."""
    label = min(examples, key=lambda label: (examples[label], label), default=None)
    if label is None:
        return None
    share = examples[label] / sum(examples.values())
    return (label, share) if share < min(RARE, 0.5 / len(examples)) else None


def leading(metrics: tuple[str, ...], report: Json) -> tuple[str, ...]:
    """Returns the metrics of a report, with macro F1 before accuracy where a label of the examples is rare."""
    counts = {label: row["examples"] for label, row in report.get("per_label", {}).items() if row["examples"]}
    imbalanced = metrics[:2] == ("accuracy", "macro_f1") and rarest(counts)
    if imbalanced:
        return ("macro_f1", "accuracy", *metrics[2:])
    return tuple(name for name in metrics if name in report) or metrics  # rows of another kind have other metrics


def most_confused(pairs: Mapping[tuple[str, str], int]) -> list[list[Any]]:
    """Returns the most frequent errors, each as [true, predicted, count]."""
    wrong = ([truth, predicted, n] for (truth, predicted), n in pairs.items() if truth != predicted)
    return heapq.nsmallest(CONFUSED, wrong, key=lambda row: (-row[2], row[:2]))


def sums(cells: LabelCells, counts: Int | Float, labels: int) -> tuple[Float, Float, Float]:
    """Returns how often each label is correct, true and predicted, times weight. counts (R, C) -> 3 x (R, L)"""
    from scipy import sparse

    truth, predicted, every = cells.truth, cells.predicted, np.arange(len(cells.truth))

    def per_label(of: Int, rows: Int) -> Float:
        table_CL = sparse.csr_array((cells.weight[rows], (rows, of)), shape=(len(every), labels))
        summed: Float = np.asarray(counts @ table_CL, np.float64)
        return summed

    right = truth == predicted
    return per_label(truth[right], every[right]), per_label(truth, every), per_label(predicted, every)


def compute_confusion_metrics(
    right: Float, truth: Float, predicted: Float, *, positive: int | None
) -> dict[str, Float]:
    """Returns the metrics of one or many sums over examples. right, truth, predicted (..., L) -> (...) each.

    accuracy; macro_f1, over the labels that occur; mcc (Matthews correlation coefficient, Gorodkin 2004 for L > 2); and
    f1, that of the label with the number `positive`; None: no f1.
    """
    total = truth.sum(-1)
    f1 = per_label(right, truth, predicted)[2]
    occurs = truth + predicted > 0
    covariance = right.sum(-1) * total - (truth * predicted).sum(-1)
    spread = (total**2 - (truth**2).sum(-1)) * (total**2 - (predicted**2).sum(-1))
    values = {
        "accuracy": ratio(right.sum(-1), total),
        "macro_f1": ratio((f1 * occurs).sum(-1), occurs.sum(-1)),
        "mcc": ratio(covariance, np.sqrt(spread)),
    }
    if positive is not None:
        values["f1"] = f1[..., positive]
    return values


def per_label(right: Float, truth: Float, predicted: Float) -> tuple[Float, Float, Float]:
    """Returns precision, recall and F1 of every label; 0 where a label is never predicted or never true. -> 3 x
    (..., L)"""
    return ratio(right, predicted), ratio(right, truth), micro_f1(right, truth, predicted)


def micro_f1(right: Float, truth: Float, predicted: Float) -> Float:
    """Returns F1 from the counts of correct, true and predicted."""
    return ratio(2 * right, truth + predicted)


def bootstrap(
    cells: LabelCells,
    labels: int,
    metrics_of: Callable[[Float, Float, Float], Mapping[str, Float]],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, list[float]]:
    """Returns 95% percentile intervals of every metric over resampled test sets.

    metrics_of: the metrics of the counts of correct, true and predicted, 3 x (R, L) -> (R,) each.
    """
    count, total = cells.count, int(cells.count.sum())
    if not total:
        return {}
    rng, samples = np.random.default_rng(seed), dict[str, list[Float]]()
    at_once = max(1, CELLS // max(labels, len(count)))
    for start in range(0, resamples, at_once):
        draws_RC = rng.multinomial(total, count / total, size=min(at_once, resamples - start))
        for name, values in metrics_of(*sums(cells, draws_RC, labels)).items():
            samples.setdefault(name, []).append(np.array(values))  # a view would keep a number for each label
    return {name: list(percent_points(np.concatenate(values))) for name, values in samples.items()}


def _matrix(cells: LabelCells, labels: int) -> list[list[int]]:
    """Rows: true, columns: predicted. Examples are counted without weights."""
    matrix = np.zeros((labels, labels), np.int64)
    np.add.at(matrix, (cells.truth, cells.predicted), cells.count)
    rows: list[list[int]] = matrix.tolist()
    return rows
