"""Errors of a classifier by group (De-Arteaga et al. 2019): rates, true and false positive rates, calibration.

    gap    a rate of a group minus the rate of all other rows, in percentage points
    RMS    the root of the mean of the squared gaps of the true positive rate, over labels and groups

N rows · G groups · L labels · B bins
"""

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bertie.apps.audit.base import AuditMeasure, AuditSet, AuditSource, Read, Score, Subject, of_units
from bertie.platform import BadRecord, DataError, Example, SkipReport, UsageError, nearest

if TYPE_CHECKING:
    from scipy import sparse

_BINS = 15  # of probabilities, as in Guo et al. 2017
_MAX_GROUPS = 8  # groups: the most frequent ones
_MIN_GROUP_ROWS = 10  # rows of a group
MAX_RATED_LABELS = 12  # labels that have rates of their own: the most frequent ones


@dataclass(frozen=True)
class GroupRow:
    """A labeled text with its group."""

    example: Example
    label: str
    group: str


class GroupAudit(AuditSet[GroupRow]):
    """Rates and errors of a classifier by a column of groups."""

    name = "groups"
    title = "Errors by group"
    about = (
        "The table's rows are classified and counted by group. A gap is the rate of a group minus the rate of all "
        "other rows, in percentage points. RMS is the root of the mean squared gap of the true positive rate. "
        "Calibration error is the expected calibration error (ECE) of the group."
    )
    criticism = (
        "Gaps of small groups are unreliable, and even without any relation the RMS is above 0: compare it with the "
        "shuffled control. Chance also makes the RMS and the calibration error of resamples larger. Their intervals "
        "are therefore percentiles of resamples that were moved until their median is the value. Which gap matters "
        "depends on the use; different criteria cannot hold at once (Kleinberg et al. 2017)."
    )
    unit = "rows"
    needs = ("sequence",)
    chunk = 256
    remedy = "Pass --table FILE --group COLUMN."

    def missing(self, subject: Subject) -> str:
        """Only classifiers with one label per text can be measured."""
        return super().missing(subject) or single_label(subject)

    def offered(self, source: AuditSource) -> bool:
        """A table and the column of the group are needed."""
        return source.table is not None and bool(source.group)

    def read(self, subject: Subject, source: AuditSource) -> Read[GroupRow]:
        """Returns the rows of the most frequent groups. Raises DataError when the column is missing."""
        examples, items = labeled(subject, source)
        if source.group not in (examples[0].source or {}):
            names = list(examples[0].source or ())
            raise DataError(f"{source.table} has no column {source.group!r}. {nearest(source.group, names)}")
        grouped = [(one, str((one.source or {}).get(source.group) or "").strip()) for one in examples]
        counts = Counter(group for _, group in grouped if group)
        group_names = [group for group, count in counts.most_common(_MAX_GROUPS) if count >= _MIN_GROUP_ROWS]
        if len(group_names) < 2:
            raise DataError(
                f"{source.table}: the column {source.group!r} has {len(counts)} groups, "
                f"{len(group_names)} of them with at "
                f"least {_MIN_GROUP_ROWS} rows. Two are needed."
            )
        labels = set(subject.predictor.labels)
        items.items = [
            GroupRow(one, str(one.label), group)
            for one, group in grouped
            if group in group_names and one.label in labels
        ]
        if left := len(examples) - len(items.items):
            items.notes.append(f"{left:,} rows left out: no group, a small group, or a label that the model lacks.")
        if (count := len({row.label for row in items.items})) > MAX_RATED_LABELS:
            items.notes.append(f"Rates are shown for the {MAX_RATED_LABELS} most frequent of {count:,} labels.")
        return items

    def scores(self, subject: Subject, items: Sequence[GroupRow]) -> list[Score]:
        """Returns [label, probability] of each row."""
        return label_answers(subject, [row.example for row in items])

    def measures(self, items: Sequence[GroupRow], scores: Sequence[Score]) -> dict[str, AuditMeasure]:
        """Returns accuracy, rates, gaps and calibration by group."""
        groups = sorted({row.group for row in items})
        frequent = Counter(row.label for row in items) + Counter(str(label) for label, _ in scores)
        labels = sorted(frequent)
        shown = sorted(label for label, _ in frequent.most_common(MAX_RATED_LABELS))
        counts = _counts(items, scores, groups, labels)
        shape = (len(groups), len(labels), 3)

        def metrics_of(sums: NDArray[np.float64]) -> Mapping[str, NDArray[np.float64]]:
            with np.errstate(all="ignore"):
                rates = sums[..., : math.prod(shape)].reshape(*sums.shape[:-1], *shape)
                bins = sums[..., math.prod(shape) :].reshape(*sums.shape[:-1], len(groups), _BINS, 3)
                return _metrics(rates, bins, groups, numbers)

        numbers = {label: labels.index(label) for label in shown}
        true_GL = counts.sum(0)[: math.prod(shape)].reshape(shape)[..., 0].astype(int)
        sizes = _sizes(true_GL, groups, numbers)
        neutral = {name: 0.0 for name in sizes if "gap" in name}
        noisy = [name for name in sizes if name.startswith("RMS") or name.endswith("calibration error")]
        return of_units(counts, metrics_of, items=sizes, neutral=neutral, centered=noisy)

    def shuffled(
        self, items: Sequence[GroupRow], scores: Sequence[Score], rng: np.random.Generator
    ) -> tuple[Sequence[GroupRow], Sequence[Score]]:
        """Shuffles the groups over the rows."""
        groups = rng.permutation([row.group for row in items]).tolist()
        return [GroupRow(row.example, row.label, group) for row, group in zip(items, groups, strict=True)], scores


def labeled(subject: Subject, source: AuditSource) -> tuple[list[Example], Read[GroupRow]]:
    """Returns the labeled rows of the table, each with all its columns, and where skipped rows are counted."""
    assert source.table is not None
    result = Read[GroupRow]()
    rows = subject.predictor.task.rows(source.table, replace(source.format, keep=True))
    examples, skipped = SkipReport.collect(rows, str(source.table))
    result.skipped[source.table.name] = skipped
    return examples, result


def label_answers(subject: Subject, examples: Sequence[Example]) -> list[Score]:
    """Returns [label, probability] of each example."""
    return [
        answer.reason if isinstance(answer, BadRecord) else [str(answer.label), float(answer.probability or 0.0)]
        for _, answer in subject.predictor.stream(examples)
    ]


def single_label(subject: Subject) -> str:
    """Returns what a model lacks to predict one label per text; "" if it lacks nothing."""
    try:
        return "" if subject.predictor.task.exclusive else "a classifier with one label per text"
    except UsageError:
        return "a classifier with one label per text"


def _counts(
    items: Sequence[GroupRow], scores: Sequence[Score], groups: Sequence[str], labels: Sequence[str]
) -> "sparse.csr_array":
    """Returns the counts of each row: group x label x (true, predicted, right), and group x bin x (one, probability,
    right)."""
    from scipy import sparse

    group_N = np.array([groups.index(row.group) for row in items])
    number = {label: i for i, label in enumerate(labels)}
    true_N = np.array([number[row.label] for row in items])
    given_N = np.array([number[str(label)] for label, _ in scores])
    p_N = np.array([p for _, p in scores], np.float64)
    true_at, given_at = (3 * (group_N * len(labels) + label_N) for label_N in (true_N, given_N))
    first = 3 * len(groups) * len(labels)
    bin_N = first + 3 * (group_N * _BINS + np.clip(np.ceil(p_N * _BINS).astype(int) - 1, 0, _BINS - 1))
    columns = np.stack([true_at, given_at + 1, true_at + 2, bin_N, bin_N + 1, bin_N + 2], -1)
    one_N, right_N = np.ones(len(items)), true_N == given_N
    values = np.stack([one_N, one_N, right_N, one_N, p_N, right_N], -1).astype(np.float64)
    rows = np.repeat(np.arange(len(items)), columns.shape[1])
    shape = (len(items), first + 3 * len(groups) * _BINS)
    return sparse.csr_array((values.ravel(), (rows, columns.ravel())), shape=shape)


def _metrics(
    rates: NDArray[np.float64], bins: NDArray[np.float64], groups: Sequence[str], shown: Mapping[str, int]
) -> dict[str, NDArray[np.float64]]:
    """rates (..., G, L, 3), bins (..., G, B, 3), shown: label -> its number -> (...) each"""
    metrics: dict[str, NDArray[np.float64]] = {}
    (true, predicted, hits), (true_rest, given_rest, rest) = (
        np.moveaxis(counts, -1, 0) for counts in (rates, rates.sum(-3, keepdims=True) - rates)
    )
    total, total_rest = true.sum(-1, keepdims=True), true_rest.sum(-1, keepdims=True)
    tpr = 100 * (hits / true - rest / true_rest)
    fpr = 100 * ((predicted - hits) / (total - true) - (given_rest - rest) / (total_rest - true_rest))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a mean without a value, which is NaN
        metrics["RMS gap of the true positive rate"] = np.sqrt(np.nanmean(tpr**2, axis=(-1, -2)))
    ece = 100 * np.abs(bins[..., 1] - bins[..., 2]).sum(-1) / bins[..., 0].sum(-1)
    for g, group in enumerate(groups):
        metrics[f"{group}: accuracy"] = 100 * hits[..., g, :].sum(-1) / total[..., g, 0]
        metrics[f"{group}: calibration error"] = ece[..., g]
        for label, i in shown.items():
            metrics[f"{group}: predicted {label}"] = 100 * predicted[..., g, i] / total[..., g, 0]
            metrics[f"{group}: gap of the true positive rate, {label}"] = tpr[..., g, i]
            metrics[f"{group}: gap of the false positive rate, {label}"] = fpr[..., g, i]
    return metrics


def _sizes(true_GL: NDArray[np.int64], groups: Sequence[str], shown: Mapping[str, int]) -> dict[str, int]:
    """Returns the rows that each metric of `_metrics` counts: of a rate's gap, the rows of the group that have the
    label, or that do not. true_GL (G, L): rows by group and true label."""
    sizes = {"RMS gap of the true positive rate": int(true_GL.sum())}
    for group, true_L in zip(groups, true_GL, strict=True):
        rows = int(true_L.sum())
        sizes |= {f"{group}: {name}": rows for name in ("accuracy", "calibration error")}
        for label, i in shown.items():
            sizes[f"{group}: predicted {label}"] = rows
            sizes[f"{group}: gap of the true positive rate, {label}"] = int(true_L[i])
            sizes[f"{group}: gap of the false positive rate, {label}"] = rows - int(true_L[i])
    return sizes
