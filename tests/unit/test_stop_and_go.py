"""`bertie pretrain` in a process of its own: told to stop it exits with 75, and the same command finishes the run."""

import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest
from test_pretrain import home, settings, thread

from bertie import settings as configs
from bertie.runs.verify import verify_folder
from nano import timeless

assert home
assert thread  # fixtures

STEPS = 120


def pretraining(home, folder):
    overrides = [f"train.steps={STEPS}", "train.log_every=10", "train.save_every=20", "train.eval_every=60"]
    configs.save_settings(settings(home, *overrides, "train.precision=fp32"), folder / "nano.yaml")
    return [sys.executable, "-m", "bertie", "pretrain", "-c", str(folder / "nano.yaml"), "-o", str(folder / "run")]


def wait_for_a_checkpoint(process, run, terminal=None):
    deadline = time.monotonic() + 120
    while not list(run.glob("checkpoint-*")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
        while terminal is not None and select.select([terminal], [], [], 0)[0]:
            os.read(terminal, 1 << 16)  # or the progress bar would wait


def test_a_closed_terminal_stops_it_with_a_checkpoint(home, tmp_path):
    run, command = tmp_path / "run", pretraining(home, tmp_path)
    ours, theirs = pty.openpty()
    take = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", take, *command], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    wait_for_a_checkpoint(process, run, ours)
    last = max(int(folder.name.partition("-")[2]) for folder in run.glob("checkpoint-*"))
    os.close(ours)
    assert process.wait(timeout=120) == 75
    assert max(int(folder.name.partition("-")[2]) for folder in run.glob("checkpoint-*")) >= last
    assert subprocess.run(command, timeout=240, capture_output=True).returncode == 0
    assert verify_folder(run).ok


@pytest.mark.promise("signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_stopped_by_a_signal_it_exits_with_75_and_goes_on(home, tmp_path, number):
    run, command = tmp_path / "run", pretraining(home, tmp_path)
    process = subprocess.Popen([*command, "-q"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    wait_for_a_checkpoint(process, run)
    process.send_signal(number)
    error = process.communicate(timeout=120)[1]
    assert process.returncode == 75, error
    assert f"{number.name} after step" in error.replace("\n", " ")
    assert subprocess.run(command, timeout=240, capture_output=True).returncode == 0
    assert timeless(run)[-1]["step"] == STEPS
    assert verify_folder(run).ok
