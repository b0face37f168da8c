"""Training alone and next to a busy program with as many threads, for several times that waiting threads spin.

    python -m benchmarks neighbor

A parallel loop ends when its last thread ends. Until then the others spin, and sleep after a number of checks
(GOMP_SPINCOUNT of libgomp, on which PyTorch's loops run on Linux). Spinning takes the processor that the last thread
waits for; sleeping costs a wake-up for each loop. Each measurement is a process of its own, as libgomp reads the
variable once.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import harness
from bertie.data.executors import cores
from bertie.errors import BertieError
from bertie.process import CHOSEN, SPINS, spin_briefly

DEFAULT, OURS = "default", "bertie"  # libgomp's own count; what Bertie chooses (process.py)
COUNTS = (DEFAULT, OURS, "0", "1000", "10000", "100000")
WHERE = ("alone", "busy")
BUSY = "while True: pass"  # a thread of the neighbor


def measure(counts: Sequence[str] = COUNTS, *, rounds: int = 3, repeats: int = 2) -> list[dict[str, Any]]:
    """Training of a bert-tiny by spin count: tokens/s alone and next to the program, relative to the first count alone.

    Each round measures every cell once; a share is the median over rounds, with the lowest and the highest. repeats:
    rounds of steps in a process. Raises BertieError when a measurement fails.
    """
    runners = {(count, where): partial(_trained, count, where, repeats) for count in counts for where in WHERE}
    names = {f"{count} {where}": run for (count, where), run in runners.items()}
    cells = {cell.name: cell for cell in harness.interleave(names, rounds=rounds, warmup=0)}
    base, machine = cells[f"{counts[0]} alone"], harness.machine()
    rows = []
    for count in counts:
        row: dict[str, Any] = {"bench": "neighbor", "spins": count}
        for where in WHERE:
            cell = cells[f"{count} {where}"]
            share = dict(zip(("median", "low", "high"), harness.ratios(cell, base), strict=True))
            row[where] = {"tokens_per_s": round(cell.median), "spread": cell.spread, "share": share}
        rows.append(row | {"machine": machine})
    return rows


def _trained(count: str, where: str, repeats: int) -> tuple[float, float]:
    """Train in a process of its own. -> real tokens, seconds"""
    environment = {name: value for name, value in os.environ.items() if name not in CHOSEN}
    environment |= {SPINS: count} if count.isdigit() else {}
    command = [sys.executable, "-m", __name__, str(repeats), *([OURS] * (count == OURS))]
    with _neighbor(cores() if where == "busy" else 0):
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise BertieError(f"The measurement with {SPINS}={count} failed:\n{done.stderr[-2000:]}")
    tokens, seconds = json.loads(done.stdout.splitlines()[-1])
    return tokens, seconds


@contextmanager
def _neighbor(threads: int) -> Iterator[None]:
    """Context with a busy program of some threads, at the priority of this process."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(threads)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def main() -> None:
    """Train, and print the tokens and the seconds it took: the process that `measure` starts."""
    if OURS in sys.argv:
        spin_briefly()
    from benchmarks.pretrain import BertieRunner, Rows, Setup, sequences, vocabulary, write_model
    from bertie.console import console

    console.verbosity.level = -1
    setup = Setup("tiny")
    rows = sequences(8 * setup.batch_size, 30_522, setup.length)
    with tempfile.TemporaryDirectory() as work:
        write_model(setup, Path(work))
        run = BertieRunner(Path(work), Rows(rows, vocabulary(30_522), setup.batch_size), setup, "auto")
        measured = [run() for _ in range(int(sys.argv[1]))]
    print(json.dumps([sum(column) for column in zip(*measured, strict=True)]))


if __name__ == "__main__":
    main()
