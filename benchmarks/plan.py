"""Forecasts next to real runs: `python -m benchmarks plan`.

Each file of settings is a run. The forecast, from a new trial, and the run are processes of their own, one after the
other. The peak memory of each is therefore its own.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import machine
from bertie import settings as configs
from bertie.console import console
from bertie.errors import BertieError
from bertie.files import user_cache
from bertie.runs import finetune, pretrain
from bertie.runs.config import FinetuneConfig, PretrainConfig, choose_config_class
from bertie.train import log

CLOCKS = {"wall": ("seconds", time.monotonic), "cpu": ("cpu_s", time.process_time)}


def measure(files: Sequence[Path], *, trial: float, clock: str = "wall") -> Iterator[dict[str, Any]]:
    """Yields a row for each file: forecast and measurement of time, peak memory and energy.

    trial: seconds. clock: "wall", or "cpu" for processor time, which other programs change less. Raises BertieError
    when a command fails.
    """
    for file in files:
        command = "pretrain" if choose_config_class(configs.read_yaml(file)) is PretrainConfig else "finetune"
        console.say(f"{file.stem}: {command}")
        with tempfile.TemporaryDirectory(prefix="bertie-bench-") as work:
            asked = json.dumps({"file": str(file), "trial": trial, "clock": clock})
            forecast = _run(Path(work), "benchmarks.plan", asked)
            run = Path(work) / "run"
            seeds = ["--seeds", "1"] if command == "finetune" else []  # a small published set has several
            results = _run(Path(work), "bertie", command, "-c", str(file), *seeds, "--json", "-o", str(run))
            parts = _parts(log.read_log(run))
        usage = results["usage"]
        yield {
            "bench": "plan",
            "run": file.stem,
            "command": command,
            "trial_s": trial,
            "clock": clock,
            "forecast": forecast,
            "usage": usage,
            "parts": {**parts, "rest": usage["seconds"] - sum(parts.values())},
            "measured_s": usage[CLOCKS[clock][0]],
            "seconds_apart": round(forecast["seconds"] / usage[CLOCKS[clock][0]] - 1, 4),
            "memory_apart": round(forecast["peak_bytes"] / usage["peak_bytes"] - 1, 4),
            "formula_apart": round(forecast["computed_bytes"] / usage["peak_bytes"] - 1, 4),
            "machine": machine(),
        }


def _parts(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Returns the seconds of the steps and of the evaluations of a run during training, from its metrics."""
    steps = sum(line["tokens"] / line["tokens_per_s"] for line in lines if line["kind"] == "train")
    return {"steps": steps, "evaluation": sum(line["took_s"] for line in lines if line["kind"] == "valid")}


def _run(work: Path, module: str, *arguments: str) -> dict[str, Any]:
    """Returns the JSON that a module prints. Its trials are stored in `work`, so that none is reused."""
    known, own = user_cache() / "processors.json", work / "cache" / "bertie"
    own.mkdir(parents=True, exist_ok=True)
    if known.exists():
        shutil.copyfile(known, own / known.name)
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(work / "cache")},
        check=False,
    )
    if done.returncode:
        raise BertieError(f"{module} {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main(file: str, trial: float, clock: str) -> None:
    """Prints the forecast of a run as JSON."""
    kind = choose_config_class(configs.read_yaml(Path(file)))
    config = configs.load_config(kind, file)
    timed = CLOCKS[clock][1]
    if isinstance(config, FinetuneConfig):
        planned = finetune.plan_finetuning(config, trial=trial, clock=timed)
    else:
        planned = pretrain.plan_pretraining(config, trial=trial, clock=timed)
    print(json.dumps(planned["forecast"]))


if __name__ == "__main__":
    console.verbosity.level = -1
    main(**json.loads(sys.argv[1]))
