"""The intervals of the fractions in a score report, for reports and the terminal."""

from collections.abc import Mapping
from typing import Any

from bertie.metrics.base import wilson


def with_intervals(report: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a score report (metrics/base.py) whose labels and calibration bins have 95% Wilson intervals.

    Each row of "per_label" gets "interval_95", that of its recall. Each bin of "calibration" gets "low" and "high",
    those of the fraction that is correct.
    """
    found = dict(report)
    if labels := report.get("per_label"):
        found["per_label"] = {
            label: {**row, "interval_95": wilson(row["recall"] * row["examples"], row["examples"])}
            for label, row in labels.items()
        }
    if bins := report.get("calibration"):
        bounds = [wilson(one["right"] * one["answers"], one["answers"]) for one in bins]
        found["calibration"] = [
            {**one, "low": low, "high": high} for one, (low, high) in zip(bins, bounds, strict=True)
        ]
    return found
