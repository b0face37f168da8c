"""Cross-validation: every row is predicted once, by a model that did not learn it; groups and times are respected;
thresholds and calibration rest on these answers; the final model learned all rows; a stopped call goes on."""

import json
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import TimeSeriesSplit

import bertie as package
from bertie.errors import BertieError, DataError, Stopped, UsageError, speech
from bertie.io.tables import Example
from bertie.runs import folds as folds_module
from bertie.runs.finetune import run_finetune
from bertie.runs.splits import ExampleSplit, later
from bertie.tasks.sequence import SequenceTask
from toys import CommandLine, toy_model

FAST: dict[str, Any] = {"epochs": 2, "lr": 3e-3, "max_length": 16, "precision": "fp32", "batch_size": 16}


def plain(example: Example) -> Any:
    return example.label


def grouped(example: Example) -> Any:
    return example.group


def test_folds_are_stratified_and_whole_groups() -> None:
    rng = random.Random(0)
    rows = [
        Example((f"t{i}",), "rare" if i % 10 == 0 else "usual", i, group=f"g{rng.randrange(40)}") for i in range(400)
    ]
    alone = [Example(one.texts, one.label, one.line) for one in rows]
    parts = [*ExampleSplit(plain, grouped).folds(alone, 5)]
    assert sorted(i for _, predicted in parts for i in predicted) == [*range(400)]
    for learned, predicted in parts:
        assert not {*learned} & {*predicted}
        assert len(learned) + len(predicted) == 400
        assert Counter(alone[i].label for i in predicted) == {"rare": 8, "usual": 72}
    together = [*ExampleSplit(plain, grouped).folds(rows, 5)]
    assert sorted(i for _, predicted in together for i in predicted) == [*range(400)]
    for learned, predicted in together:
        assert not {rows[i].group for i in learned} & {rows[i].group for i in predicted}
        assert 60 <= len(predicted) <= 100


def test_equal_texts_are_in_one_fold() -> None:
    rows = [Example((f"t{i // 2}",), "ab"[i // 2 % 2], i) for i in range(100)]
    for learned, predicted in ExampleSplit(plain, grouped).folds(rows, 4):
        assert not {rows[i].texts for i in learned} & {rows[i].texts for i in predicted}


def test_folds_in_the_order_of_time_are_those_of_scikit_learn() -> None:
    order = np.random.default_rng(0).permutation(60)
    rows = [Example((f"t{i}",), "a", i, time=(False, float(order[i]))) for i in range(60)]
    by_time = np.argsort(order)
    for (learned, predicted), (train, test) in zip(
        ExampleSplit(plain, grouped, timed=True).folds(rows, 5), TimeSeriesSplit(5).split(rows), strict=True
    ):
        assert {*learned} == {*by_time[train]}
        assert {*predicted} == {*by_time[test]}
    train_rows, dev = later(rows, 0.2)
    assert len(dev) == 12
    assert max(one.time for one in train_rows) < min(one.time for one in dev)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("m"), "abcdefghij")


def frame(count: int = 240) -> pd.DataFrame:
    rng = random.Random(3)
    rows = []
    for i in range(count):
        text = [rng.choice("cdefghij") for _ in range(4)] + ["ab"[i % 2]]
        rng.shuffle(text)
        label = "xy"[i % 2 if rng.random() < 0.85 else rng.randrange(2)]
        day = f"2024-{1 + i // 28 % 12:02}-{1 + i % 28:02}"
        rows.append({"text": " ".join(text), "label": label, "who": f"p{i % 30}", "day": day})
    return pd.DataFrame(rows)


def test_each_row_is_predicted_once_and_the_final_model_learned_all(model: Path, tmp_path: Path) -> None:
    out, rows = tmp_path / "run", frame()
    options = {"folds": 4, "group": "who", "calibrate": "temperature", "optimize": "f2", "abstain": 0.5}
    run = package.finetune(model, rows, output=out, **options, **FAST)
    table = pd.read_csv(run.out_of_fold)
    assert len(table) == len(rows)
    assert [*table["text"]] == [*rows["text"]]
    assert [*table["who"].astype(str)] == [*rows["who"].astype(str)]
    fold_of = table["fold"].to_numpy()
    assert (pd.Series(fold_of).groupby(rows["who"]).nunique() == 1).all(), "a group is in one fold"
    results = run.results
    assert results["out_of_fold"]["accuracy"] == pytest.approx(accuracy_score(table["label"], table["predicted_label"]))
    values = [one["accuracy"] for one in results["folds"].values()]
    summary = results["over_folds"]["accuracy"]
    assert summary["mean"] == pytest.approx(np.mean(values))
    sizes = [one["rows"] for one in results["folds"].values()]
    ratio = sum(sizes) / sum(len(rows) - size for size in sizes)
    half = stats.t.ppf(0.975, 3) * np.std(values, ddof=1) * (1 / 4 + ratio) ** 0.5
    assert summary["low"] == pytest.approx(max(0, summary["mean"] - half))
    assert results["train_examples"] == len(rows)
    assert (results["thresholds"]["on"], results["calibration"]["on"]) == ("out-of-fold", "out-of-fold")
    threshold = results["thresholds"]["labels"]["y"]["threshold"]
    assert [*(table["scores.y"] >= threshold)] == [*(table["predicted_label"] == "y")]
    facts = json.loads((out / "model/bertie.json").read_text())["task_options"]
    assert (facts["threshold"], facts["abstain"], facts["scale"]) == (threshold, 0.5, [])
    # The final model is that of all rows, and only its head was scaled.
    scale = results["calibration"]["scale"][0]
    texts = [*rows["text"][:5]]
    raw = np.log(package.predict(out / "final", texts, abstain=0).probabilities)
    powers = np.exp(raw * scale)
    calibrated = package.predict(out, texts, abstain=0).probabilities
    np.testing.assert_allclose(calibrated, powers / powers.sum(1, keepdims=True), atol=1e-5)
    assert (out / "report.html").read_text().count("fold-") >= 4
    assert "over 4 folds" in "\n".join(map(str, run.lines()))
    assert run.scores.summary.endswith("on 240 examples")
    confusion = pd.DataFrame(run.scores.confusion).T  # a row for each true label
    assert confusion.to_numpy().sum() == len(rows)
    assert confusion.loc["y"].sum() == run.scores.per_label["y"]["examples"]
    assert run.thresholds["y"]["threshold"] == threshold
    assert "train: text column `text`, label column `label`" in run.notes
    assert "accuracy" in repr(run)


def test_a_fold_has_the_threshold_of_the_others_and_wrong_labels_are_listed(model: Path) -> None:
    rows = frame().rename(columns={"text": "review", "label": "stars"})
    rows.loc[5, "review"] = None
    columns = {"text": "review", "label": "stars"}
    run = package.finetune(model, rows, folds=3, optimize="f1", positive="y", **columns, **FAST)
    assert [note for note in run.notes if "skipped" in note] == ["train: 1 of 240 rows skipped: no review (1: line 6)"]
    assert not any("no dev file" in note for note in run.notes)
    table = pd.read_csv(run.out_of_fold)
    rest, one = table[table["fold"] != 1], table[table["fold"] == 1]
    cuts = sorted({*table["scores.y"]})
    f1 = {cut: f1_score(rest["stars"] == "y", rest["scores.y"] >= cut) for cut in cuts}
    best = [cut for cut in cuts if f1[cut] == max(f1.values())]
    possible = [f1_score(one["stars"] == "y", one["scores.y"] >= cut) for cut in best]
    results: Any = run.results
    assert any(results["folds"]["fold-1"]["f1"] == pytest.approx(value) for value in possible)
    assert [*table.columns[:5]] == ["review", "stars", "line", "fold", "predicted_label"]
    suspects = pd.read_csv(run.label_check)
    answers = table.set_index("line").loc[suspects["line"]]
    assert len(suspects) > 3
    assert [*suspects.columns[:4]] == ["review", "stars", "line", "suggested"]
    assert [*answers["stars"]] == [*suspects["stars"]]
    assert [*answers["scores.y"].where(suspects["suggested"].to_numpy() == "y", answers["scores.x"])] == pytest.approx(
        [*suspects["suggested_probability"]], abs=1e-4
    )
    assert [*rows["review"].iloc[suspects["line"] - 1]] == [*suspects["review"]]
    assert "Labels to check" in run.report.read_text()


@pytest.mark.parametrize("abstain", [None, 0.6])
def test_answers_are_decoded_once_unless_the_model_abstains(
    abstain: float | None, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded, runs, real = 0, 0, SequenceTask.decode

    def counted(self: SequenceTask, *arguments: Any) -> list[Any]:
        nonlocal decoded
        decoded += not runs
        return real(self, *arguments)

    def ended(*arguments: Any, **options: Any) -> dict[str, object]:
        nonlocal runs
        runs += 1
        results = run_finetune(*arguments, **options)
        runs -= 1
        return results

    monkeypatch.setattr(SequenceTask, "decode", counted)
    monkeypatch.setattr(folds_module, "run_finetune", ended)
    package.finetune(model, frame(60), folds=3, abstain=abstain, **FAST)
    assert decoded == 3 * (1 if abstain is None else 2), "the rows of a fold are one part"


def test_runs_of_folds_are_compared_by_what_the_user_chose(
    model: Path, tmp_path: Path, bertie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    frame(60).to_csv("rows.csv", index=False)
    rows = "rows.csv"
    package.finetune(model, rows, output="plain", seeds=2, **FAST)
    package.finetune(model, rows, output="two", folds=2, **FAST)
    package.finetune(model, rows, output="f1", folds=2, optimize="f1", positive="y", **FAST)
    for other, differing in (("plain", ["folds"]), ("f1", ["positive", "optimize"])):
        comparison = json.loads(bertie.good("compare", "two", other, "--json"))
        assert comparison["differing"] == differing
    assert comparison["runs"][1]["settings"] == {"positive": "y", "optimize": "f1"}


def test_the_command_resumes_and_is_verified(
    model: Path, tmp_path: Path, bertie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame(120).to_csv(tmp_path / "t.csv", index=False)
    options = ("epochs=1", "max_length=16", "optim.lr=3e-3", "--precision", "fp32")
    command = ("finetune", model, "--train", tmp_path / "t.csv", "--folds", "3", "-o", tmp_path / "run", *options)

    class Twice(package.Callback):
        ends = 0

        def on_end(self, run: Any, result: Any) -> None:
            Twice.ends += 1
            if Twice.ends == 2:
                raise Stopped("a signal", hint="")

    settings = {"max_length": 16, "optim.lr": 3e-3, "train.precision": "fp32"}
    with pytest.raises(Stopped):
        package.finetune(
            model,
            tmp_path / "t.csv",
            folds=3,
            epochs=1,
            settings=settings,
            output=tmp_path / "run",
            callbacks=[Twice()],
        )
    begun = (tmp_path / "run/fold-1/results.json").stat().st_mtime_ns
    out = bertie.good(*command)
    assert (tmp_path / "run/fold-1/results.json").stat().st_mtime_ns == begun
    assert "over 3 folds" in out
    assert "out_of_fold.csv" in out
    bertie.good("verify", tmp_path / "run")
    bertie.good("predict", tmp_path / "run", tmp_path / "t.csv", "-o", tmp_path / "o.csv")
    bertie.good("report", tmp_path / "run")
    code, _, err = bertie("finetune", model, "--train", tmp_path / "t.csv", "-o", tmp_path / "run", *options)
    assert (code, "several seeds or folds" in " ".join(err.split())) == (2, True)


def test_folds_that_were_stopped_at_a_prompt_have_no_model_yet(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hand(package.Callback):
        pressed = False

        def on_step(self, run: object, step: int, metrics: object) -> None:
            if not self.pressed:
                self.pressed = True
                os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(speech, "shell", False)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with pytest.warns(UserWarning, match=r"`run\.resume\(\)` continues the run\.$"):
        run = package.finetune(model, frame(60), folds=2, callbacks=[Hand()], **FAST)
    with pytest.raises(UsageError, match=r"stopped at fold-1\..*run\.resume\(\)"):
        _ = run.model
    assert run.resume().model.labels == ("x", "y")


@pytest.mark.parametrize("task", ["multilabel", "regression"])
def test_other_tasks_are_cross_validated(task: str, model: Path) -> None:
    rows = frame(90)
    rows["label"] = rows["label"].map(lambda x: [x]) if task == "multilabel" else rows["label"].map(ord).astype(float)
    run = package.finetune(model, rows, task=task, folds=3, **FAST)
    assert len(pd.read_csv(run.out_of_fold)) == 90
    assert run.scores.interval(run.results["metrics"][0]) is not None


def test_the_latest_rows_are_held_out(model: Path, tmp_path: Path) -> None:
    rows = frame(200)
    run = package.finetune(model, rows, time="day", settings={"baselines": False}, **FAST)
    assert run.results["dev"]["examples"] + run.results["train_examples"] == 200
    timed = package.finetune(model, rows, time="day", folds=3, **FAST)
    table = pd.read_csv(timed.out_of_fold)
    assert len(table) < 200, "the earliest rows are only learned"
    assert "of the earliest rows are only learned" in " ".join(timed.results["notes"])


BAD: list[tuple[dict[str, Any], str]] = [
    ({"folds": 1}, "2 or more were expected"),
    ({"folds": 500}, "folds is 500, and the label"),
    ({"folds": 40, "group": "who"}, "folds is 40, and there are 30 groups"),
    ({"folds": 3, "dev": [("a", "x")]}, "dev_file does not work with folds"),
    ({"folds": 3, "coverage": 0.9}, "coverage does not work with folds"),
    ({"folds": 3, "seeds": 2}, "exclude each other"),
    ({"folds": 3, "group": "whom"}, "no column 'whom'"),
    ({"group": "who", "time": "day"}, "divide rows in two ways"),
    ({"time": "text"}, "a number or a date"),
    ({"folds": 3, "optimize": "f9x"}, "optimize is 'f9x'"),
    ({"group": "who", "task": "tagging"}, "group has no effect"),
]


@pytest.mark.parametrize(("options", "message"), BAD, ids=range(len(BAD)))
def test_what_cannot_be_divided_is_refused_and_writes_nothing(
    options: dict[str, Any], message: str, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(BertieError, match=message):
        package.finetune(model, frame(120), output=tmp_path / "run", **options, **FAST)
    assert not (tmp_path / "run").exists()


def test_a_group_in_both_files_is_refused(model: Path, tmp_path: Path) -> None:
    rows = frame(120)
    with pytest.raises(DataError, match=r"30 groups of the column 'who' are in the training file and in the dev file"):
        package.finetune(model, rows[:90], rows[90:], group="who", output=tmp_path / "run", **FAST)
    with pytest.raises(DataError, match="Training rows are later than dev rows"):
        package.finetune(model, rows[60:], rows[:60], time="day", output=tmp_path / "run", **FAST)
    rows.loc[3, "who"] = None
    with pytest.raises(DataError, match=r"the group column 'who' is empty"):
        package.finetune(model, rows, group="who", output=tmp_path / "run", **FAST)
    rows["day"] = [*rows["day"][:60], *range(60)]
    with pytest.raises(DataError, match="has numbers and dates"):
        package.finetune(model, rows, time="day", output=tmp_path / "run", **FAST)
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match="has no folds"):
        _ = package.finetune(model, frame(60), settings={"baselines": False}, **FAST).out_of_fold
