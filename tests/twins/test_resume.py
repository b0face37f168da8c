"""A run that was killed and resumed equals one that was not, byte for byte (P2)."""

import os
import random
import signal
import time

import pytest

from bertie.errors import Stopped, UsageError
from nano import assert_same_run, nano_fit, nano_model, timeless
from ranks import finish, start_ranks


def stop_at(*steps):
    return lambda step: os.kill(os.getpid(), signal.SIGTERM) if step in steps else None


def interrupted(run, at, **options):
    with pytest.raises(Stopped):
        nano_fit(run, on_step=stop_at(at), **options)


# 100 samples in batches of 8: the first epoch ends amid step 13. Warm-up lasts 20 % of the 20 steps.
CASES = {
    "in warm-up, between two log lines": ({}, [2]),
    "at the border of an epoch": ({}, [12, 13]),
    "twice": ({}, [7, 15]),
    "right after a checkpoint": ({}, [5, 10]),
    "with micro-batches": ({"micro_batch_size": 3}, [4, 9]),
    "before the last step": ({}, [19]),
    "in bf16": ({"precision": "bf16"}, [6]),
}


@pytest.mark.promise("unbroken-anywhere")
@pytest.mark.parametrize("case", CASES)
def test_stopped_and_resumed_is_unbroken(case, tmp_path):
    options, stops = CASES[case]
    options = {"steps": 20, "log_every": 3, **options}
    nano_fit(tmp_path / "unbroken", **options)
    for at in stops:
        interrupted(tmp_path / "broken", at, **options)
    nano_fit(tmp_path / "broken", **options)
    assert_same_run(tmp_path / "unbroken", tmp_path / "broken", 20)


def test_dropout_is_on_and_depends_on_the_seed(tmp_path):
    """Else the tests above would say nothing of it."""
    losses = []
    for seed, dropout in ((0, 0.1), (0, 0.0), (1, 0.1)):
        run = tmp_path / f"{seed}-{dropout}"
        model = nano_model(0, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
        nano_fit(run, model=model, steps=1, log_every=1, seed=seed)
        losses.append(timeless(run)[0]["mlm_loss"])
    assert len(set(losses)) == 3


def test_resuming_a_finished_run_changes_nothing(tmp_path):
    nano_fit(tmp_path)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    result = nano_fit(tmp_path)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    assert result.step == 12
    assert result.valid["step"] == 12


def test_never_refuses_a_folder_that_holds_a_run(tmp_path):
    nano_fit(tmp_path, steps=2)
    with pytest.raises(UsageError, match="contains a run"):
        nano_fit(tmp_path, steps=2, resume="never")


def test_a_checkpoint_can_start_a_run_of_its_own_but_not_rewrite_history(tmp_path):
    nano_fit(tmp_path / "a", keep=9)
    old = str(tmp_path / "a" / "checkpoint-5")
    with pytest.raises(UsageError, match="mix two runs"):
        nano_fit(tmp_path / "a", resume=old)
    nano_fit(tmp_path / "b", resume=old)
    assert_same_run(tmp_path / "a", tmp_path / "b", 12)
    with pytest.raises(UsageError, match="other settings or data"):
        nano_fit(tmp_path / "c", resume=old, lr=2e-3)
    assert not (tmp_path / "c" / "metrics.jsonl").exists()
    with pytest.raises(UsageError, match="Pass auto, never, or"):
        nano_fit(tmp_path / "c", resume="nver")
    nano_fit(tmp_path / "b", resume=old)  # the same command: the run goes on from its own newest checkpoint
    nano_fit(tmp_path / "d", lr=2e-3)
    with pytest.raises(UsageError, match="its own checkpoints"):
        nano_fit(tmp_path / "d", resume=old)
    with pytest.raises(UsageError, match="beyond the last step"):
        nano_fit(tmp_path / "a", steps=6, allow_change=["train.steps"])


@pytest.mark.promise("unbroken-after-kill")
def test_killed_with_kill_9_and_resumed_is_unbroken(tmp_path):
    nano_fit(tmp_path / "unbroken", steps=20)
    for step in (8, 16):
        ends = finish(start_ranks(tmp_path / "killed", ranks=1, steps=20, kill_after=step))
        assert [code for code, _ in ends] == [-signal.SIGKILL], ends
    assert (tmp_path / "killed" / "checkpoint-15").is_dir()
    nano_fit(tmp_path / "killed", steps=20)
    assert_same_run(tmp_path / "unbroken", tmp_path / "killed", 20)


@pytest.mark.promise("unbroken-after-kill")
@pytest.mark.slow
def test_killed_ten_times_at_random_moments_is_unbroken(tmp_path):
    """Also amid a save or a line of metrics; each kill comes at a random time after the run has got a bit further."""
    chance = random.Random(0)
    killed, options = tmp_path / "killed", {"steps": 60, "log_every": 1}
    metrics = killed / "metrics.jsonl"
    kills = 0
    while kills < 10:
        before = checkpoints(killed)
        (rank,) = start_ranks(killed, ranks=1, **options)
        while rank.process.is_alive() and checkpoints(killed) == before:  # it gets on, or there were no end
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.1))
        rank.process.kill()
        finish([rank])
        kills += 1
        if before and max(before) >= 55:
            break
    assert metrics.exists()
    nano_fit(killed, **options)
    nano_fit(tmp_path / "unbroken", **options)
    assert kills == 10
    assert_same_run(tmp_path / "unbroken", killed, 60)


def checkpoints(run):
    return {int(path.name.removeprefix("checkpoint-")) for path in run.glob("checkpoint-*")}
