"""How long threads spin: short next to a busy program, chosen before torch is there; measured alone and next to it."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks import neighbor
from bertie import process


@pytest.fixture
def running(monkeypatch, tmp_path):
    """A machine of 4 processors: running(n, ...) sets how many threads run at each look."""
    monkeypatch.setattr(process, "LOAD", tmp_path / "loadavg")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    for name in (*process.CHOSEN, "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)

    def set_looks(*counts):
        looks = iter(counts)

        def write(*_):
            (tmp_path / "loadavg").write_text(f"0.00 0.00 0.00 {next(looks)}/90 7\n")

        write()
        monkeypatch.setattr(process.time, "sleep", write)

    return set_looks


@pytest.mark.parametrize(
    ("looks", "own", "busy"),
    [
        ((1, 1, 1, 1), None, False),  # this program alone
        ((3, 3, 3, 3), None, True),  # two threads of others, and four of its own on four processors
        ((3, 1, 3, 3), None, False),  # they were a job of a moment
        ((3, 3, 3, 3), "2", False),  # there are cores for all
        ((4, 4, 4, 4), "2", True),
    ],
)
def test_threads_spin_briefly_where_others_are_busy(running, monkeypatch, looks, own, busy):
    running(*looks)
    if own:
        monkeypatch.setenv("OMP_NUM_THREADS", own)
    process.spin_briefly()
    assert os.environ.get(process.SPINS) == (process.BRIEF if busy else None)


def test_what_the_user_chose_stays(running, monkeypatch):
    running(9, 9, 9, 9)
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    process.spin_briefly()
    assert process.SPINS not in os.environ
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setenv(process.SPINS, "7")
    process.spin_briefly()
    assert os.environ[process.SPINS] == "7"


def test_a_part_of_the_machine_tells_nothing(running, monkeypatch, tmp_path):
    running(9, 9, 9, 9)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert not process.busy()
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(process, "LOAD", tmp_path / "nothing")
    assert not process.busy()


def test_it_is_chosen_before_torch_is_there():
    program = "import sys; from benchmarks import neighbor; from bertie import program; "
    program += "program.spin_briefly = lambda: print('torch' in sys.modules); program.run(lambda: None)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_shares_are_of_the_first_value_alone_round_by_round(benchmarks, monkeypatch, tmp_path):
    tokens = iter([100.0, 40.0, 90.0, 50.0, 200.0, 60.0, 200.0, 110.0])
    monkeypatch.setattr(neighbor, "_trained", lambda count, where, repeats: (next(tokens), 1.0))
    out = benchmarks.good("neighbor", "--spins", "default,10", "--rounds", "2", "-o", tmp_path / "rows.jsonl")
    first, second = map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines())
    assert (first["spins"], second["spins"]) == ("default", "10")
    assert first["busy"]["share"] == pytest.approx({"median": 0.35, "low": 0.3, "high": 0.4})
    assert second["alone"]["share"] == pytest.approx({"median": 0.95, "low": 0.9, "high": 1.0})
    assert "95% (90% to 100%)" in " ".join(out.split())


def test_a_neighbor_is_there_and_goes(monkeypatch):
    monkeypatch.setattr(neighbor, "BUSY", "import time; time.sleep(60)")
    started = []
    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: started.append(real(*a, **k)) or started[-1])
    with neighbor._neighbor(2):
        assert [process.poll() for process in started] == [None, None]
    assert all(process.poll() is not None for process in started)


def test_what_is_no_count_is_named(benchmarks):
    code, _, err = benchmarks("neighbor", "--spins", "many")
    assert (code, "list of whole numbers" in " ".join(err.split())) == (2, True)
