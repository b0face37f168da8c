"""Callbacks: what they see, how one ends a run, and that an early end survives being killed."""

from collections.abc import Mapping
from pathlib import Path

import pytest

import bertie
from bertie.errors import UsageError
from bertie.train import checkpoint, log
from bertie.train.callbacks import Callback, EarlyStopping, StopTraining, TrainingRun, improves
from nano import assert_same_run, nano_fit


class Events(Callback):
    """Notes every event; stops after a step."""

    def __init__(self, stop_at: int = 0) -> None:
        self.seen: list[tuple[str, int]] = []
        self.stop_at = stop_at

    def on_start(self, run: TrainingRun) -> None:
        self.seen.append(("start", run.step))

    def on_step(self, run: TrainingRun, step: int, metrics: Mapping[str, float]) -> None:
        self.seen.append(("line" if metrics else "step", step))
        if step == self.stop_at:
            raise StopTraining("enough")

    def on_evaluate(self, run: TrainingRun, step: int, scores: Mapping[str, float]) -> None:
        assert "loss" in scores
        self.seen.append(("evaluate", step))

    def on_end(self, run: TrainingRun, result: Mapping[str, object]) -> None:
        assert isinstance(result["step"], int)
        self.seen.append(("end", result["step"]))


def test_callbacks_see_every_step_and_evaluation_in_order(tmp_path: Path) -> None:
    events = Events()
    nano_fit(tmp_path, callbacks=[events])  # 12 steps, lines every 4, evaluations every 10
    assert events.seen == [
        ("start", 0),
        *(("line" if step % 4 == 0 else "step", step) for step in range(1, 11)),
        ("evaluate", 10),
        ("step", 11),
        ("line", 12),
        ("evaluate", 12),
        ("end", 12),
    ]


def test_a_callback_ends_a_run_well_and_the_others_see_it(tmp_path: Path) -> None:
    events = Events()
    result = nano_fit(
        tmp_path, callbacks=[Events(stop_at=6), events], save_model=lambda folder: folder.mkdir(parents=True)
    )
    assert (result.step, result.reason) == (6, "enough")
    assert events.seen[-3:] == [("step", 6), ("evaluate", 6), ("end", 6)]
    assert [(line["kind"], line["step"]) for line in log.read_log(tmp_path)] == [
        ("train", 4),
        ("train", 6),
        ("valid", 6),
    ]
    newest = checkpoint.latest(tmp_path)
    assert newest is not None
    assert newest.step == 6
    assert (tmp_path / "model").is_dir()


def scores_of(*losses: float) -> tuple[object, dict[int, float]]:
    """An `evaluate` with chosen losses at steps 2, 4, 6 ..."""
    table = {2 * (number + 1): loss for number, loss in enumerate(losses)}
    return (lambda step: {"loss": table[step], "accuracy": 1 - table[step]}), table


@pytest.mark.parametrize("killed", [None, 5, 7])
def test_early_stopping_counts_the_evaluations_before_a_kill(tmp_path: Path, killed: int | None) -> None:
    evaluate, _ = scores_of(0.9, 0.5, 0.6, 0.5, 0.4, 0.3)
    options = {"eval_every": 2, "save_every": 1, "patience": 2, "evaluate": evaluate, "keep": 9}
    if killed:
        with pytest.raises(ZeroDivisionError):
            nano_fit(tmp_path / "run", on_step=lambda step: 1 / (killed - step), **options)
    result = nano_fit(tmp_path / "run", **options)
    assert result.step == 8, "0.5 of step 4 was not improved on at 6 and 8"
    assert "loss did not improve on 0.5 for 2 evaluations" in result.reason
    nano_fit(tmp_path / "whole", **options)
    assert_same_run(tmp_path / "run", tmp_path / "whole", 8)
    again = nano_fit(tmp_path / "run", **options)  # as after a kill between the last checkpoint and the results
    assert (again.step, [line["step"] for line in log.read_log(tmp_path / "run") if line["kind"] == "valid"]) == (
        8,
        [2, 4, 6, 8],
    )


def test_what_counts_as_an_improvement() -> None:
    assert improves("accuracy", 0.6, None)
    assert improves("accuracy", 0.6, 0.5)
    assert not improves("accuracy", 0.5, 0.5)
    assert improves("mlm_loss/wiki", 0.4, 0.5)
    assert not improves("accuracy", 0.505, 0.5, by=0.01)
    assert not improves("accuracy", float("nan"), None)


def test_wrong_callbacks_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="callbacks has the class EarlyStopping; objects with on_start"):
        nano_fit(tmp_path / "a", callbacks=[EarlyStopping])
    with pytest.raises(UsageError, match="callbacks has a function"):
        nano_fit(tmp_path / "b", callbacks=[lambda step: None])
    with pytest.raises(UsageError, match="patience is 0"):
        EarlyStopping(0)
    with pytest.raises(UsageError, match="min_improvement is -1"):
        EarlyStopping(min_improvement=-1)
    with pytest.raises(UsageError, match=r"has no metric 'acuracy'.*Choices: loss, mlm_accuracy"):
        nano_fit(tmp_path / "c", callbacks=[EarlyStopping(metric="acuracy")], eval_every=2)


def test_any_object_with_the_four_events_is_a_callback(tmp_path: Path) -> None:
    class Own:
        on_start = on_step = on_evaluate = on_end = staticmethod(lambda *_: None)

    assert nano_fit(tmp_path, callbacks=[Own()]).step == 12
    assert {"Callback", "EarlyStopping", "StopTraining"} <= {*bertie.__all__}
