"""Forecasts next to real runs: `bertie bench plan`.

Each file of settings is a run. The forecast (--dry-run with a new trial) and the run are processes of their own, one
after the other, so that the peak memory of each is its own.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bertie import console
from bertie import settings as configs
from bertie.bench.harness import machine
from bertie.errors import BertieError
from bertie.runs.config import COMMANDS, kind_of


def measure(files: Sequence[Path], *, trial: float) -> Iterator[dict[str, Any]]:
    """Yields a row for each file: forecast and measurement of time, peak memory and energy.

    trial: seconds. Raises BertieError when a command fails.
    """
    for file in files:
        command = COMMANDS[kind_of(configs.read_yaml(file))]
        console.say(f"{file.stem}: {command}")
        with tempfile.TemporaryDirectory(prefix="bertie-bench-") as work:
            planned = _run(command, file, Path(work), "--dry-run", "--trial", str(trial))
            results = _run(command, file, Path(work), "-o", str(Path(work) / "run"))
        forecast, usage = planned["forecast"], results["usage"]
        yield {
            "bench": "plan",
            "run": file.stem,
            "command": command,
            "trial_s": trial,
            "forecast": forecast,
            "usage": usage,
            "seconds_apart": round(forecast["seconds"] / usage["seconds"] - 1, 4),
            "memory_apart": round(forecast["peak_bytes"] / usage["peak_bytes"] - 1, 4),
            "formula_apart": round(forecast["computed_bytes"] / usage["peak_bytes"] - 1, 4),
            "machine": machine(),
        }


def _run(command: str, file: Path, work: Path, *arguments: str) -> dict[str, Any]:
    """Returns the JSON that a command prints. Its trials are stored in `work`, so that none is reused."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bertie" / "processors.json"
    own = work / "cache" / "bertie"
    own.mkdir(parents=True, exist_ok=True)
    if cache.exists():
        (own / cache.name).write_bytes(cache.read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "bertie", command, "-c", str(file), "--json", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(work / "cache")},
        check=False,
    )
    if done.returncode:
        raise BertieError(f"bertie {command} -c {file} {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found
