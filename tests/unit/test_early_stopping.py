"""`patience`, `metric` and `select` of a fine-tuning run: what ends it, which rows choose, and what the report says."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import bertie as library
from bertie.api.options import FinetuneOptions, PretrainOptions
from bertie.errors import UsageError
from bertie.runs.arguments import FINETUNE, PRETRAIN
from bertie.train import log
from bertie.train.callbacks import TrainingRun
from toys import CommandLine, toy_model

FAST: dict[str, Any] = {"label_check": "none", "baselines": False}
OPTIONS = ("--max-length", "16", "--precision", "fp32", "--lr", "1e-9", "--batch-size", "32", "--seed", "1")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("m"), "abcdefghij")


def rows(count: int) -> list[tuple[str, str]]:
    letters = "abcdefghij"
    texts = [f"{a} {b} {c} {d}" for a in letters for b in letters for c in letters for d in letters]
    return [(text, "x" if text[-1] in "abcd" else "y") for text in texts[3 : 3 + 7 * count : 7]]


def trained(model: Path, count: int, **options: Any) -> library.Run:
    given = {"epochs": 6, "lr": 1e-9, "max_length": 16, "precision": "fp32", "batch_size": 32, "patience": 2}
    settings = {**FAST, **options.pop("settings", {})}
    return library.finetune(model, rows(count), settings=settings, **(given | options))


def test_a_run_that_learns_nothing_ends_after_patience_epochs(model: Path) -> None:
    """An evaluation at the end of each epoch; the first is the best, the next two are no better."""
    run = trained(model, 200)
    looks = [line for line in log.read_log(run.folder) if line["kind"] == "valid"]
    assert [line["step"] for line in looks] == [6, 12, 18]
    assert "accuracy did not improve" in run.results["ended_early"]
    notes = " ".join(run.results["notes"])
    assert "ended early, after step 18" in notes
    assert "of 3 evaluations on 20 dev examples, step 6 is the best" in notes
    assert "optimistic" in notes
    page = run.report.read_text()
    assert "step 18 of 34, ended early" in page
    assert "did not improve" in page


def test_with_enough_rows_those_that_select_are_not_those_that_are_reported(model: Path) -> None:
    run = trained(model, 1200)
    assert (run.results["selecting"], run.scores["examples"]) == (108, 120)
    notes = " ".join(run.results["notes"])
    assert (
        "108 training examples are held out to select weights, thresholds and calibration; dev is only reported"
        in notes
    )
    assert "on 108 held-out training examples" in notes
    assert "optimistic" not in notes
    assert "108 held-out examples" in run.report.read_text()
    assert "selecting" not in trained(model, 1200, settings={"select_on": "dev"}).results
    few = trained(model, 200, settings={"select_on": "train"}).results
    assert (few["selecting"], few["train_examples"]) == (18, 162)


def test_the_metric_decides_and_leads(model: Path, tmp_path: Path, bertie: CommandLine) -> None:
    table = tmp_path / "t.tsv"
    table.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows(100)))
    run = tmp_path / "run"
    code, out, err = bertie(
        *("finetune", model, "--train", table, "-o", run, "--metric", "mcc", "--patience", "1", "--epochs", "4"),
        *OPTIONS, "label_check=none", "baselines=false",
    )  # fmt: skip
    assert code == 0, err
    assert out.startswith("dev: mcc ")
    results = json.loads((run / "results.json").read_text())
    assert results["metrics"][0] == "mcc"
    assert "mcc did not improve" in results["ended_early"]
    saved = (run / "run.yaml").read_text()
    assert "patience: 1" in saved
    assert "metric: mcc" in saved
    assert bertie.good("evaluate", run, table).startswith("mcc "), "the model remembers it"


def test_each_of_several_seeds_has_the_callbacks(model: Path, tmp_path: Path) -> None:
    starts: list[str] = []

    class Starts(library.Callback):
        def on_start(self, run: TrainingRun) -> None:
            starts.append(run.folder.name)

    trained(model, 100, epochs=1, seeds=2, patience=None, callbacks=[Starts()], output=tmp_path / "run")
    assert starts == ["seed-0", "seed-1"]


def test_the_loss_decides_by_being_lower(model: Path) -> None:
    run = trained(model, 100, metric="loss", lr=1e-3)
    assert run.results["metrics"][0] != "loss"
    looks = {line["step"]: line["loss"] for line in log.read_log(run.folder) if line["kind"] == "valid"}
    best = min(looks, key=lambda step: looks[step])
    assert f"step {best} is the best (loss {looks[best]:.4g})" in " ".join(run.results["notes"])


def test_an_unknown_metric_is_refused_before_a_run_is_replaced(model: Path, tmp_path: Path) -> None:
    run = trained(model, 100, output=tmp_path / "run", epochs=1)
    with pytest.raises(UsageError, match=r"no metric 'macrof1'. Did you mean 'macro_f1'\?"):
        trained(model, 100, output=tmp_path / "run", metric="macrof1", overwrite=True)
    assert run.report.exists()
    with pytest.raises(UsageError, match="has no metric 'f1'"):
        library.finetune(model, [("a", 1.0), ("b", 2.5)] * 20, task="regression", metric="f1")


def test_each_setting_with_a_name_is_an_argument_everywhere() -> None:
    for names, function, options in (
        (FINETUNE, library.finetune, FinetuneOptions),
        (PRETRAIN, library.pretrain, PretrainOptions),
    ):
        parameters = inspect.signature(function).parameters
        assert names.keys() <= {*parameters} | {*options.__annotations__}, function
        assert names.keys() <= {*options.__annotations__}, options


def test_options_that_a_search_varies_are_refused(model: Path, tmp_path: Path, bertie: CommandLine) -> None:
    pytest.importorskip("optuna")
    code, _, err = bertie("tune", model, "--train", tmp_path / "t.tsv", "--lr", "1e-4", "-o", tmp_path / "run")
    assert (code, "The search varies optim.lr" in " ".join(err.split())) == (2, True)


def test_the_step_of_an_early_end_is_in_the_results(tmp_path: Path, bertie: CommandLine) -> None:
    class Stop(library.Callback):
        def on_step(self, run: Any, step: int, metrics: Any) -> None:
            if step == 3:
                raise library.StopTraining("enough")

    start, letters = toy_model(tmp_path / "m", "abcd"), "abcd"
    rows = [(f"{letters[i % 4]} {letters[i // 4 % 4]}", "xy"[i % 2]) for i in range(100)]
    out = tmp_path / "run"
    run = library.finetune(start, rows, output=out, callbacks=[Stop()], settings={"baselines": False}, max_length=16)
    assert run.results["step"] == 3
    assert "ended early, after step 3 of " in bertie.good("verify", out)
