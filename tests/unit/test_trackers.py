"""Trackers: what they are told, that a resumed run goes on in the same tracked run, and that a failure ends nothing.

The libraries' own clients run in their local or offline modes where they are installed; a fake one states the contract.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bertie.apps.track import trackers
from bertie.apps.track.trackers import MLflow, TensorBoard, Tracker, WandB
from bertie.errors import Stopped, UsageError
from bertie.train import log
from bertie.train.callbacks import TENSORBOARD, TRACK, TRACKERS, TrainingRun, callbacks_of
from nano import nano_fit, nano_train


class Fake(Tracker):
    """A tracker in memory. fails: the event at which its server is gone."""

    name, module, extra = "Fake", "json", "fake"

    def __init__(self, fails: str = "") -> None:
        super().__init__()
        self.fails, self.calls = fails, list[tuple[Any, ...]]()

    def _note(self, event: str, *values: Any) -> None:
        self.calls.append((event, *values))
        if event == self.fails:
            raise ConnectionError("no route\nto host")

    def _open(self, run: TrainingRun, id: str | None) -> str:
        self._note("open", id)
        assert run.settings["train.steps"] == 12
        return id or "first"

    def _log(self, values: Any, step: int) -> None:
        self._note("log", next(iter(values)).partition("/")[0], step)

    def _close(self, run: TrainingRun, scores: Any, artifacts: Any) -> None:
        self._note("close", sorted(artifacts))


def written(run: Path, *, stop_at: int = 0, tracker: Tracker) -> None:
    """One run, stopped by a signal after a step."""
    options = {"on_step": lambda step: os.kill(os.getpid(), signal.SIGTERM) if step == stop_at else None}

    def save(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text("{}")

    nano_fit(run, save_model=save, save_every=3, **plus(options, tracker))


def plus(options: dict[str, Any], tracker: Tracker) -> dict[str, Any]:
    from bertie.train.callbacks import EachStep

    return {"callbacks": [EachStep(options["on_step"]), tracker]}


LINES = [("log", "train", 4), ("log", "train", 8), ("log", "valid", 10), ("log", "train", 12), ("log", "valid", 12)]


def test_a_tracker_is_told_of_everything_once(tmp_path: Path) -> None:
    fake = Fake()
    written(tmp_path, tracker=fake)
    assert fake.calls == [("open", None), *LINES, ("close", ["model"])]
    assert json.loads((tmp_path / "track.json").read_text()) == {"fake": {"id": "first", "train": 12, "valid": 12}}


def test_a_resumed_run_goes_on_in_the_same_tracked_run(tmp_path: Path) -> None:
    before, after = Fake(), Fake()
    with pytest.raises(Stopped):
        written(tmp_path, stop_at=7, tracker=before)
    written(tmp_path, tracker=after)
    assert after.calls[0] == ("open", "first")
    assert before.calls[1:] + after.calls[1:-1] == LINES


@pytest.mark.parametrize("event", ["open", "log", "close"])
def test_a_tracker_that_fails_warns_once_and_the_run_goes_on(
    tmp_path: Path, event: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = Fake(fails=event)
    written(tmp_path, tracker=fake)
    err = " ".join(capsys.readouterr().err.split())
    assert err.count("Fake failed, and the run continues without it: no route to host") == 1
    assert [call[0] for call in fake.calls].count(event) == 1, "it is left alone from then on"
    assert [line["step"] for line in log.read_log(tmp_path)][-1] == 12


def test_a_missing_library_is_named_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (trackers.TRACK, trackers.TENSORBOARD) == (TRACK, TENSORBOARD)
    for name, kind in TRACKERS.items():
        kind = getattr(trackers, kind)
        assert kind.extra == name
        monkeypatch.setitem(sys.modules, kind.module, None)  # as if it were not installed
        with pytest.raises(UsageError, match=rf"is not installed. Install it: pip install 'bertie\[{name}\]'"):
            nano_fit(tmp_path / "run", track=(name,))
    assert not [*tmp_path.glob("run/metrics.jsonl")]


def test_settings_make_callbacks() -> None:
    pytest.importorskip("tensorboard")
    train = nano_train(patience=2, min_improvement=0.1, track=("tensorboard", "tensorboard"))
    board, stopping = callbacks_of(train, "macro_f1")
    assert isinstance(board, TensorBoard)
    assert (stopping.patience, stopping.metric, stopping.min_improvement) == (2, "macro_f1", 0.1)


def test_tensorboard_has_each_value_at_its_step(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with pytest.raises(Stopped):
        written(tmp_path, stop_at=7, tracker=TensorBoard())
    written(tmp_path, tracker=TensorBoard())
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("train/loss")] == [4, 8, 12]
    assert [event.step for event in events.Scalars("valid/loss")] == [10, 12]
    assert "settings/text_summary" in events.Tags()["tensors"]


def test_mlflow_has_settings_metrics_and_the_model(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    store = (tmp_path / "store").as_uri()
    with pytest.raises(Stopped):
        written(tmp_path / "run", stop_at=7, tracker=MLflow(store, experiment="e"))
    written(tmp_path / "run", tracker=MLflow(store, experiment="e"))
    client = mlflow.MlflowClient(store)
    experiment = client.get_experiment_by_name("e").experiment_id
    (run,) = client.search_runs([experiment])
    assert (run.info.status, run.info.run_name) == ("FINISHED", "run")
    assert run.data.params["train.steps"] == "12"
    steps = {name: [one.step for one in client.get_metric_history(run.info.run_id, name)] for name in run.data.metrics}
    assert steps["train/loss"] == [4, 8, 12]
    assert steps["valid/loss"] == [10, 12]
    assert "final/loss" in steps
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["model"]


def test_wandb_offline_keeps_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    with pytest.raises(Stopped):
        written(tmp_path / "run", stop_at=7, tracker=WandB("p"))
    written(tmp_path / "run", tracker=WandB("p"))
    folders = [*tmp_path.glob("wandb/offline-run-*")]
    assert {folder.name.rpartition("-")[2] for folder in folders} == {
        json.loads((tmp_path / "run/track.json").read_text())["wandb"]["id"]
    }


def test_trackio_has_each_value_at_its_step(tmp_path: Path) -> None:
    pytest.importorskip("trackio")
    code = f"""
import sys; sys.path[:0] = {sys.path!r}
from pathlib import Path
from bertie.errors import Stopped
from bertie.apps.track.trackers import Trackio
from test_trackers import written
try: written(Path({str(tmp_path)!r}) / "run", stop_at=7, tracker=Trackio("p"))
except Stopped: written(Path({str(tmp_path)!r}) / "run", tracker=Trackio("p"))
"""
    environment = {**os.environ, "TRACKIO_DIR": str(tmp_path / "store"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "failed" not in done.stderr, done.stderr
    with sqlite3.connect(next((tmp_path / "store").glob("*.db"))) as database:
        rows = database.execute("SELECT step, metrics FROM metrics ORDER BY step").fetchall()
    steps = [step for step, metrics in rows if "train/loss" in json.loads(metrics)]
    assert steps == [4, 8, 12]
