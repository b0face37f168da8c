"""Forecasts of runs from a trial: what is counted, stored, interrupted, and shown next to the measurement."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from test_cli_finetune import model, train
from test_cli_finetune import settings as finetune_settings
from test_pretrain import home, settings, thread

from bertie import settings as configs
from bertie.errors import Stopped
from bertie.runs import finetune_assess, finetune_train, forecast, trial
from bertie.runs.config import FinetuneConfig
from bertie.runs.examples import read_examples
from bertie.runs.finetune import plan_finetuning as finetune_plan
from bertie.runs.finetune import run_finetune
from bertie.runs.finetune_prepare import Labeled, prepare_run, with_steps
from bertie.runs.forecast import forecast_of
from bertie.runs.pretrain import plan_pretraining, run_pretrain
from bertie.runs.pretraining import PreparedRun
from bertie.runs.work import finetuning_work, pretraining_work
from bertie.train import checkpoint, log
from toys import toy_model

assert home
assert model
assert thread
assert train  # fixtures

PHASES = "phases=[{steps: 4, max_length: 16}, {batch_size: 4}]"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(trial, "_MAX_STEPS", 12)  # steps of a phase: enough for what is tested here
    return tmp_path / "cache" / "bertie" / trial.TRIALS


def same(one: Any, other: Any) -> bool:
    """Whether two forecasts are of one trial. The formula adds the memory of the process, which changes."""
    return {**one, "computed_bytes": 0} == {**other, "computed_bytes": 0}


def work_of(home: Path, *overrides: str) -> Any:
    ready = PreparedRun(settings(home, *overrides))
    return pretraining_work(ready, ready.model())


@pytest.mark.parametrize("phases", [(), (PHASES,)])
def test_evaluations_and_checkpoints_are_counted_as_they_happen(
    home: Path, tmp_path: Path, phases: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    every = ("train.steps=7", "train.eval_every=3", "train.save_every=2", *phases)
    saved = []
    save = checkpoint.save_checkpoint
    monkeypatch.setattr(
        checkpoint, "save_checkpoint", lambda *given, **named: saved.append(given) or save(*given, **named)
    )
    work = work_of(home, *every)
    run_pretrain(settings(home, *every), tmp_path / "run")
    assert work.saves == len(saved)
    assert sum(phase.looks for phase in work.phases) == sum(
        line["kind"] == "valid" for line in log.read_log(tmp_path / "run")
    )


def test_the_plan_has_a_forecast_which_the_run_shows(home: Path, tmp_path: Path, cache: Path) -> None:
    config = settings(home, PHASES, "train.steps=8")
    without = plan_pretraining(config, trial=0)["forecast"]
    assert "without a trial" in without["source"]
    assert not cache.exists()
    found = plan_pretraining(config, trial=0.5)["forecast"]
    assert found["seconds"] == pytest.approx(sum(found["parts"].values()))
    assert found["low_s"] <= found["seconds"] <= found["high_s"] * 1.5
    assert found["peak_bytes"] > 50e6
    for again in (config, settings(home, PHASES, "train.steps=8", "optim.lr=1e-3")):
        assert same(plan_pretraining(again)["forecast"], found), "the stored trial is used"
    longer = plan_pretraining(settings(home, PHASES, "train.steps=80", "train.eval_every=40"), trial=0)["forecast"]
    assert longer["source"] == found["source"]
    assert longer["parts"]["steps"] > 5 * found["parts"]["steps"]
    assert (
        "without"
        in plan_pretraining(settings(home, PHASES, "train.batch_size=16", "train.steps=8"), trial=0)["forecast"][
            "source"
        ]
    )
    results = run_pretrain(config, tmp_path / "run")
    assert same(results["forecast"], found)
    html = (tmp_path / "run" / "report.html").read_text()
    assert "difference" in html
    assert "steps tried on this machine" in html


def test_a_trial_that_is_interrupted_gives_no_forecast(
    home: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*given: Any, **named: Any) -> None:
        raise Stopped("SIGINT")

    monkeypatch.setattr(trial, "fit", stop)
    planned = plan_pretraining(settings(home))
    assert "forecast" not in planned
    assert planned["steps"] == 6
    assert not cache.exists()


def test_a_damaged_store_is_made_again(home: Path, cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text("[1, 2")
    assert plan_pretraining(settings(home))["forecast"]["source"].startswith("from")
    assert plan_pretraining(settings(home), trial=0)["forecast"]["source"].startswith("from 3 steps")


def test_a_step_that_takes_too_long_is_tried_with_fewer_sequences(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = work_of(home, "train.batch_size=16", "train.micro_batch_size=4", "train.steps=12")
    direct = trial.measure_trial(work, 5.0)
    monkeypatch.setattr(trial, "GUESSED", 1e-7)
    fewer = trial.measure_trial(work, 5.0)
    assert direct is not None
    assert fewer is not None
    assert direct.phases[0].sequences == 16
    assert fewer.phases[0].sequences < 16
    assert fewer.phases[0].step_s > 0
    phase = work.phases[0]
    sizes = {trial._tried_sequences(phase, seconds, trial.precision.choose_device("cpu")) for seconds in range(1, 60)}
    assert all(size <= 4 or size % 4 == 0 for size in sizes), "whole micro-batches"


def test_the_formula_of_the_memory_is_told_too(home: Path) -> None:
    found = forecast_of(work_of(home), 0)
    assert found is not None
    assert found.peak_bytes == found.computed_bytes > 50e6


def test_without_a_trial_a_gpu_has_a_range(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = work_of(home)
    monkeypatch.setattr(forecast.precision, "choose_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100 80GB HBM3")
    found = forecast._from_rates(work)
    assert found.low_s == pytest.approx(0.75 * found.seconds)
    assert found.high_s == pytest.approx(1.25 * found.seconds)
    least = 1.8e-3 * sum(phase.steps for phase in work.phases)  # a step takes this, however small it is
    assert found.seconds > least / 2


def test_a_step_reads_every_choice_of_a_question(tmp_path: Path) -> None:
    """As many tokens as the batches of the run have, and sequences of the length of one choice."""
    rows = [{"context": "a b", "choices": ["c", "d e f", "a", "b b", "c c c"], "label": i % 5} for i in range(30)]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    folder = toy_model(tmp_path / "model", "abcdef")
    config = configs.load_config(
        FinetuneConfig,
        None,
        ["train.batch_size=6", "max_length=32"],
        model=str(folder),
        task="choice",
        train_file=str(tmp_path / "train.jsonl"),
    )
    run = prepare_run(config, read_examples(config))
    (phase,) = finetuning_work(run).phases
    read = sum(batch.tokens for step in range(4) for batch in phase.source(6).batches(step)) / 4
    assert phase.tokens == pytest.approx(read, rel=0.01)
    assert phase.shape.sequences == 5 * 6
    assert 5 <= phase.shape.length <= 10


def test_fine_tuning_has_a_forecast(model: Any, train: Any, tmp_path: Path, bertie: Any) -> None:
    config = finetune_settings(model, train)
    found = finetune_plan(config, trial=0.5)["forecast"]
    assert found["parts"]["evaluation"] > 0
    results = run_finetune(config, tmp_path / "run")
    assert same(results["forecast"], found)
    code, out, _ = bertie("finetune", str(model), "--train", str(train), "--dry-run", "--trial", "0", "max_length=24")
    assert code == 0
    assert "peak memory: " in out
    assert "energy: " in out
    code, _, err = bertie("finetune", str(model), "--train", str(train), "--dry-run", "--trial", "-1")
    assert code == 2
    assert "--trial" in err


@pytest.mark.parametrize("calibrate", [False, True])
def test_the_dev_set_is_read_again_at_the_end_as_often_as_the_trial_counts(
    model: Any, train: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calibrate: bool
) -> None:
    config = finetune_settings(model, train).model_copy(
        update={"calibrate": "temperature" if calibrate else None, "select": "best", "label_check": "none"}
    )
    read, written = list[int](), list[Path]()
    answers, save = Labeled.logits, finetune_train.save_trained_model

    def counted(*given: Any) -> Any:
        read.append(1)
        yield from answers(*given)

    def saved(run: Any, folder: Path, **options: Any) -> None:
        written.append(folder)
        save(run, folder, **options)

    def select(*given: Any) -> Any:
        monkeypatch.setattr(Labeled, "logits", counted)  # not before: training looks at dev too
        return select_weights(*given)

    select_weights = finetune_assess.select_weights
    monkeypatch.setattr(finetune_assess, "select_weights", select)
    for module in (finetune_assess, finetune_train):
        monkeypatch.setattr(module, "save_trained_model", saved)
    run_finetune(config, tmp_path / "run")
    monkeypatch.undo()
    examples = read_examples(config)
    work = finetuning_work(prepare_run(with_steps(config, len(examples.train)), examples))
    assert work.finals == len(read) == 1 + calibrate
    assert work.written >= len(written) - calibrate  # not every evaluation is the best one
