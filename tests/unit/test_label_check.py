"""Wrong labels: confident learning against a loop, folds that do not leak, and the list of a run."""

import csv
import json
import random
from pathlib import Path

import numpy as np
import pytest

from bertie.evaluation.label_check import FOLDS, contradicted, folds, suspects
from bertie.io.tables import Example
from bertie.tasks import TASKS
from toys import FAST, CommandLine, toy_model


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def test_the_definition() -> None:
    """Northcutt et al. 2021, equations 1 and 2, one example at a time."""
    rng = np.random.default_rng(0)
    probability = rng.dirichlet([0.7, 0.7, 0.7], 200)
    labels = rng.integers(0, 3, 200)
    thresholds = [probability[labels == j, j].mean() for j in range(3)]
    wanted = {}
    for i, row in enumerate(probability):
        possible = [j for j in range(3) if row[j] >= thresholds[j]]
        best = max(possible, key=lambda j: row[j], default=labels[i])
        if best != labels[i]:
            wanted[i] = best
    found, suggested = contradicted(probability, labels)
    assert dict(zip(found.tolist(), suggested.tolist(), strict=True)) == wanted
    margins = [probability[i, labels[i]] - np.delete(probability[i], labels[i]).max() for i in found]
    assert margins == sorted(margins)


def test_a_label_that_nothing_has() -> None:
    found, _ = contradicted(np.array([[0.2, 0.1, 0.7], [0.9, 0.1, 0.0]]), np.array([0, 0]))
    assert 2 not in found


def test_folds_are_even_and_do_not_leak() -> None:
    examples = [Example((f"{n % 40}",), "ab"[n % 3 == 0], n) for n in range(100)]
    asked = [rows for _, rows in folds(examples)]
    assert sorted(i for rows in asked for i in rows) == list(range(100))
    for learnt, rows in folds(examples):
        assert not {examples[i].texts for i in learnt} & {examples[i].texts for i in rows}
    labels = [sum(examples[i].label == "b" for i in rows) for _, rows in folds(examples)]
    assert min(labels) > 0


def reviews(count: int, wrong: int, seed: int = 0) -> tuple[list[Example], set[int]]:
    draw = random.Random(seed)
    words = {"bad": ["awful", "dull", "weak", "slow"], "good": ["fine", "great", "warm", "sharp"]}
    flipped = set(draw.sample(range(count), wrong))
    examples = []
    for n in range(count):
        label = draw.choice(["bad", "good"])
        text = " ".join([*draw.choices(words[label], k=3), *draw.choices(["the", "film", "plot", "cast"], k=5)])
        examples.append(Example((text,), {"bad": "good", "good": "bad"}[label] if n in flipped else label, n))
    return examples, flipped


def test_flipped_labels_come_first() -> None:
    examples, flipped = reviews(400, 20)
    found = suspects(TASKS["sequence"].make(("bad", "good"), {}), examples)
    first = [suspect.example.line for suspect in found[:20]]
    assert len(flipped & set(first)) >= 18
    assert all(suspect.suggested != suspect.example.label for suspect in found)


def test_rare_labels_are_not_checked() -> None:
    examples, _ = reviews(60, 0)
    rare = [Example(("awful slow",), "rare", 99)] * (FOLDS - 1)
    found = suspects(TASKS["sequence"].make(("bad", "good", "rare"), {}), [*examples, *rare])
    assert all(suspect.example.label != "rare" for suspect in found)


@pytest.mark.parametrize("kind", ["words", "folds", "none"])
def test_the_list_of_a_run(tmp_path: Path, cli: CommandLine, kind: str) -> None:
    examples, flipped = reviews(120, 6)
    words = sorted({word for example in examples for word in example.texts[0].split()})
    start = toy_model(tmp_path / "start", words)
    train = tmp_path / "train.csv"
    train.write_text("text,label\n" + "".join(f"{e.texts[0]},{e.label}\n" for e in examples))
    run = tmp_path / "run"
    more = (f"label_check={kind}", "epochs=4", "max_length=32", "baselines=false")
    cli.good("finetune", start, "--train", train, "--dev", train, "-o", run, *FAST, *more)
    assert (run / "label_check.csv").exists() == (kind != "none")
    page = (run / "report.html").read_text()
    assert ("Labels to check" in page) == (kind != "none")
    cli.good("verify", run)
    if kind == "none":
        return
    with (run / "label_check.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {*rows[0]} == {"line", "label", "suggested", "probability", "suggested_probability", "text"}
    lines = {int(row["line"]) - 2 for row in rows[:6]}
    assert len(lines & flipped) >= 4
    told = json.loads((run / "findings.json").read_text())["label_check"]
    assert told["listed"] == len(rows)
    assert told["checked"] == 120


def test_a_trial_of_tuning_and_a_ranking_are_not_checked() -> None:
    assert TASKS["sequence"].one_label
    assert not TASKS["rank"].one_label
    assert not TASKS["tagging"].one_label
