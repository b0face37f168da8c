"""A search keeps the best run, is resumed where it was stopped, and counts pruned and failed trials."""

import json
import os
import random
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest

import bertie
from bertie import checksums
from bertie.errors import DataError, Diverged, Stopped, UsageError, speech
from bertie.runs import tune as module
from bertie.runs import tune_results
from bertie.runs.config import FinetuneConfig
from bertie.runs.space import Range, Space, corners, grid, parse_space, published_space, varied
from bertie.runs.tune import folder_name, run_tune
from bertie.runs.verify import verify_folder
from bertie.train.callbacks import Callback, TrainingRun
from bertie.train.config import OptimConfig, TrainConfig
from toys import toy_model

pytest.importorskip("optuna")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> FinetuneConfig:
    """Does the text hold a z? Learnt in a second at the right rate."""
    folder = toy_model(tmp_path_factory.mktemp("model"), "abcdefz", max_position_embeddings=32)
    rng = random.Random(0)
    lines = ["text\tlabel"]
    for i in range(120):
        letters = [rng.choice("abcdef") for _ in range(6)] + ["z"] * (i % 2)
        lines.append(f"{' '.join(letters)}\t{i % 2}")
    (folder / "train.tsv").write_text("\n".join(lines) + "\n")
    return FinetuneConfig(
        model=str(folder),
        train_file=str(folder / "train.tsv"),
        max_length=16,
        epochs=2,
        optim=OptimConfig(lr=3e-3),
        train=TrainConfig(batch_size=16, precision="fp32", steps=1),
    )


SPACE = {"optim.lr": (1e-6, 1e-2), "epochs": (1, 6)}


def test_spaces_are_read_and_the_grid_is_the_papers():
    paper = published_space(3e-5)
    assert published_space(1e-3)["optim.lr"] == (1.7e-3, 1e-3, 6.7e-4)
    assert parse_space(()) == {}
    assert len(grid(paper)) == 18
    assert {"train.batch_size": 32, "optim.lr": 2e-5, "epochs": 4} in grid(paper)
    space = parse_space(["optim.lr=1e-5..1e-3", "select=last,best", "epochs=2..4"])
    assert space == {"optim.lr": Range(1e-5, 1e-3), "select": ("last", "best"), "epochs": Range(2, 4)}
    assert grid(space) is None
    assert corners(space) == [
        {"optim.lr": lr, "select": select, "epochs": epochs}
        for lr in (1e-5, 1e-3) for select in ("last", "best") for epochs in (2, 4)
    ]  # fmt: skip
    assert parse_space(["epochs=1,1,2", "model=../a,../b"]) == {"epochs": (1, 2), "model": ("../a", "../b")}
    with pytest.raises(UsageError, match=r"optim\.lr is varied twice"):
        parse_space(["optim.lr=1e-4", "optim.lr=1e-5"])
    assert folder_name({"train.batch_size": 16, "optim.lr": 5e-5}) == "batch_size=16 lr=5e-05"


@pytest.mark.parametrize("text", ["optim.lr", "optim.lr=", "optim.lr=3..1", "=1,2"])
def test_what_varies_nothing_is_told(text: str):
    with pytest.raises(UsageError, match="Write"):
        parse_space([text])


def test_the_width_of_the_model_decides_the_rate_unless_it_varies():
    config = FinetuneConfig(model="m", optim=OptimConfig(warmup=0.2))
    assert not varied(config, {"epochs": 2}).rate_is_set
    assert varied(config, {"epochs": 2}).optim.warmup == 0.2
    assert varied(config, {"optim.lr": 1e-4}).rate_is_set
    recipe = FinetuneConfig(model="m", optim=OptimConfig(lr=2e-5)).with_rate_of_recipe()
    assert (varied(recipe, {"epochs": 2}).rate_is_set, varied(recipe, {"epochs": 2}).optim.lr) == (False, 2e-5)
    given = varied(FinetuneConfig(model="m", optim=OptimConfig(lr=1e-3)), {"epochs": 2})
    assert (given.rate_is_set, given.optim.lr) == (True, 1e-3)


def test_a_trial_is_evaluated_four_times_whatever_decides_its_examples(config: FinetuneConfig):
    few, all_ = (module._with_looks(varied(config, {"per_label": n})).train for n in (8, None))
    assert (few.steps, few.eval_every) == (2, 1)
    assert all_.steps == round(2 * 108 / 16)
    assert all_.eval_every == all_.steps // 4


def test_unknown_keys_are_told_before_a_folder_is_made(config: FinetuneConfig, tmp_path: Path):
    with pytest.raises(UsageError, match=r"optim\.lr|'lr'"):
        run_tune(config, tmp_path / "run", {"optim.rl": (1, 2)})
    with pytest.raises(UsageError, match="Set epochs=N instead"):
        run_tune(config, tmp_path / "run", {"train.steps": (1, 2)})
    with pytest.raises(UsageError, match="--trials"):
        run_tune(config, tmp_path / "run", {"optim.lr": Range(1e-5, 1e-3)})
    with pytest.raises(UsageError, match="max_length is 99"):
        run_tune(varied(config, {"max_length": 99}), tmp_path / "run", SPACE)
    for later in ({"optim.lr": (1e-4, -1.0)}, {"max_length": (16, 99)}, {"freeze": (0, 9)}):
        with pytest.raises(UsageError, match=next(iter(later))):
            run_tune(config, tmp_path / "run", later)
    with pytest.raises(UsageError, match=r"optim\.warmup"):
        run_tune(config, tmp_path / "run", {"optim.warmup": Range(-1.0, 0.5)}, trials=3)
    assert not (tmp_path / "run").exists()
    assert varied(config, {"optim.lr": 0.5}).optim.lr == 0.5


def test_the_best_run_is_kept_and_a_stopped_search_goes_on(
    config: FinetuneConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run, real, calls = tmp_path / "run", module.run_finetune, []

    def stops(settings: FinetuneConfig, folder: Path, **options: object) -> dict:
        calls.append(folder.name)
        if len(calls) == 2:
            raise Stopped("a signal")
        return real(settings, folder, **options)

    monkeypatch.setattr(module, "run_finetune", stops)
    with pytest.raises(Stopped):
        run_tune(config, run, SPACE)
    assert verify_folder(run).ok
    with (run / "study.jsonl").open("a") as journal:
        journal.write('{"op_code": 6, "worker_id"')  # a kill amid a line
    results = run_tune(config, run, SPACE)
    assert calls[2] in calls[:2] or calls.count(calls[1]) == 2, "the run that was stopped is taken up again"
    assert len(set(calls)) == 4
    assert (results["done"], results["given up"], results["failed"]) == (4, 0, 0)
    assert results["best"]["settings"] == {"optim.lr": 1e-2, "epochs": 6}
    best = run / "lr=0.01 epochs=6"
    assert (run / "model" / "model.safetensors").read_bytes() == (best / "model" / "model.safetensors").read_bytes()
    assert {path.parent.parent.name for path in run.glob("*/model/model.safetensors")} == {best.name}
    assert len(list(run.glob("*/results.json"))) == 4
    assert "lr=0.01 epochs=6" in (run / "report.html").read_text()
    before = len(calls)
    assert run_tune(config, run, SPACE) == results
    assert len(calls) == before
    with pytest.raises(UsageError, match="other settings"):
        run_tune(varied(config, {"max_length": 12}), run, SPACE)
    assert verify_folder(run).ok, "a refused call changes nothing"
    with (run / "study.jsonl").open("a") as journal:
        journal.write('{"op_code": 6, "worker_id"\n')
    with pytest.raises(DataError, match=r"study\.jsonl is damaged"):
        run_tune(config, run, SPACE)


def test_runs_that_lag_or_diverge_are_counted(config: FinetuneConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs that come to 0.9, 0.8 ... with looks in between; one has no loss."""

    def pretend(settings: FinetuneConfig, folder: Path, *, callbacks: list[Callback], **options: object) -> dict:
        if settings.epochs == 3:
            raise Diverged("the loss is nan")
        value = 1 - settings.epochs / 20
        run = TrainingRun(folder, {}, None, 100)
        for step in (50, 100):
            callbacks[0].on_evaluate(run, step, {"accuracy": value})
        (folder / "model").mkdir(parents=True)
        (folder / "model" / "model.safetensors").write_bytes(b"w")
        return {"dev": {"accuracy": value}, "metrics": ["accuracy"]}

    monkeypatch.setattr(module, "run_finetune", pretend)
    config = varied(config, {"train.seed": 5})
    results = run_tune(config, tmp_path / "run", {"epochs": tuple(range(1, 11))}, prune=True)
    assert results["failed"] == 1
    assert results["given up"] >= 1
    assert results["done"] + results["failed"] + results["given up"] == 10
    assert results["best"]["settings"] == {"epochs": 1}
    assert json.loads((tmp_path / "run" / "results.json").read_text()) == results


def test_a_power_cut_at_the_worst_moment_loses_no_point(
    config: FinetuneConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """While the grid is queued; between a trial's start and its settings; between its figures and its end."""

    def pretend(settings: FinetuneConfig, folder: Path, **options: object) -> dict:
        (folder / "model").mkdir(parents=True, exist_ok=True)
        (folder / "model" / "model.safetensors").write_bytes(b"w")
        return {"dev": {"accuracy": 1 - settings.epochs / 20}, "metrics": ["accuracy"]}

    monkeypatch.setattr(module, "run_finetune", pretend)
    run, space = tmp_path / "run", {"epochs": (1, 2, 3, 4, 5)}
    run.mkdir()
    library = module._optuna()
    study = module._study(library, run, config, space, module._contents(config, module.read_examples(config)))
    study.ask()
    trial = study.ask()
    trial.suggest_categorical("epochs", space["epochs"])
    for name, value in {"folder": "epochs=2", "dev": {"accuracy": 0.9}, "seconds": 1.0}.items():
        trial.set_user_attr(name, value)
    results = run_tune(config, run, space)
    assert sorted(row["settings"]["epochs"] for row in results["trials"]) == [1, 2, 3, 4, 5]
    assert (results["done"], results["given up"], results["failed"]) == (5, 0, 0)


def test_the_seconds_of_a_trial_include_those_before_an_interruption(
    config: FinetuneConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """And a kill right after the last trial leaves only the best weights, too."""

    def pretend(settings: FinetuneConfig, folder: Path, **options: object) -> dict:
        (folder / "model").mkdir(parents=True, exist_ok=True)
        (folder / "model" / "model.safetensors").write_bytes(b"w")
        if not (folder / "metrics.jsonl").exists():
            (folder / "metrics.jsonl").write_text('{"kind": "train", "step": 1, "elapsed_s": 3600.0}\n{"kind": "va')
            raise Stopped("a signal")
        return {"dev": {"accuracy": 1 - settings.epochs / 20}, "metrics": ["accuracy"]}

    monkeypatch.setattr(module, "run_finetune", pretend)
    monkeypatch.setattr(module, "_keep_best", lambda *_: None)
    for _ in range(2):
        with pytest.raises(Stopped):
            run_tune(config, tmp_path / "run", {"epochs": (1, 2)})
    run_tune(config, tmp_path / "run", {"epochs": (1, 2)})
    monkeypatch.undo()
    results = run_tune(config, tmp_path / "run", {"epochs": (1, 2)})
    assert [row["seconds"] >= 3600 for row in results["trials"]] == [True, True]
    assert [path.parent.parent.name for path in (tmp_path / "run").glob("*/model/*.safetensors")] == ["epochs=1"]


def test_after_its_time_a_search_begins_nothing(
    config: FinetuneConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    clock = iter(range(0, 10_000_000, 1000))  # seconds: each look at it is a quarter of an hour later
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(clock)))
    results = run_tune(config, tmp_path / "run", {"optim.lr": Range(1e-4, 1e-2)}, trials=50, hours=1)
    assert 1 <= results["done"] < 4
    assert results["wanted"] == 50


@pytest.mark.promise("same-trials")
@pytest.mark.parametrize(
    "space", [{"optim.lr": Range(1e-5, 1e-2), "epochs": Range(1, 40)}, {"epochs": tuple(range(1, 17))}], ids=str
)
def test_killed_or_not_the_trials_are_the_same(
    config: FinetuneConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, space: Space
):
    """Interrupted before, amid and at the end of trials; pruning decides by the looks of all trials before."""
    stops: list[tuple[int, str]] = []
    calls = 0

    def pretend(settings: FinetuneConfig, folder: Path, *, callbacks: list[Callback], **options: object) -> dict:
        nonlocal calls
        calls += 1
        now = [when for call, when in stops if call == calls]
        if "before" in now:
            raise Stopped("a kill")
        (folder / "model").mkdir(parents=True, exist_ok=True)
        (folder / "model" / "model.safetensors").write_bytes(b"w")
        value = round(settings.epochs * 7.3 % 1, 3) + (0.1 if settings.optim.lr > 1e-3 else 0)
        path = folder / "metrics.jsonl"
        seen = path.read_text().count("\n") if path.exists() else 0
        for look in range(seen + 1, 5):  # evaluations before an interruption are not repeated
            shown = value * look / 4
            step = round(settings.train.steps * look / 4)
            with path.open("a") as file:
                file.write(json.dumps({"kind": "valid", "step": step, "accuracy": shown}) + "\n")
            run = TrainingRun(folder, {}, None, settings.train.steps)
            callbacks[0].on_evaluate(run, step, {"accuracy": shown})
            if "amid" in now and look == 2:
                raise Stopped("a kill")
        if "at the end" in now:
            raise Stopped("a kill")
        return {"dev": {"accuracy": value}, "metrics": ["accuracy"]}

    def go(run: Path) -> dict:
        for _ in range(9):
            with suppress(Stopped):
                results = run_tune(varied(config, {"epochs": 40}), run, space, trials=14, prune=True)
                break
        return {**results, "trials": [{k: v for k, v in row.items() if k != "seconds"} for row in results["trials"]]}

    monkeypatch.setattr(module, "run_finetune", pretend)
    unbroken = go(tmp_path / "unbroken")
    calls, stops = 0, [(2, "before"), (5, "amid"), (9, "at the end"), (15, "amid")]
    broken = go(tmp_path / "broken")
    del unbroken["best"]["seconds"], broken["best"]["seconds"]
    assert broken == unbroken
    assert unbroken["given up"] > 0


def test_the_best_settings_are_compared_with_the_given_ones(config: FinetuneConfig, tmp_path: Path):
    """With the same new seeds; a search that is called again trains nothing."""
    run = tmp_path / "run"
    weak = varied(config, {"optim.lr": 1e-6})
    results = run_tune(weak, run, {"optim.lr": (1e-6, 1e-2), "epochs": (6,)}, confirm=2)
    found = results["confirmed"]
    assert found["best"] > found["given"]
    assert found["difference"] == pytest.approx(found["best"] - found["given"])
    assert (found["seeds"], len(found["runs"])) == (2, 2)
    seeds = [
        json.loads((run / f"{name}=seed {seed}" / "results.json").read_text())
        for name in ("given", "best")
        for seed in (1, 2)
    ]
    assert [one["dev"]["accuracy"] for one in seeds] == [
        row[name] for name in ("given", "best") for row in found["runs"]
    ]
    assert {path.parent.parent.name for path in run.glob("*/model/model.safetensors")} == {results["best"]["folder"]}
    assert "Better than the given settings?" in (run / "report.html").read_text()
    same = tune_results._compared([(0.5, 0.6), (0.6, 0.5), (0.5, 0.5)], "accuracy")
    assert not same["better"]
    assert "not shown to be better" in tune_results.verdict_on_best({"seeds": 3, **same}, "accuracy")
    again = run_tune(weak, run, {"optim.lr": (1e-6, 1e-2), "epochs": (6,)}, confirm=2)
    assert again["confirmed"] == found
    (run / "report.html").unlink()
    assert "Better than the given settings?" in bertie.write_report(run).read_text()


def test_settings_that_stay_are_trained_once_for_each_new_seed(config: FinetuneConfig, tmp_path: Path):
    found = run_tune(config, tmp_path / "run", {"epochs": (config.epochs,)}, confirm=1)["confirmed"]
    assert (found["given"], found["difference"]) == (found["best"], 0)
    assert not (tmp_path / "run" / "best=seed 1").exists()
    assert "The best settings are the given ones" in (tmp_path / "run" / "report.html").read_text()


def test_a_nested_search_measures_on_rows_that_chose_nothing(
    config: FinetuneConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    measured: dict[str, tuple[set[str], set[str]]] = {}
    real = module.run_finetune

    def watched(settings: FinetuneConfig, folder: Path, **options: object) -> dict:
        if (examples := options.get("examples")) is not None:
            rows = [{str(one.line) for one in some} for some in (examples.train, examples.dev)]
            measured[f"{Path(folder).parent.name}/{Path(folder).name}"] = (rows[0], rows[1])
        return real(settings, folder, **options)

    monkeypatch.setattr(module, "run_finetune", watched)
    monkeypatch.setattr(tune_results, "run_finetune", watched)
    space = {"optim.lr": (1e-6, 1e-2)}
    results = run_tune(config, tmp_path / "run", space, folds=2)
    assert not checksums.check_files(tmp_path / "run").uncovered
    nested = results["nested"]
    assert (nested["folds"], len(nested["settings"])) == (2, 2)
    outer = [measured[f"run/best=fold-{k}"] for k in (1, 2)]
    assert outer[0][1].isdisjoint(outer[1][1])
    assert len(outer[0][1] | outer[1][1]) == 120
    for k in (1, 2):
        learned, tested = measured[f"run/best=fold-{k}"]
        assert learned.isdisjoint(tested)
        for lr in ("1e-06", "0.01"):
            inner = measured[f"fold-{k}/lr={lr}"]
            assert (inner[0] | inner[1]).isdisjoint(tested)
    with pytest.raises(UsageError, match="label changes how they are read"):
        run_tune(config, tmp_path / "other", {"label": ("a", "b")}, folds=2)
    assert not (tmp_path / "other").exists()


def test_what_mattered_is_told_from_enough_trials(config: FinetuneConfig, tmp_path: Path):
    library = module._optuna()
    study = library.create_study(direction="maximize")
    distributions = {
        "optim.lr": library.distributions.CategoricalDistribution((1, 2, 3)),
        "epochs": library.distributions.CategoricalDistribution((1, 2, 3)),
    }
    for lr in (1, 2, 3):
        for epochs in (1, 2, 3):
            study.add_trial(
                library.trial.create_trial(
                    params={"optim.lr": lr, "epochs": epochs},
                    distributions=distributions,
                    value=lr + 0.01 * epochs,
                    user_attrs={"seconds": 1.0},
                )
            )
            if lr == 1:
                assert module._importance(study) == {}
    shares = module._importance(study)["importance"]
    assert shares["optim.lr"] > 0.9 > 0.1 > shares["epochs"]


@pytest.mark.parametrize("options", [{"epochs": 1}, {"settings": {"epochs": 1}}, {"overrides": ["epochs=1"]}], ids=str)
@pytest.mark.parametrize("vary", [(), {"epochs": [2, 3]}], ids=["grid", "vary"])
def test_no_value_is_lost_to_the_search(options: dict[str, Any], vary: Any, tmp_path: Path):
    with pytest.raises(UsageError, match="The search varies epochs"):
        bertie.tune("m", "absent.csv", output=tmp_path / "run", vary=vary, **options)


def test_one_comparison_is_made(config: FinetuneConfig, tmp_path: Path):
    with pytest.raises(UsageError, match="`folds` and `confirm` exclude each other"):
        bertie.tune(config=config, output=tmp_path / "run", confirm=2, folds=2)


def test_trials_of_other_columns_beside_the_texts_are_others(config: FinetuneConfig):
    examples = module.read_examples(config)
    cheap, dear = ([replace(one, tabular=(price,)) for one in examples.train] for price in (1, 2))
    of_cheap, of_dear = (module._contents(config, replace(examples, train=train)) for train in (cheap, dear))
    assert of_cheap["train_file"] != of_dear["train_file"]
    assert of_cheap["model"] == of_dear["model"]


def test_a_search_that_was_stopped_at_a_prompt_is_returned_with_its_trials(
    config: FinetuneConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hand(bertie.Callback):
        def __init__(self, at: int) -> None:
            self.evaluations_left = at

        def on_evaluate(self, run: TrainingRun, step: int, scores: object) -> None:
            self.evaluations_left -= 1
            if not self.evaluations_left:
                os.kill(os.getpid(), signal.SIGINT)

    real, hands = module.run_finetune, [Hand(1)]

    def by_hand(*args: Any, callbacks: list[Callback], **options: Any) -> dict[str, object]:
        return real(*args, callbacks=[*callbacks, hands[0]], **options)

    monkeypatch.setattr(module, "run_finetune", by_hand)
    monkeypatch.setattr(speech, "shell", False)
    rows = pandas.read_csv(config.train_file, sep="\t")
    options = {"max_length": 16, "batch_size": 16, "precision": "fp32", "lr": 1e-2, "vary": {"epochs": [1, 2]}}
    with pytest.raises(Stopped):
        bertie.tune(config.model, rows, output=tmp_path / "script", confirm=0, **options)  # as in a script
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    hands[0] = Hand(1)
    with pytest.warns(UserWarning, match=r"after step .*`search\.resume\(\)` continues the search"):
        search = bertie.tune(config.model, rows, output=tmp_path / "first", confirm=0, **options)
    assert not search.finished
    assert repr(search) == f"Search({str(tmp_path / 'first')!r}, stopped)"
    assert search._repr_html_().startswith("<p>")
    with pytest.raises(UsageError, match="before a trial finished"):
        search.to_dicts()
    hands[0] = Hand(6)  # each trial has four evaluations
    with pytest.warns(UserWarning, match=r"search\.resume"):
        search = search.resume()
    assert (search.finished, len(search.to_dicts()), search.results["done"]) == (False, 1, 1)
    assert search.model.labels == ("0", "1")
    assert ", stopped, best: epochs=" in repr(search)
    done = search.resume()
    assert (done.finished, done.resume() is done, done.results["done"]) == (True, True, 2)
    assert done.model.labels == ("0", "1")
