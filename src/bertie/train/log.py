"""The metrics of a run: metrics.jsonl, one JSON object per line.

    {"kind": "train", "step": 20, "loss": 9.1, "mlm_loss": 8.4, "mlm_accuracy": 0.04, ..., "lr": 1e-05, ...}
    {"kind": "valid", "step": 500, "loss": 7.2, ...}

A train line covers the steps since the previous one. Losses are in nats per prediction. Fields that depend on the clock
end in `_s`. All others are the same however often the run was stopped and resumed.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from bertie.console import console
from bertie.errors import BadFile, Stopped
from bertie.files import JsonObject, atomic_write, read_small

METRICS = "metrics.jsonl"
MAX_LOG_BYTES = 4 << 30  # some 20 million lines


class MetricsLog:
    """metrics.jsonl of a run, open for appending. Everything after `position` bytes is removed first.

    A resumed run writes these lines again. Raises Stopped when the disk is full.
    """

    def __init__(self, run: Path, position: int = 0, *, step: int = 0) -> None:
        self.path = run / METRICS
        self._file = open(self.path, "ab")  # noqa: SIM115 - open as long as the run is
        if self._file.tell() < position:
            console.warn(f"{self.path} is shorter than at step {step:,}: earlier lines are missing.")
        else:
            self._file.truncate(position)

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> JsonObject:
        """Appends a line and returns it."""
        line = {"kind": kind, "step": step, **values}
        try:
            self._file.write(json.dumps(line).encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise Stopped.for_full_disk(error, self.path) or error from None
        return line

    def sync(self) -> int:
        """Flushes the file to the disk, and returns its size in bytes."""
        os.fsync(self._file.fileno())
        return self._file.seek(0, os.SEEK_END)

    def close(self) -> None:
        """Closes the file."""
        with suppress(OSError):  # a line that a full disk refused is written again; `write` has raised for it
            self._file.close()


def read_log(run: Path) -> list[JsonObject]:
    """Returns the lines of a run's metrics.jsonl, or none without such a file. Raises DataError for a damaged line."""
    path = run / METRICS
    try:
        lines = [json.loads(line) for line in read_small(path, most=MAX_LOG_BYTES).splitlines()]
    except FileNotFoundError:
        return []
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{path} has a line that is not JSON ({error}).") from None
    for number, line in enumerate(lines, 1):
        if not isinstance(line, dict) or "kind" not in line or not isinstance(line.get("step"), int):
            raise BadFile(f"{path} is damaged: line {number} has no kind or no step.")
    return lines


def copy_metrics(source: Path, run: Path, position: int) -> None:
    """Copies the first `position` bytes of another run's metrics."""
    if (source / METRICS).exists():
        with open(source / METRICS, "rb") as old, atomic_write(run / METRICS) as new:
            new.write(old.read(position))
