"""The worst predictions of a model, and its main metric on subgroups of a stream of examples.

The task defines the error score, the subgroups and the rendering (tasks/base.py). The memory is bounded: some of the
worst predictions, some points of true and predicted numbers, and the counts of each subgroup.
"""

import heapq
import re
from collections.abc import Sequence

from bertie.files import JsonObject
from bertie.io.tables import Example
from bertie.metrics.base import ScoreCounter
from bertie.metrics.resample import Reservoir
from bertie.tasks import Prediction, Task

WORST, POINTS = 12, 1000
SLICES, REST = 24, "others"  # of one kind, the rest together


class Findings:
    """Findings about a task's predictions. metric: that of the subgroups, by default the task's main metric."""

    def __init__(self, task: Task, metric: str | None = None, *, worst: int = WORST) -> None:
        self.task, self.metric, self.worst = task, metric or task.metrics[0], worst
        self.seen = 0
        self._slices: dict[str, dict[str, ScoreCounter]] = {}
        self._worst: list[tuple[float, int, Example, Prediction]] = []  # a heap, the least bad one first
        self._points = Reservoir[tuple[float, float]](POINTS)

    def add(
        self,
        examples: Sequence[Example],
        predictions: Sequence[Prediction],
        tokens: Sequence[int],
        fits: Sequence[bool],
    ) -> None:
        """Adds labeled examples. tokens: the number of tokens of each; fits: whether a text was read completely."""
        parts: dict[tuple[str, str], list[int]] = {}
        for number, (example, prediction) in enumerate(zip(examples, predictions, strict=True)):
            slices = self.task.slices(example, prediction, tokens[number], not fits[number])
            for kind, name in slices.items():
                parts.setdefault((kind, self._slice(kind, name)), []).append(number)
            if (wrong := self.task.error_score(example, prediction)) > 0:
                heapq.heappush(self._worst, (wrong, -self.seen, example, prediction))  # of equals the first is kept
                if len(self._worst) > self.worst:
                    heapq.heappop(self._worst)
            if point := self.task.scatter_point(example, prediction):
                self._points.add(point)
            self.seen += 1
        for (kind, name), numbers in parts.items():
            chosen = [examples[n] for n in numbers], [predictions[n] for n in numbers]
            self.task.count(self._slices[kind][name], *chosen)

    def _slice(self, kind: str, name: str) -> str:
        """Returns the name of a subgroup and creates its counts. Further names are combined as the rest."""
        known = self._slices.setdefault(kind, {})
        if name not in known:
            name = name if len(known) < SLICES else REST
            known.setdefault(name, self.task.scores())
        return name

    def as_json(self) -> JsonObject:
        """{"metric", "slices": {kind: [{"name", "examples", "value", "low", "high"}]}, "worst": [...], "points": [...]}

        A kind with a single subgroup is left out.
        """
        return {
            "metric": self.metric,
            "slices": {
                kind: [self._told(name, parts[name]) for name in sorted(parts, key=_order)]
                for kind, parts in self._slices.items()
                if len(parts) > 1
            },
            "worst": [
                {"line": example.line, "id": example.id, **self.task.render(example, prediction).as_json()}
                for _, _, example, prediction in sorted(self._worst, key=lambda entry: entry[:2], reverse=True)
            ],
            "points": sorted(self._points.items),
        }

    def _told(self, name: str, scores: ScoreCounter) -> dict[str, object]:
        report = scores.report()
        if self.metric in report.get("undefined", ()):
            return {"name": name, "examples": scores.total, "value": None, "low": None, "high": None}
        value = report[self.metric]
        low, high = report["interval_95"].get(self.metric, (None, None))
        return {"name": name, "examples": scores.total, "value": value, "low": low, "high": high}


def _order(name: str) -> tuple[bool, int, str]:
    """Sorts by the first number in a name where it has one, with the rest last."""
    number = re.search(r"\d+", name)
    return name == REST, int(number[0]) if number else -1, name
