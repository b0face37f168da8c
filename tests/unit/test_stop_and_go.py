"""`bertie pretrain` in a process of its own: told to stop it exits with 75, and the same command finishes the run."""

import signal
import subprocess
import sys
import time

import pytest
from test_pretrain import home, settings, thread

from bertie import settings as configs
from bertie.runs.verify import verify
from nano import timeless

assert home
assert thread  # fixtures

STEPS = 120


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_stopped_by_a_signal_it_exits_with_75_and_goes_on(home, tmp_path, number):
    config = tmp_path / "nano.yaml"
    overrides = [f"train.steps={STEPS}", "train.log_every=10", "train.save_every=20", "train.eval_every=60"]
    configs.save(settings(home, *overrides, "train.precision=fp32"), config)
    run = tmp_path / "run"
    command = [sys.executable, "-m", "bertie", "pretrain", "-c", str(config), "-o", str(run), "-q"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    deadline = time.monotonic() + 120
    while not list(run.glob("checkpoint-*")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    error = process.communicate(timeout=120)[1]
    assert process.returncode == 75, error
    assert f"{number.name} after step" in error.replace("\n", " ")
    assert subprocess.run(command, timeout=240, capture_output=True).returncode == 0
    assert timeless(run)[-1]["step"] == STEPS
    assert verify(run)["ok"]
