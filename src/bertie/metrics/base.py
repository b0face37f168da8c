"""The interface of scores: they count a stream of predictions, and compute one report."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertie.console import counted
from bertie.files import Json, JsonObject

if TYPE_CHECKING:
    from scipy import sparse

Float = NDArray[np.float64]
Counts: TypeAlias = "Float | sparse.csr_array"
MetricsOf = Callable[[Float], Mapping[str, Float]]

RESAMPLES = 2000  # the 2.5 and 97.5 percent points then rest on 50 resamples each
_MIN_UNITS = 10  # units: of fewer, no difference is told
RESAMPLED_UNITS = ("question", "context", "example")  # that are resampled; a report counts them as "questions", or ...
SIGNED = ("pearson", "spearman", "mcc", "mean")  # from -1 to 1; the mean is that of several tasks' main metrics
OF_100 = ("bleu", "chrf")  # from 0 to 100


class ScoreCounter(Protocol):
    """Protocol of a counter of true and predicted labels of a task (`Example.label`, `Prediction.label`)."""

    @property
    def total(self) -> int:
        """The number of examples."""
        ...

    def add(self, truth: Iterable[Any], predicted: Iterable[Any]) -> None:
        """Counts more examples."""
        ...

    def compute(self) -> Mapping[str, float]:
        """Returns every metric without intervals, which is fast enough for each validation."""
        ...

    def report(self) -> JsonObject:
        """Returns JSON values: "examples", every metric by name, "interval_95": {metric: [low, high]}, and optional
        details.

        Details for reports: "positive" {metric: the label that it is of}; "per_label" {label: precision, recall, f1,
        examples}; "unknown_labels" {label: examples};
        "all_given", the only predicted label where the true ones differ; "undefined" {metric: reason}, metrics reported
        as 0; "baselines" [{"name", "figures" {metric: value}, "difference" {metric: that of the model, for the best
        one}}]; "parts" {name: {metric: value}}, the metrics of kinds of examples.
        """
        ...


class Units(Protocol):
    """Protocol of metrics that are functions of sums over examples, so that the bootstrap only resamples counts."""

    def units(self) -> tuple[Counts, MetricsOf]:
        """Returns the counts (N, K) of the examples, or of the questions that examples belong to, in the order they
        were added; and the metrics of their sums, (..., K) -> (...) each."""
        ...

    def compute(self) -> Mapping[str, float]:
        """Returns every metric without its interval."""
        counts, metrics_of = self.units()
        return {name: float(value) for name, value in metrics_of(counts.sum(0)).items()}


@runtime_checkable
class Sums(ScoreCounter, Units, Protocol):
    """Scores whose metrics are functions of sums over examples."""


def ratio(above: ArrayLike, below: ArrayLike) -> Float:
    """Returns above / below, and 0 where below is 0."""
    above, below = np.asarray(above, np.float64), np.asarray(below, np.float64)
    quotient: Float = np.divide(above, below, out=np.zeros(np.broadcast(above, below).shape), where=below > 0)
    return quotient


def percent_points(values: Float) -> tuple[float, float]:
    """The middle 95% of resampled values (Efron and Tibshirani 1993, chapter 13)."""
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def wilson(right: float, total: float) -> tuple[float, float]:
    """Returns the 95% interval of a fraction, right of total (Wilson 1927); 0 to 1 for a total of 0."""
    if not total:
        return 0.0, 1.0
    z, p = 1.959964, right / total
    middle, half = p + z * z / (2 * total), z * (p * (1 - p) / total + z * z / (4 * total * total)) ** 0.5
    scale = 1 + z * z / total
    return (middle - half) / scale, (middle + half) / scale


MEAN_COST = "mean_cost"  # the only metric that is better if it is lower, and what `optimize=cost` is compared by


def metric_range(metric: str) -> tuple[float, float]:
    """Returns the lowest and the highest value that a metric can have; infinite for losses.

    metric: its name, also after that of its task ("cola/mcc"). "": a difference.
    """
    name = metric.rpartition("/")[2]
    if name in ("mse", MEAN_COST, "") or name.endswith("loss"):
        return (0.0 if name else -math.inf), math.inf
    return (-1.0 if name in SIGNED else 0.0), (100.0 if name in OF_100 else 1.0)


def called(metric: str, report: Json) -> str:
    """Returns a metric's name, and of a binary figure the label: "f1 of 'spam'".

    report: of scores or of a run, with "positive" {metric: label}, where a metric is that of one label.
    """
    label = report.get("positive", {}).get(metric)
    return metric if label is None else f"{metric} of {label!r}"


def summarize_metrics(report: Json, metrics: Sequence[str]) -> str:
    """Returns one line for the terminal: "accuracy 0.913 (0.893 to 0.931), macro_f1 ... on 872 examples"."""
    parts = []
    for name in metrics:
        if name in report.get("undefined", ()):
            parts.append(f"{called(name, report)} not defined")
            continue
        bounds = report["interval_95"].get(name)
        between = f" ({bounds[0]:z.3f} to {bounds[1]:z.3f})" if bounds else ""
        parts.append(f"{called(name, report)} {report[name]:z.3f}{between}")
    return ", ".join(parts) + (f" on {counted(report['examples'], 'example')}" if "examples" in report else "")


def undefined(report: Json) -> list[str]:
    """Returns warnings about metrics that are not defined for these examples."""
    reasons: dict[str, list[str]] = {}
    for name, why in report.get("undefined", {}).items():
        reasons.setdefault(why, []).append(called(name, report))
    return [f"not defined here, and reported as 0: {', '.join(names)} ({why})" for why, names in reasons.items()]


def verdict(report: Json, metric: str = "") -> tuple[str, bool]:
    """Returns one sentence on whether the model beats the best baseline, and whether it does; "" without baselines.

    It does if the 95% interval of the difference, or otherwise that of the model's metric, lies above. Fewer than FEW
    examples, or groups of them that are resampled, do not show it.
    """
    rows = report.get("baselines", ())
    if not rows:
        return "", True
    metric = MEAN_COST if MEAN_COST in rows[0]["figures"] else metric or next(iter(rows[0]["figures"]))
    if metric in report.get("undefined", ()):
        return "", True
    sign = -1 if metric == MEAN_COST else 1
    best = max(rows, key=lambda row: sign * row["figures"][metric])
    number, unit = next(
        ((report[f"{name}s"], name) for name in RESAMPLED_UNITS if f"{name}s" in report), (_MIN_UNITS, "")
    )
    if number < _MIN_UNITS:
        few = counted(number, unit)
        return f"{few} cannot show whether the model beats {best['name']}. Evaluate on {_MIN_UNITS} or more.", False
    value: float = best["figures"][metric]
    low, high = report["interval_95"].get(metric, [report[metric]] * 2)
    name = called(metric, report).replace("_cost", " cost")
    if report[metric] == value == (sign > 0):
        return (
            f"The model and {best['name']} both have {name} {value:z.3f}: these examples are too easy to compare them.",
            False,
        )
    text = f"The model ({name} {report[metric]:z.3f}, 95% interval {low:z.3f} to {high:z.3f})"
    beats, more = (low > value if sign > 0 else high < value), ""
    if difference := best.get("difference", {}).get(metric):
        text = f"The model ({name} {report[metric]:z.3f})"
        beats = difference["low"] > 0 if sign > 0 else difference["high"] < 0
        interval = f"95% interval {difference['low']:+z.3f} to {difference['high']:+z.3f}"
        on = f" on {difference['examples']:,} examples" if difference["examples"] < report["examples"] else ""
        more = f"; the difference{on} is {difference['difference']:+z.3f} ({interval})"
    verb = "beats" if beats else "does not beat" if sign * report[metric] <= sign * value else "does not clearly beat"
    return f"{text} {verb} {best['name']} ({value:z.3f}){more}.", beats


def baseline_notes(report: Mapping[str, object], metric: str = "") -> list[str]:
    """Returns a warning when the main metric is not better than the best baseline."""
    sentence, beats = verdict(report, metric)
    return [] if beats else [sentence]


def unknown_labels(scores: Json, most: int = 10) -> list[str]:
    """Returns a note on labels that the model does not know; nothing where it knows all."""
    if not (unknown := scores.get("unknown_labels")):
        return []
    names = ", ".join(f"{label!r} ({n:,})" for label, n in list(unknown.items())[:most])
    more = f" and {len(unknown) - most:,} more" if len(unknown) > most else ""
    return [f"Labels that are not among the model's labels count as errors: {names}{more}."]


def with_intervals(report: Json) -> JsonObject:
    """Returns a score report (metrics/base.py) whose labels and calibration bins have 95% Wilson intervals.

    Each row of "per_label" gets "interval_95", that of its recall. Each bin of "calibration" gets "low" and "high",
    those of the fraction that is correct.
    """
    result = dict(report)
    if labels := report.get("per_label"):
        result["per_label"] = {
            label: {**row, "interval_95": wilson(row["recall"] * row["examples"], row["examples"])}
            for label, row in labels.items()
        }
    if bins := report.get("calibration"):
        bounds = [wilson(one["right"] * one["answers"], one["answers"]) for one in bins]
        result["calibration"] = [
            {**one, "low": low, "high": high} for one, (low, high) in zip(bins, bounds, strict=True)
        ]
    return result
