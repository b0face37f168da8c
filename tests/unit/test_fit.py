"""`fit` around the arithmetic: what is written, signals, faults, identity."""

import errno
import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from filelock import FileLock

from bertie.errors import DataError, Diverged, Stopped, UsageError
from bertie.train import log
from bertie.train.loop import temporary_run
from bertie.train.prefetch import ahead
from nano import NanoSource, assert_same_run, nano_fit, nano_model


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """A run of 12 steps nothing happened to."""
    run = tmp_path_factory.mktemp("fit") / "run"
    nano_fit(run, save_model=lambda folder: folder.mkdir())
    return run


def send(number, at):
    """An `on_step` that sends this process a signal after step `at`."""
    return lambda step: os.kill(os.getpid(), number) if step == at else None


def test_a_run_folder_holds_metrics_the_last_checkpoints_and_the_model(unbroken):
    assert {path.name for path in unbroken.iterdir()} >= {"metrics.jsonl", "checkpoint-10", "checkpoint-12", "model"}
    assert not (unbroken / "checkpoint-5").exists()
    lines = log.read_log(unbroken)
    assert [(line["kind"], line["step"]) for line in lines] == [
        ("train", 4),
        ("train", 8),
        ("valid", 10),
        ("train", 12),
        ("valid", 12),
    ]
    first = lines[0]
    assert first["loss"] == pytest.approx(first["mlm_loss"] + first["nsp_loss"])
    assert first["mlm_loss"] == pytest.approx(np.log(1000), rel=0.05)  # an untrained model knows nothing
    assert 0 <= first["mlm_accuracy"] <= first["nsp_accuracy"] <= 1
    assert first["tokens"] == sum(batch.tokens for step in range(4) for batch in NanoSource().batches(step))
    assert first["tokens_per_s"] > 0
    assert first["lr"] == pytest.approx(1e-3 * 9 / 11)
    assert lines[-2]["loss"] < first["loss"]


def test_a_line_is_the_mean_over_predictions_not_over_steps(tmp_path):
    """Twin: the loss of untouched weights, computed at once over all batches of the window."""
    source, model = NanoSource(), nano_model(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    batches = [batch for step in range(4) for batch in source.batches(step)]
    with torch.no_grad():
        reports = [source.objective.loss(model, model.encode(batch), batch) for batch in batches]
    expected = {
        name: sum(float(r[name].total) for r in reports) / sum(r[name].count for r in reports)
        for name in ("mlm", "nsp")
    }
    nano_fit(tmp_path, model=model, source=source, steps=4, lr=1e-30)
    line = log.read_log(tmp_path)[0]
    assert line["mlm_loss"] == pytest.approx(expected["mlm"], rel=1e-5)
    assert line["nsp_loss"] == pytest.approx(expected["nsp"], rel=1e-5)


@pytest.mark.promise("workers-change-nothing")
def test_any_number_of_workers_gives_the_same_run(unbroken, tmp_path):
    for workers in (0, 2):
        nano_fit(tmp_path / str(workers), workers=workers)
        assert_same_run(unbroken, tmp_path / str(workers), 12)


def test_batches_come_in_order_and_faults_in_their_turn():
    def make(number):
        if number == 7:
            raise DataError("shard 7")
        return number

    for workers in (0, 1, 3):
        made = ahead(make, 2, 20, workers)
        assert [next(made) for _ in range(5)] == [2, 3, 4, 5, 6]
        with pytest.raises(DataError, match="shard 7"):
            next(made)


def test_workers_have_one_torch_thread_and_others_as_many_as_before():
    """Torch gives threads that start later what was last set in any thread."""
    before = torch.get_num_threads()

    def of_a_new_thread():
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(torch.get_num_threads).result()

    torch.set_num_threads(3)
    try:
        made = ahead(lambda number: torch.get_num_threads(), 0, 20, 2)
        assert next(made) == 1
        assert (torch.get_num_threads(), of_a_new_thread()) == (3, 3)
        assert set(made) == {1}
        assert (torch.get_num_threads(), of_a_new_thread()) == (3, 3)
    finally:
        torch.set_num_threads(before)


def test_the_callers_random_numbers_are_left_alone(tmp_path):
    torch.manual_seed(3)
    expected = torch.rand(2)
    model = nano_model()
    torch.manual_seed(3)
    nano_fit(tmp_path, model=model, steps=2)
    assert torch.equal(torch.rand(2), expected)


def test_the_model_is_left_in_the_mode_and_precision_it_came_in(tmp_path):
    model = nano_model().eval()
    modes = []
    nano_fit(
        tmp_path,
        model=model,
        steps=2,
        precision="bf16",
        evaluate=lambda step: modes.append((model.training, model.compute_dtype)) or {},
        on_step=lambda step: modes.append((model.training, model.compute_dtype)),
    )
    assert modes == [(True, torch.bfloat16), (True, torch.bfloat16), (False, torch.bfloat16)]
    assert (model.training, model.compute_dtype) == (False, None)
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


# Signals -------------------------------------------------------------------------------------------------------------


@pytest.mark.promise("signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_step_saves_and_resumes_equal(unbroken, tmp_path, number):
    before = signal.getsignal(number)
    with pytest.raises(Stopped, match=f"{number.name} after step 7.*checkpoint-7 is saved") as caught:
        nano_fit(tmp_path, on_step=send(number, at=7))
    assert caught.value.exit_code == 75
    assert signal.getsignal(number) is before
    assert (tmp_path / "checkpoint-7").is_dir()
    nano_fit(tmp_path)
    assert_same_run(unbroken, tmp_path, 12)


def test_a_run_from_a_checkpoint_of_another_one_is_resumed_by_the_same_call(unbroken, tmp_path):
    branch, start = tmp_path / "branch", {"resume": str(unbroken / "checkpoint-10")}
    with pytest.raises(Stopped, match="The same command resumes from it"):
        nano_fit(branch, on_step=send(signal.SIGTERM, at=11), **start)
    nano_fit(branch, **start)
    assert_same_run(branch, unbroken, 12)
    other = tmp_path / "other"
    nano_fit(other)
    with pytest.raises(UsageError, match="has its own checkpoints"):
        nano_fit(other, **start)


def test_a_temporary_run_that_is_stopped_names_no_checkpoint():
    with pytest.raises(Stopped) as caught, temporary_run() as run:
        nano_fit(run, on_step=send(signal.SIGTERM, at=6))
    assert str(caught.value) == "SIGTERM after step 6. Run the same command again."
    assert not run.exists()


@pytest.mark.promise("signals")
def test_a_second_ctrl_c_interrupts_at_once_and_the_last_checkpoint_stands(unbroken, tmp_path):
    def twice(step):
        if step == 7:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        nano_fit(tmp_path, on_step=twice)
    assert not (tmp_path / "checkpoint-7").exists()
    nano_fit(tmp_path)
    assert_same_run(unbroken, tmp_path, 12)


def test_it_runs_outside_the_main_thread(tmp_path):
    thread = threading.Thread(target=nano_fit, args=(tmp_path,), kwargs={"steps": 2})
    thread.start()
    thread.join()
    assert (tmp_path / "checkpoint-2").is_dir()


# Faults --------------------------------------------------------------------------------------------------------------


@pytest.mark.promise("not-a-number")
@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_loss_that_is_no_number_stops_and_names_step_and_samples(tmp_path, where):
    model = nano_model()

    def poison(step):
        if step == 7 and where == "loss":
            with torch.no_grad():
                model.encoder.embeddings.word.weight[2] = float("nan")
        elif step == 7:
            model.heads["mlm"].bias.register_hook(lambda grad: grad * float("inf"))

    source = NanoSource()
    samples = source.batches(7)[0].sample_ids.tolist()
    with pytest.raises(Diverged) as caught:
        nano_fit(tmp_path, model=model, source=source, save_every=1, keep=20, on_step=poison)
    assert "Step 8" in str(caught.value)
    assert ", ".join(map(str, samples)) in str(caught.value)
    assert caught.value.exit_code == 1
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == {f"checkpoint-{n}" for n in range(1, 8)}


def test_an_evaluation_whose_loss_is_no_number_stops_before_the_weights_are_saved(tmp_path):
    with pytest.raises(Diverged, match="Step 10: the loss of the evaluation is not a finite number"):
        nano_fit(tmp_path, evaluate=lambda step: {"loss": float("nan")})
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == {"checkpoint-5"}
    assert "NaN" not in (tmp_path / "metrics.jsonl").read_text()


def test_an_error_of_the_source_ends_the_run(tmp_path):
    class Broken(NanoSource):
        def batches(self, step, *, rank=0, world=1):
            if step == 6:
                raise DataError("shard-00003 is damaged")
            return super().batches(step, rank=rank, world=world)

    with pytest.raises(DataError, match="shard-00003"):
        nano_fit(tmp_path, source=Broken())
    assert (tmp_path / "checkpoint-5").is_dir()


@pytest.mark.promise("full-disk")
def test_a_disk_that_is_full_when_metrics_are_written_stops_the_run(tmp_path, monkeypatch):
    class FullFile:
        def __init__(self, file):
            self.file = file

        def write(self, data):
            if b'"step": 8' in data:
                raise OSError(errno.ENOSPC, "No space left on device")
            return self.file.write(data)

        def close(self):  # what the buffer still has is written again
            self.file.close()
            raise OSError(errno.ENOSPC, "No space left on device")

        def __getattr__(self, name):
            return getattr(self.file, name)

    def opened(path, mode):
        file = open(path, mode)  # noqa: SIM115
        return FullFile(file) if mode == "ab" else file

    monkeypatch.setattr(log, "open", opened, raising=False)
    with pytest.raises(Stopped, match=r"disk is full: .*metrics.jsonl") as caught:
        nano_fit(tmp_path)
    assert caught.value.exit_code == 75
    assert (tmp_path / "checkpoint-5").is_dir()


def test_two_processes_do_not_train_in_one_folder(tmp_path):
    with FileLock(tmp_path / ".lock"), pytest.raises(UsageError, match="Another process is training"):
        nano_fit(tmp_path)


# Identity ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def stopped(tmp_path):
    run = tmp_path / "run"
    with pytest.raises(Stopped):
        nano_fit(run, on_step=send(signal.SIGTERM, at=6), identity={"tokenizer": "t1", "corpus": "c1"})
    return run


@pytest.mark.promise("changed-settings")
@pytest.mark.parametrize(
    ("change", "row"),
    [
        ({"lr": 2e-3}, r"optim.lr: 0.001 -> 0.002"),
        ({"steps": 20}, r"train.steps: 12 -> 20"),
        ({"precision": "bf16"}, r"train.precision: float32 -> bfloat16"),
        ({"identity": {"tokenizer": "t2", "corpus": "c1"}}, r"tokenizer: t1 -> t2"),
        ({"identity": {"tokenizer": "t1", "corpus": "c2"}}, r"corpus: c1 -> c2"),
        ({"source": NanoSource(fingerprint="other")}, r"source: nano -> other"),
    ],
)
def test_a_run_with_other_settings_or_data_is_refused_with_the_difference(stopped, change, row):
    before = (stopped / "metrics.jsonl").read_bytes()
    with pytest.raises(UsageError, match=row) as caught:
        nano_fit(stopped, **({"identity": {"tokenizer": "t1", "corpus": "c1"}} | change))
    assert f"--allow-change {row.partition(':')[0]}" in str(caught.value)
    assert (stopped / "metrics.jsonl").read_bytes() == before


@pytest.mark.promise("changed-settings")
def test_a_change_that_is_allowed_by_key_goes_on(stopped):
    known = {"tokenizer": "t1", "corpus": "c1"}
    with pytest.raises(UsageError, match=r"there is no such setting. Did you mean 'optim.lr'"):
        nano_fit(stopped, lr=2e-3, allow_change=["optim.lrr"], identity=known)
    nano_fit(stopped, lr=2e-3, steps=14, allow_change=["optim", "train.steps"], identity=known)
    assert log.read_log(stopped)[-1]["step"] == 14
    state = json.loads((stopped / "checkpoint-14" / "state.json").read_text())
    assert state["identity"]["optim.lr"] == 2e-3


def test_what_changes_no_number_may_change(stopped):
    nano_fit(stopped, keep=5, workers=2, save_every=2, log_every=1, identity={"tokenizer": "t1", "corpus": "c1"})
    assert len(list(stopped.glob("checkpoint-*"))) == 5  # 4 were made: 6, 8, 10, 12
