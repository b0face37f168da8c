"""Results as lines of JSON, of a benchmark that measures what its file does not have yet."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from bertie.console import console
from bertie.metrics.compare import SeedSummary


def read_lines(results: Path) -> Iterator[dict[str, Any]]:
    """Yields the results so far."""
    if results.exists():
        yield from map(json.loads, results.read_text().splitlines())


def add_line(results: Path, line: Mapping[str, Any]) -> None:
    """Shows a result, and appends it to the file."""
    console.show(str(line))
    with results.open("a") as file:
        file.write(json.dumps(line) + "\n")


def mean_cell(values: Sequence[float]) -> str:
    """Returns the mean over seeds for a table, with its 95% interval; that of shares is within 0 and 1."""
    summary = SeedSummary.over(values)
    shown = ",.0f" if summary.mean >= 100 else ".3f"
    if summary.low is None or summary.high is None:
        return f"{summary.mean:{shown}}"
    low, high = (min(max(end, 0), 1) if max(values) <= 1 else end for end in (summary.low, summary.high))
    return f"{summary.mean:{shown}} ({low:{shown}} to {high:{shown}})"


def peer_cells(ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]], metric: str) -> list[str]:
    """Returns the scores of two programs over the same seeds for a table, and how many times as fast the first is."""
    ratios = [a["pairs_per_s"] / b["pairs_per_s"] for a, b in zip(ours, theirs, strict=True)]
    fast = f"{mean(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
    return [*(mean_cell([run[metric] for run in runs]) for runs in (ours, theirs)), fast]
