"""Answers that are withheld, prediction sets with a promised coverage, and thresholds chosen by costs."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import bertie as package
from bertie.errors import BertieError, DataError, UsageError
from bertie.io.tables import Example
from bertie.metrics.base import verdict, wilson
from bertie.metrics.calibration import Selective, SetCounts, rows_needed, set_cut
from bertie.metrics.thresholds import choose_threshold
from bertie.tasks.sequence import SequenceTask
from serving import live
from toys import CommandLine, toy_model

FAST: dict[str, Any] = {"epochs": 4, "lr": 3e-3, "max_length": 16, "precision": "fp32", "batch_size": 16}
SETTINGS = {"label_check": "none", "baselines": False}


def test_sets_keep_the_promise_over_many_draws_and_promise_no_more() -> None:
    """Over draws, coverage of a cut is Beta(n + 1 - k, k): its mean is 1 - k / (n + 1)."""
    rng = np.random.default_rng(0)
    for coverage, n in ((0.9, 99), (0.8, 50), (0.95, 19)):
        k = int(round((1 - coverage) * (n + 1), 9))
        covered = [(rng.random(200) >= set_cut(rng.random(n), coverage)).mean() for _ in range(3000)]
        assert np.mean(covered) == pytest.approx(1 - k / (n + 1), abs=0.004)
        assert np.mean(covered) >= coverage - 0.004


def test_too_few_rows_for_a_promise_are_refused() -> None:
    assert (rows_needed(0.95), rows_needed(0.9), rows_needed(0.99)) == (19, 9, 99)
    assert set_cut(np.linspace(0.1, 1, 19), 0.95) == pytest.approx(0.1)
    with pytest.raises(DataError, match="needs 19 held-out rows with known labels, and there are 18"):
        set_cut(np.ones(18), 0.95)


def test_coverage_is_counted_by_label() -> None:
    counts = SetCounts()
    counts.add(["a", "a", "b", "b"], [("a",), ("a", "b"), ("a",), ("b", "a")])
    report = counts.report()["prediction_sets"]
    assert (report["covered"], report["mean_size"], report["single"]) == (0.75, 1.5, 0.5)
    assert report["per_label"]["b"] == {"rows": 2, "covered": 0.5, "interval_95": [*wilson(1, 2)]}


def test_accuracy_rises_with_the_rows_that_are_left_out() -> None:
    counts = Selective(withheld=2)
    counts.add([0.55, 0.7, 0.9, 0.99], [False, True, False, True])
    curve = {row[0]: row[1:3] for row in counts.report()["selective"]}
    assert (curve[0.0], curve[0.6], curve[0.95]) == ([1.0, 0.5], [0.75, pytest.approx(2 / 3)], [0.25, 1.0])
    assert counts.report()["answered"]["share"] == 0.5


@pytest.mark.parametrize("decimals", [1, 6])
def test_the_cheapest_threshold_is_the_cheapest_of_all(decimals: int) -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        truth = rng.random(60) < 0.3
        scores = np.round(np.clip(truth * 0.3 + rng.random(60) * 0.6, 0, 0.99), decimals)
        costs = np.stack([np.where(truth, 0, rng.integers(1, 4)), np.where(truth, rng.integers(1, 9), 0)], 1)
        chosen = choose_threshold(scores, truth, "cost", costs)

        def mean(threshold: float, scores: Any = scores, costs: Any = costs) -> float:
            return float(np.where(scores >= threshold, costs[:, 0], costs[:, 1]).mean())

        assert mean(chosen.threshold) == pytest.approx(min(map(mean, [*scores, 0.0, 1.0]))) == chosen.cost


def rows(count: int, labels: int = 3) -> list[tuple[str, str]]:
    """Texts of which the letters show the label, most of the time."""
    rng = random.Random(5)
    found = []
    for i in range(count):
        text = [rng.choice("defghij") for _ in range(4)] + ["abc"[i % labels] if i % 9 else "d"]
        rng.shuffle(text)
        found.append((" ".join(text), "xyz"[i % labels if i % 9 and rng.random() < 0.8 else rng.randrange(labels)]))
    return found


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("m"), "abcdefghij")


@pytest.fixture(scope="module")
def run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("r") / "run"
    options = {"abstain": 0.6, "coverage": 0.9, "calibrate": "temperature", "settings": SETTINGS, "output": out}
    package.finetune(model, rows(1500), **options, **FAST)
    return out


def test_the_run_holds_out_rows_for_sets_and_measures_them_on_dev(run: Path) -> None:
    results = json.loads((run / "results.json").read_text())
    assert any("held out for prediction sets, and used for nothing else" in note for note in results["notes"])
    assert results["covering"] + results["selecting"] + results["train_examples"] + results["dev"]["examples"] == 1500
    sets = results["dev"]["prediction_sets"]
    assert sets["rows"] == results["dev"]["examples"], "the metrics of dev are those of all rows"
    assert 0.8 < sets["covered"] <= 1
    page = (run / "report.html").read_text()
    assert "Prediction sets" in page
    assert "Accuracy against answered rows" in page
    card = (run / "model/README.md").read_text()
    assert "no answer below a probability of 0.6; sets of labels with a coverage of 0.9" in card
    assert "temperature scaling of 3 logits, in the weights" in card


def test_use_follows_what_was_saved(run: Path, tmp_path: Path, bertie: CommandLine) -> None:
    facts = json.loads((run / "model/bertie.json").read_text())["task_options"]
    texts = [text for text, _ in rows(300)]
    answers = package.predict(run, texts)
    for answer in answers:
        sure = answer.probability >= 0.6
        assert (answer.label is not None) == sure
        assert (answer.reason == "") == sure
        assert answer.label_set is not None
        assert {name for name, p in answer.scores.items() if p >= facts["set_from"]} <= {*answer.label_set}
    assert 0 < sum(answer.label is None for answer in answers) < 300
    assert None not in package.predict(run, texts, abstain=0).labels
    (tmp_path / "t.txt").write_text("\n".join(texts))
    lines = [json.loads(line) for line in bertie.good("predict", run, tmp_path / "t.txt").splitlines()]
    assert [line["label"] for line in lines] == answers.labels
    withheld = next(line for line in lines if line["label"] is None)
    assert "below 0.6" in withheld["reason"]
    bertie.good("predict", run, tmp_path / "t.txt", "-o", tmp_path / "out.csv")
    head = (tmp_path / "out.csv").read_text().splitlines()[0]
    assert head.startswith("text,row,line,label,probability,")
    assert "reason,label_set" in head
    frame = answers.to_pandas()
    assert {"reason", "label_set"} <= {*frame.columns}


def test_evaluation_measures_the_answers_and_the_coverage(run: Path, tmp_path: Path, bertie: CommandLine) -> None:
    table = tmp_path / "test.jsonl"
    table.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows(400)))
    scores = package.evaluate(run, table).to_dict()
    answers = package.predict(run, [text for text, _ in rows(400)])
    given = [(answer.label, label) for answer, (_, label) in zip(answers, rows(400), strict=True) if answer.label]
    assert scores["accuracy"] == pytest.approx(np.mean([one == other for one, other in given]))
    assert scores["answered"]["withheld"] == 400 - len(given)
    assert scores["accuracy"] >= package.evaluate(run, table, abstain=0)["accuracy"]
    covered = [label in (answer.label_set or ()) for answer, (_, label) in zip(answers, rows(400), strict=True)]
    assert scores["prediction_sets"]["covered"] == pytest.approx(np.mean(covered))
    out = " ".join(bertie.good("evaluate", run, table, "--report", tmp_path / "page.html").split())
    assert "answered " in out
    assert "prediction sets: coverage " in out
    assert "have no answer, and the metrics leave them out" in (tmp_path / "page.html").read_text()
    with pytest.raises(UsageError, match=r"this model abstains\. Pass `abstain=0`"):
        package.evaluate(run, table, against=run)
    with pytest.raises(DataError, match="abstains on all 400 labeled rows"):
        package.evaluate(run, table, abstain=1.0)


def test_the_server_says_why_there_is_no_label(run: Path) -> None:
    texts = [text for text, _ in rows(30)]
    with live({"m": run / "model"}) as server:
        data = server.ok("/classify", {"input": texts})["data"]
        assert len(server.ok("/predict", {"inputs": [[text] for text in texts]})) == len(texts)
    answers = package.predict(run, texts)
    assert [one["label"] for one in data] == answers.labels
    assert [one.get("reason", "") != "" for one in data] == [label is None for label in answers.labels]
    assert [tuple(one["label_set"]) for one in data] == [answer.label_set for answer in answers]


def test_costs_choose_the_threshold(model: Path, tmp_path: Path, bertie: CommandLine) -> None:
    table = tmp_path / "t.jsonl"
    table.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows(1200, 2)))
    options = ("epochs=3", "optim.lr=3e-3", "max_length=16", "label_check=none", "baselines=false")
    chosen = {}
    for cost in (1, 20):
        run = tmp_path / f"run{cost}"
        command = ("finetune", model, "--train", table, "--optimize", "cost", "--costs", f"y:x={cost}", "-o", run)
        bertie.good(*command, *options)
        results = json.loads((run / "results.json").read_text())
        chosen[cost] = results["thresholds"]["labels"]["y"]
        confusion = results["dev"]["confusion"]
        expected = (confusion[0][1] + cost * confusion[1][0]) / results["dev"]["examples"]
        assert results["dev"]["mean_cost"] == pytest.approx(expected)
        assert package.evaluate(run, table)["mean_cost"] >= 0
    assert chosen[20]["threshold"] < chosen[1]["threshold"]
    assert chosen[20]["recall"] > chosen[1]["recall"]


@pytest.mark.parametrize("seeds", [1, 2])
def test_with_costs_the_baselines_are_compared_by_cost(seeds: int, model: Path) -> None:
    frame = pandas.DataFrame(rows(300, 2), columns=["text", "label"])
    run = package.finetune(
        model, frame, dev=frame, optimize="cost", positive="y", costs={"y": {"x": 30}}, seeds=seeds,
        settings={"label_check": "none"}, **FAST,
    )  # fmt: skip
    dev: Any = json.loads((run.folder / ("seed-0" * (seeds > 1)) / "results.json").read_text())["dev"]
    figures = {one["name"]: one["figures"] for one in dev["baselines"]}
    shares = frame["label"].value_counts(normalize=True)
    assert figures["the most frequent label"]["mean_cost"] == pytest.approx(min(shares["x"], 30 * shares["y"]))
    words = figures["word tf-idf + logistic regression"]
    assert words["mean_cost"] <= figures["the most frequent label"]["mean_cost"]
    best = min(dev["baselines"], key=lambda one: one["figures"]["mean_cost"])
    sentence = "\n".join(map(str, run.lines() if seeds > 1 else [*run.scores.lines(), *run.warnings]))
    assert f"(mean cost {dev['mean_cost']:.3f}" in sentence or seeds > 1
    assert ("beat" in sentence, f"{best['name']} ({best['figures']['mean_cost']:.3f})" in sentence) == (True, True)
    difference = best["difference"]["mean_cost"]
    assert difference["difference"] == pytest.approx(dev["mean_cost"] - best["figures"]["mean_cost"])


@pytest.mark.parametrize(
    ("model_cost", "verb"), [(0.1, "beats"), (0.3, "does not clearly beat"), (0.6, "does not beat")]
)
def test_the_lower_cost_is_the_better_one(model_cost: float, verb: str) -> None:
    baseline = {"name": "words", "figures": {"accuracy": 0.9, "mean_cost": 0.4}}
    other = {"name": "majority", "figures": {"accuracy": 0.95, "mean_cost": 0.5}}
    interval = [model_cost - 0.45 - 0.02, model_cost - 0.4 + (0.15 if model_cost == 0.3 else 0.02)]
    baseline["difference"] = {
        "mean_cost": {"difference": model_cost - 0.4, "low": interval[0], "high": interval[1], "examples": 99}
    }
    report = {
        "accuracy": 0.8,
        "mean_cost": model_cost,
        "examples": 99,
        "interval_95": {},
        "baselines": [baseline, other],
    }
    sentence, beats = verdict(report, "accuracy")
    assert f"{verb} words (0.400)" in sentence
    assert beats == (verb == "beats")


def test_of_three_labels_the_cost_is_that_of_the_label_that_is_given_instead() -> None:
    task = SequenceTask(("x", "y", "z"), optimize="cost", positive="y", costs={"z": {"x": 5.0}})
    examples = [Example((f"t{i}",), label) for i, label in enumerate("xyzz")]
    answers = [
        task.answer(dict(zip("xyz", p, strict=True)), 0) for p in ([0.6, 0.4, 0], [0.3, 0.7, 0], *[[0.5, 0.3, 0.2]] * 2)
    ]
    tuned = task.tune_on_dev(zip(examples, answers, strict=True))
    # Two texts of z would be called x, for 5 each; as y they cost 1 each, and the text of x too.
    assert tuned.threshold is not None
    assert tuned.threshold <= 0.3
    assert tuned.choices["y"].cost == pytest.approx(3 / 4)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"abstain": 1.5}, "abstain"),
    ({"coverage": 1.0}, "coverage"),
    ({"coverage": 0.99}, "needs 99 held-out rows"),
    ({"optimize": "cost", "costs": {"q": {"x": 1}}}, "costs has 'q', which is no label"),
    ({"optimize": "cost", "costs": {"x": {"y": -1}}}, "a number of 0 or more"),
    ({"optimize": "cost", "costs": {"x": {"y": float("nan")}}}, "a finite number"),
    ({"optimize": "cost", "costs": {"x": {"y": 0}, "y": {"x": 0}}}, "all are 0"),
    ({"costs": {"x": {"y": 2}}}, "Pass optimize=cost too"),
    ({"optimize": "cost", "task": "multilabel"}, "one label a row"),
    ({"coverage": 0.9, "task": "regression"}, "coverage has no effect"),
]


@pytest.mark.parametrize(("options", "message"), BAD, ids=itertools.count())
def test_bad_settings_are_refused_and_write_nothing(
    options: dict[str, Any], message: str, model: Path, tmp_path: Path
) -> None:
    labels: Any = {"multilabel": lambda x: [x], "regression": ord}.get(options.get("task", ""), str)
    table = [(text, labels(label)) for text, label in rows(100, 2)]
    with pytest.raises(BertieError, match=message):
        package.finetune(model, table, settings=SETTINGS, output=tmp_path / "run", **options, **FAST)
    assert not (tmp_path / "run").exists()
