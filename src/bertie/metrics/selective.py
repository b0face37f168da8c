"""Answers that are withheld where a model is not sure: the accuracy of the others, against how many there are.

N answers · C thresholds
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bertie.metrics.base import Float, wilson

THRESHOLDS = (0.0, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.995)


@dataclass
class Selective:
    """Answers, and right ones, with at least each of THRESHOLDS as their probability. table (C, 2)

    withheld: rows that got no answer, which the metrics leave out.
    """

    table: Float = field(default_factory=lambda: np.zeros((len(THRESHOLDS), 2)))
    withheld: int = 0

    def add(self, probabilities: Sequence[float], right: Sequence[bool]) -> None:
        """Counts the most probable labels of more rows, withheld or not."""
        sure_NC = np.array(probabilities, np.float64).reshape(-1, 1) >= np.array(THRESHOLDS)
        self.table += np.stack([sure_NC.sum(0), (sure_NC & np.array(right, bool).reshape(-1, 1)).sum(0)], 1)

    def report(self) -> dict[str, Any]:
        """Returns "selective": threshold, share of answered rows, their accuracy, its 95% interval; and "answered": the
        share of rows that were answered, where some were not."""
        rows = self.table[0, 0]
        if not rows:
            return {}
        curve = [
            [threshold, float(sure / rows), float(hits / sure), *wilson(hits, sure)]
            for threshold, (sure, hits) in zip(THRESHOLDS, self.table, strict=True)
            if sure
        ]
        share = float(1 - self.withheld / rows)
        low, high = wilson(rows - self.withheld, rows)
        answered = {"share": share, "interval_95": [low, high], "rows": int(rows), "withheld": self.withheld}
        return {"selective": curve, **({"answered": answered} if self.withheld else {})}
