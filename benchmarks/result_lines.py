"""Results as lines of JSON, of a benchmark that measures what its file does not have yet."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertie.console import console
from bertie.evaluation.compare import SeedSummary


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
    """Returns the mean over seeds for a table, with its 95% interval."""
    summary = SeedSummary.over(values)
    between = "" if summary.low is None else f" ({summary.low:.3f} to {summary.high:.3f})"
    return f"{summary.mean:.3f}{between}"
