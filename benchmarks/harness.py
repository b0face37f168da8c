"""Interleaved measurements in one process, A B A B, so that changes of the machine affect all runners.

A `Runner` does a fixed amount of work each time it is called and says how much; `interleave` calls every runner once a
round, and `summary` turns the rounds into a median with its spread and ratios against the first runner.
"""

import datetime
import io
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertie.console import console, counted
from bertie.errors import BertieError, DataError
from bertie.files import folders_above

Runner = Callable[[], tuple[float, float]]
"""Does one round of work; returns the amount done (real tokens, characters, examples) and the seconds it took.

A runner keeps its own clock, so that what is not the work (building a Trainer, opening files) is not in it.
"""


@dataclass
class Cell:
    """The measurements of one runner: `rates` holds one amount per second for each round."""

    name: str
    rates: list[float] = field(default_factory=list)
    peak_memory_bytes: int | None = None

    @property
    def median(self) -> float:
        """Median rate over the rounds."""
        return statistics.median(self.rates)

    @property
    def spread(self) -> float | None:
        """The spread of the rounds, as `spread_of`."""
        return spread_of(self.rates)


def spread_of(rates: Sequence[float]) -> float | None:
    """Returns half the distance between the slowest and the fastest round, as a share of the median.

    None for one round, and where the median is 0.
    """
    middle = statistics.median(rates)
    return round((max(rates) - min(rates)) / 2 / middle, 3) if middle and len(rates) > 1 else None


def around(spread: float | None) -> str:
    """Returns a spread for a table; "" for that of one round."""
    return "" if spread is None else f"± {spread:.0%}"


def interleave(runners: Mapping[str, Runner], *, rounds: int = 5, warmup: int = 1) -> list[Cell]:
    """Calls every runner once per round, A B C A B C; the first `warmup` rounds are not counted."""
    cells = {name: Cell(name) for name in runners}
    with console.progress("measuring", total=(rounds + warmup) * len(runners), unit="runs") as advance:
        for round_number in range(warmup + rounds):
            for name, run in runners.items():
                amount, seconds = run()
                rate = amount / seconds
                if round_number >= warmup:
                    cells[name].rates.append(rate)
                form = ",.0f" if rate >= 10 else ".2g"  # megabytes too
                advance(1, last=f"{name} {rate:{form}}/s")
    return list(cells.values())


def ratios(cell: Cell, other: Cell) -> tuple[float, float, float]:
    """Returns the speedup of `cell` over `other`: median, minimum and maximum of the ratios per round."""
    pairs = [a / b for a, b in zip(cell.rates, other.rates, strict=True)]
    return statistics.median(pairs), min(pairs), max(pairs)


def peak_memory_bytes(module: str, arguments: list[str]) -> int:
    """Peak resident memory of `python -m module arguments` in a process of its own, above what its imports took.

    The module prints one JSON line {"baseline_bytes": ..., "peak_bytes": ...} last. Raises BertieError when it fails.
    """
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], capture_output=True, text=True, env={**os.environ}, check=False
    )
    if done.returncode:
        raise BertieError(f"The memory measurement {module} {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    line = json.loads(done.stdout.strip().splitlines()[-1])
    return int(line["peak_bytes"] - line["baseline_bytes"])


def wait_for(device: str) -> None:
    """Waits until a GPU has finished its work."""
    import torch

    if device != "cpu":
        torch.cuda.synchronize(device)


def bf16_is_quicker(device: str = "auto") -> bool:
    """Returns whether bf16 is faster than float32 on a device of this machine."""
    import torch

    from bertie.train.precision import choose_device, choose_dtype

    return choose_dtype("auto", choose_device(device)) == torch.bfloat16


def matrix_flops(device: str, precision: str) -> float:
    """Returns the floating-point operations per second of matrix products, the best of ten: an upper bound for models.

    precision: bf16 or fp32, float32 as torch computes it by default.
    """
    import torch

    n = 2048 if device == "cpu" else 8192
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[precision]
    a, b = torch.randn(2, n, n, device=device).to(dtype)
    best = float("inf")
    for _ in range(10):
        wait_for(device)
        began = time.perf_counter()
        a @ b
        wait_for(device)
        best = min(best, time.perf_counter() - began)
    return 2 * n**3 / best


def write_lines(path: Path | None, lines: list[dict[str, Any]]) -> None:
    """Append one JSON line per cell to `path`."""
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def check_lines(path: Path | None) -> None:
    """Raises OSError for a file that `write_lines` could not write. It leaves no file and no folder."""
    if path:
        with folders_above(path):
            new = not path.exists()
            path.open("a").close()
            if new:
                path.unlink()


def read_lines(path: Path | None) -> list[dict[str, Any]]:
    """The rows `write_lines` wrote to `path`; none when it is not there. Raises DataError for a line that is no row."""
    rows = []
    if path and path.exists():
        for number, line in enumerate(io.StringIO(path.read_text(encoding="utf-8")), 1):
            try:
                rows.append(dict(json.loads(line)))
            except (ValueError, TypeError):
                raise DataError(
                    f"{path}:{number} is not a row of measurements. Delete the line, or choose another file."
                ) from None
    return rows


def conditions(device: str = "cpu") -> dict[str, str]:
    """Returns the machine and the date, as lines of results have them."""
    facts = machine(device)
    where = f"{facts.get('gpu', facts['processor'])}, {counted(facts['threads'], 'thread')}, torch {facts['torch']}"
    return {"machine": where, "date": datetime.date.today().isoformat()}


def machine(device: str = "cpu") -> dict[str, Any]:
    """Returns the facts of the machine: processor, used cores, versions."""
    import platform

    import torch

    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        named = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = named[0] if named else model
    return {
        "processor": model,
        **({} if device == "cpu" else {"gpu": torch.cuda.get_device_name(device)}),
        "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
