"""Thresholds chosen after training: the best of all by brute force, on rows of their own, saved and honoured, and
another one at use."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import fbeta_score, precision_score, recall_score

import bertie as package
from bertie.errors import UsageError
from bertie.metrics.thresholds import Goal, choose_threshold
from bertie.tasks import Prediction
from bertie.tasks.sequence import SequenceTask
from toys import CommandLine, toy_model

RNG = np.random.default_rng(0)
FAST: dict[str, Any] = {"epochs": 2, "lr": 3e-3, "max_length": 16, "precision": "fp32", "batch_size": 32}
SETTINGS = {"label_check": "none", "baselines": False}


@pytest.mark.parametrize("goal", ["f1", "f2", "f0.5", "recall@precision=0.7", "precision@recall=0.95"])
@pytest.mark.parametrize("decimals", [1, 6])
def test_a_threshold_is_the_best_of_all(goal: str, decimals: int) -> None:
    truth = RNG.random(300) < 0.2
    scores = np.round(np.clip(truth * 0.3 + RNG.random(300) * 0.7, 0, 1), decimals)
    chosen = choose_threshold(scores, truth, goal)

    def value(threshold: float) -> tuple[float, float]:
        predicted = scores >= threshold
        precision, recall = (f(truth, predicted, zero_division=0) for f in (precision_score, recall_score))
        if goal.startswith("f"):
            return fbeta_score(truth, predicted, beta=float(goal[1:]), zero_division=0), 0.0
        kept, wanted = (precision, recall) if goal.startswith("recall") else (recall, precision)
        return (wanted, kept) if kept >= float(goal.partition("=")[2]) else (-1.0, kept)

    best = max(map(value, [*np.unique(scores), 0.0]))
    assert value(chosen.threshold) == pytest.approx(best)
    predicted = scores >= chosen.threshold
    assert (chosen.precision, chosen.recall) == pytest.approx(
        (precision_score(truth, predicted), recall_score(truth, predicted))
    )
    assert chosen.reached
    assert chosen.positives == truth.sum()


def test_a_goal_that_cannot_be_reached_comes_as_near_as_it_can() -> None:
    chosen = choose_threshold([0.9, 0.8, 0.7, 0.6], [False, True, True, False], "recall@precision=0.9")
    assert not chosen.reached
    assert chosen.precision == pytest.approx(2 / 3)
    assert choose_threshold([0.1, 0.2], [False, False], "f2").threshold == 0.5


@pytest.mark.parametrize("goal", ["f", "f0", "f-1", "recall", "recall@precision=1.5", "recall@precision=0", "F1"])
def test_an_unknown_goal_is_refused(goal: str) -> None:
    with pytest.raises(UsageError, match="Choose one of f1, f2"):
        Goal.of(goal)


def test_the_label_of_the_threshold_wins_from_there_on() -> None:
    task = SequenceTask(("a", "b", "c"), threshold=0.3, threshold_of="b")
    assert [task.winner(row) for row in ([0.6, 0.3, 0.1], [0.6, 0.29, 0.11], [0.1, 0.29, 0.61])] == [1, 0, 2]
    high = SequenceTask(("a", "b"), threshold=0.9)
    assert [high.winner(row) for row in ([0.2, 0.8], [0.05, 0.95])] == [0, 1]
    with pytest.raises(UsageError, match="A threshold is for one label, and there are 3"):
        SequenceTask(("a", "b", "c"), optimize="f1")
    with pytest.raises(UsageError, match=r"threshold is 1\.5; it must be between 0 and 1"):
        SequenceTask(("a", "b"), threshold=1.5)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("m"), "abcdefghij")


def rows(count: int = 1200) -> list[tuple[str, str]]:
    letters = "abcdefghij"
    texts = [f"{a} {b} {c} {d}" for a in letters for b in letters for c in letters for d in letters]
    texts = texts[3 : 3 + 7 * count : 7]
    return [(text, "yes" if text.count("a") + (i % 11 == 0) > 1 else "no") for i, text in enumerate(texts)]


def test_a_threshold_is_chosen_on_rows_of_its_own_and_saved(model: Path, tmp_path: Path, bertie: CommandLine) -> None:
    goal, run = "recall@precision=0.5", tmp_path / "run"
    trained = package.finetune(model, rows(), optimize=goal, settings=SETTINGS, output=run, **FAST)
    chosen = trained.results["thresholds"]
    assert (chosen["goal"], chosen["on"], [*chosen["labels"]]) == (goal, "held-out training", ["yes"])
    threshold = chosen["labels"]["yes"]["threshold"]
    facts = json.loads((run / "model/bertie.json").read_text())["task_options"]
    assert (facts["threshold"], facts["threshold_of"], facts["optimize"]) == (threshold, "yes", goal)
    page = trained.report.read_text()
    assert "Thresholds" in page
    assert goal in page
    texts = [text for text, _ in rows()[:200]]
    answers = package.predict(run, texts)
    assert [answer.label == "yes" for answer in answers] == [answer.scores["yes"] >= threshold for answer in answers]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    lines = bertie.good("predict", run, tmp_path / "texts.txt", "--json").splitlines()
    assert [json.loads(line)["label"] for line in lines] == answers.labels
    all_yes = bertie.good("predict", run, tmp_path / "texts.txt", "--threshold", "0").splitlines()
    assert {json.loads(line)["label"] for line in all_yes} == {"yes"}
    assert {*package.predict(run, texts, threshold=1.0).labels} == {"no"}
    strict, mild = (
        package.evaluate(run, rows(), threshold=one).to_dict()["per_label"]["yes"]["recall"] for one in (0.9, 0.0)
    )
    assert strict <= mild == 1.0
    by_other = package.evaluate(run, rows(), positive="no")
    assert by_other["accuracy"] == package.evaluate(run, rows())["accuracy"], "the threshold stays that of yes"


def test_the_server_puts_the_label_of_the_threshold_first() -> None:
    from bertie.apps.serve.labels import ranked

    scores = {"no": 0.9, "yes": 0.07, "maybe": 0.03}
    assert [one["label"] for one in ranked(Prediction("yes", 0.07, scores))] == ["yes", "no", "maybe"]
    assert [one["label"] for one in ranked(Prediction("no", 0.9, scores))] == ["no", "yes", "maybe"]


def test_several_labels_have_one_threshold_each(model: Path, tmp_path: Path) -> None:
    sets = [(text, [label for label in "abc" if label in text]) for text, _ in rows(300)]
    run = package.finetune(model, sets, task="multilabel", optimize="f2", settings=SETTINGS, **FAST)
    assert [*run.results["thresholds"]["labels"]] == ["a", "b", "c"]
    few = package.finetune(model, rows(60), optimize="recall@precision=1", settings=SETTINGS, **FAST)
    assert "thresholds chosen on fewer than 10 examples of their label" in " ".join(few.results["notes"])
    task = json.loads((run.folder / "model/bertie.json").read_text())["task_options"]
    assert task["thresholds"] == [one["threshold"] for one in run.results["thresholds"]["labels"].values()]
    answers = package.predict(run.folder, [text for text, _ in sets[:20]], threshold=0.0)
    assert all(answer.label == ("a", "b", "c") for answer in answers)


def test_what_has_no_threshold_says_so(model: Path, tmp_path: Path) -> None:
    numbers = [(text, float(i)) for i, (text, _) in enumerate(rows(40))]
    run = package.finetune(model, numbers, task="regression", settings=SETTINGS, output=tmp_path / "run", **FAST)
    with pytest.raises(UsageError, match="have no threshold"):
        package.predict(run.folder, ["a"], threshold=0.5)
    with pytest.raises(UsageError, match="optimize has no effect under task=regression"):
        package.finetune(model, numbers, task="regression", optimize="f1", **FAST)
    with pytest.raises(UsageError, match="chooses the threshold that"):
        package.finetune(model, rows(60), optimize="f1", settings={"task_options.threshold": 0.3}, **FAST)
    with pytest.raises(UsageError, match="optimize is 'costs'"):
        package.finetune(model, rows(60), optimize="costs", **FAST)
    run = package.finetune(model, rows(60), settings=SETTINGS, **FAST)
    with pytest.raises(UsageError, match="must be between 0 and 1"):
        package.predict(run.folder, ["a"], threshold=1.5)


def test_a_folder_that_lost_its_threshold_says_so(model: Path, tmp_path: Path, bertie: CommandLine) -> None:
    run = tmp_path / "run"
    package.finetune(model, rows(200), optimize="f2", settings=SETTINGS, output=run, **FAST)
    (tmp_path / "texts.txt").write_text("a b c d\n")
    code, _, err = bertie("predict", run, tmp_path / "texts.txt")
    assert (code, "has no bertie.json" in err) == (0, False)
    (run / "model/bertie.json").unlink()
    code, _, err = bertie("predict", run, tmp_path / "texts.txt")
    assert code == 0
    assert "has no bertie.json, and its training chose threshold" in " ".join(err.split())
