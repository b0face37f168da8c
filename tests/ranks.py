"""Programs started once per rank, as torchrun would, on a port of their own.

Ranks are forked from a server that has imported torch and our packages, which takes longer than such runs themselves.
"""

import json
import multiprocessing
import os
import runpy
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
NANO = TESTS / "nano.py"
BOUND_S = 300.0  # in which a few steps are made, and ranks end that lost one; generous, since machines are shared
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["torch.distributed", "bertie.models.families", "bertie.objectives", "bertie.train.loop"])


@dataclass(frozen=True)
class Rank:
    """A rank that runs, and the file that its standard error goes to."""

    process: BaseProcess
    errors: Path


def start_ranks(
    run: Path,
    *,
    ranks: int = 2,
    program: Path = NANO,
    per_rank: Mapping[int, Mapping[str, Any]] | None = None,
    **options: Any,
) -> list[Rank]:
    """`python PROGRAM RUN OPTIONS` for every rank; per_rank: options of single ranks, `run` may be one of them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    errors, started = Path(tempfile.mkdtemp(prefix="ranks-")), []
    for rank in range(ranks):
        environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
        given = options | dict((per_rank or {}).get(rank, {}))
        arguments = [str(program), str(given.pop("run", run)), json.dumps(given)]
        one = Rank(
            SERVER.Process(target=_run, args=(arguments, environment, str(errors / str(rank)))), errors / str(rank)
        )
        one.process.start()
        started.append(one)
    return started


def _run(arguments: list[str], environment: dict[str, str], errors: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
    sys.argv = arguments
    sys.path.insert(0, str(TESTS))
    runpy.run_path(arguments[0], run_name="__main__")


def finish(ranks: list[Rank], *, within_s: float = BOUND_S) -> list[tuple[int | None, str]]:
    """Wait for all -> (exit code, stderr) of each. The time limit is the bound that is promised."""
    try:
        for rank in ranks:
            rank.process.join(within_s)
            assert rank.process.exitcode is not None, f"a rank still runs after {within_s} s: {rank.errors.read_text()}"
        return [(rank.process.exitcode, rank.errors.read_text()) for rank in ranks]
    finally:
        for rank in ranks:
            rank.process.kill()  # none outlives a test that failed
        shutil.rmtree(ranks[0].errors.parent)
