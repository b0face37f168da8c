"""Programs started once per rank, as torchrun would, on a port of their own."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
NANO = TESTS / "nano.py"
_PATH = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
BOUND_S = 300.0  # in which a few steps are made, and ranks end that lost one; generous, since machines are shared


def start_ranks(
    run: Path,
    *,
    ranks: int = 2,
    program: Path = NANO,
    per_rank: Mapping[int, Mapping[str, Any]] | None = None,
    **options: Any,
) -> list[subprocess.Popen[str]]:
    """`python PROGRAM RUN OPTIONS` for every rank; per_rank: options of single ranks, `run` may be one of them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    processes = []
    for rank in range(ranks):
        environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "PYTHONPATH": _PATH}
        environment |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
        given = options | dict((per_rank or {}).get(rank, {}))
        command = [sys.executable, str(program), str(given.pop("run", run)), json.dumps(given)]
        processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    return processes


def finish(processes: list[subprocess.Popen[str]], *, within_s: float = BOUND_S) -> list[tuple[int, str]]:
    """Wait for all -> (exit code, stderr) of each. The time limit is the bound that is promised."""
    try:
        errors = [process.communicate(timeout=within_s)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()  # none outlives a test that failed
    return [(process.returncode, error) for process, error in zip(processes, errors, strict=True)]
