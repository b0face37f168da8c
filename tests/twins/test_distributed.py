"""Several ranks train what one trains; when one is killed the others stop, and any number of them can go on."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from bertie.errors import UsageError
from nano import nano_fit, timeless

NANO = Path(__file__).parents[1] / "nano.py"


def start_ranks(run, *, ranks=2, per_rank=None, **options):
    """nano.py once per rank, as torchrun would start it; `per_rank`: options of single ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    processes = []
    for rank in range(ranks):
        environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
        given = json.dumps(options | (per_rank or {}).get(rank, {}))
        command = [sys.executable, str(NANO), str(run), given]
        processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    return processes


def finish(processes):
    """Wait for all -> (exit code, stderr) of each. The time limit is the bound that is promised."""
    errors = [process.communicate(timeout=120)[1] for process in processes]
    return [(process.returncode, error) for process, error in zip(processes, errors, strict=True)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    run = tmp_path_factory.mktemp("distributed") / "alone"
    nano_fit(run, dropout=0.0)
    return run


def assert_close_runs(one, other, step):
    """Equal but for the order of float32 sums, 12 updates on; samples, masks and counts are the same."""
    a, b = (load_file(run / f"checkpoint-{step}" / "model.safetensors") for run in (one, other))
    for name, tensor in a.items():
        assert (tensor - b[name]).abs().max() < 2e-4, name  # a wrong batch moves weights by the rate, 1e-3, a step
    lines = list(zip(timeless(one), timeless(other), strict=True))
    for ours, theirs in lines:
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
        assert ours.get("tokens") == theirs.get("tokens")


def test_two_ranks_train_what_one_trains(alone, tmp_path):
    ends = finish(start_ranks(tmp_path, dropout=0.0))
    assert [code for code, _ in ends] == [0, 0], ends
    assert_close_runs(alone, tmp_path, 12)
    assert "training" not in ends[1][1], "rank 1 speaks"


def test_three_ranks_lose_one_and_two_go_on(alone, tmp_path):
    """Shares of 2, 3 and 3 of the 8 sequences; then 4 and 4."""
    ends = finish(start_ranks(tmp_path, ranks=3, dropout=0.0, per_rank={2: {"kill_after": 7}}))
    assert [code for code, _ in ends] == [75, 75, -signal.SIGKILL], ends
    ends = finish(start_ranks(tmp_path, ranks=2, dropout=0.0, allow_change=["world_size"]))
    assert [code for code, _ in ends] == [0, 0], ends
    assert_close_runs(alone, tmp_path, 12)


def test_a_killed_rank_stops_the_other_and_one_alone_goes_on(alone, tmp_path):
    (code, error), (killed, _) = finish(start_ranks(tmp_path, dropout=0.0, per_rank={1: {"kill_after": 7}}))
    assert killed == -signal.SIGKILL
    assert code == 75
    assert "Rank 0 of 2 lost another rank" in error

    with pytest.raises(UsageError, match="world_size: 2 -> 1"):
        nano_fit(tmp_path, dropout=0.0)
    nano_fit(tmp_path, dropout=0.0, allow_change=["world_size"])
    assert_close_runs(alone, tmp_path, 12)
