"""The scores of several tasks together: those of each, and the mean of their main metrics."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

from bertie.files import JsonObject
from bertie.metrics.base import ScoreCounter


@dataclass
class SeveralScores:
    """The scores of each task by name, and its main metric."""

    parts: Mapping[str, tuple[ScoreCounter, str]]

    @property
    def total(self) -> int:
        """The number of examples of all tasks."""
        return sum(scores.total for scores, _ in self.parts.values())

    @property
    def positives(self) -> dict[str, str]:
        """The label of each binary figure, by "task/metric"."""
        parts = ((name, getattr(scores, "positives", {})) for name, (scores, _) in self.parts.items())
        return {f"{name}/{metric}": label for name, of in parts for metric, label in of.items()}

    @property
    def seen(self) -> dict[str, tuple[ScoreCounter, str]]:
        """The tasks with examples."""
        return {name: part for name, part in self.parts.items() if part[0].total}

    def add(self, truth: Iterable[Any], predicted: Iterable[Any]) -> None:
        """Counts labels and predictions that name their task: (task, label) each."""
        for (name, true), (_, answer) in zip(truth, predicted, strict=True):
            self.parts[name][0].add([true], [answer])

    def compute(self) -> Mapping[str, float]:
        """Returns the mean of the main metrics, and each of them as "task/metric"."""
        values = {f"{name}/{metric}": float(scores.compute()[metric]) for name, (scores, metric) in self.seen.items()}
        return {"mean": sum(values.values()) / max(1, len(values)), **values}

    def report(self) -> JsonObject:
        """Returns the same with intervals, and all metrics of each task as "parts".

        The mean's interval is that of a mean of independent figures with these intervals (Zou and Donner 2008, MOVER).
        A metric that the examples of its task do not define is in "undefined", and counts as 0.
        """
        computed, parts, count = dict(self.compute()), dict[str, dict[str, float]](), max(1, len(self.seen))
        unknown = dict[str, str]()
        bounds, below, above = dict[str, list[float]](), 0.0, 0.0
        for name, (scores, metric) in self.seen.items():
            report = scores.report()
            low, high = report["interval_95"].get(metric, (report[metric], report[metric]))
            bounds[f"{name}/{metric}"] = [low, high]
            below, above = below + (report[metric] - low) ** 2, above + (high - report[metric]) ** 2
            parts[name] = {key: float(report[key]) for key in scores.compute()}
            unknown |= {f"{name}/{key}": why for key, why in report.get("undefined", {}).items()}
        mean = computed["mean"]
        bounds["mean"] = [mean - sqrt(below) / count, mean + sqrt(above) / count]
        return {
            "examples": self.total,
            **computed,
            "interval_95": bounds,
            "parts": parts,
            "positive": self.positives,
            "all_given": None,
            "undefined": unknown,
        }
