"""Answers without a model: what they score is known, they are measured once, and one sentence says what they mean."""

import random
from typing import Any

import numpy as np
import pytest

from bertie.evaluation import baselines as module
from bertie.evaluation.baselines import MAX_TRAINING_CHARACTERS, baselines, compared_examples, measure_baselines
from bertie.io.tables import Example
from bertie.io.words import spaced
from bertie.metrics.answers import AnswerScores, QaPrediction
from bertie.metrics.base import baseline_notes, verdict
from bertie.metrics.ranking import Ranking
from bertie.tasks import TASKS, Prediction
from toys import FAST, CommandLine, toy_model


def sentences(n: int, seed: int) -> list[tuple[str, str]]:
    """Texts of a few words, and whether the word good is in them."""
    rng = random.Random(seed)
    rows = []
    for _ in range(n):
        words = rng.choices("one two three four five".split(), k=4)
        words[rng.randrange(4)] = kind = rng.choice(["good", "bad"])
        rows.append((" ".join(words), kind))
    return rows


def pairs(n: int, seed: int) -> list[tuple[tuple[str, str], bool]]:
    """Two texts of four words that share three, or none."""
    rng = random.Random(seed)
    rows = []
    for _ in range(n):
        words, alike = rng.sample([f"w{i}" for i in range(60)], 8), rng.random() < 0.5
        rows.append(((" ".join(words[:4]), " ".join(words[:3] + words[4:5] if alike else words[4:])), alike))
    return rows


def scored(name: str, train: list[Example], dev: list[Example], metric: str) -> dict[str, float]:
    task = TASKS[name].from_examples(train, (), {})
    found = {}
    for title, answers in baselines(task, train, dev).items():
        scores = task.scores()
        task.count(scores, dev, answers)
        found[title] = scores.compute()[metric]
    return found


def test_labels():
    train, dev = ([Example((text,), kind) for text, kind in sentences(200, seed)] for seed in (0, 1))
    found = scored("sequence", train, dev, "accuracy")
    assert found["word tf-idf + logistic regression"] == 1
    assert found["character tf-idf + logistic regression"] == 1
    most = max(("good", "bad"), key=lambda kind: sum(e.label == kind for e in train))
    assert found["the most frequent label"] == sum(e.label == most for e in dev) / 200


def test_the_same_examples_have_the_same_answers_whatever_was_drawn_before():
    rng = random.Random(0)
    texts = [" ".join(rng.choices("one two three four five six seven".split(), k=5)) for _ in range(160)]
    examples = [Example((text,), rng.choice(["good", "bad"])) for text in texts]
    task = TASKS["sequence"].from_examples(examples[:80], (), {})
    np.random.seed(1)
    first = baselines(task, examples[:80], examples[80:])
    np.random.seed(2)
    assert baselines(task, examples[:80], examples[80:]) == first


def test_three_labels_that_training_and_dev_do_not_share():
    train = [Example((text,), kind) for text, kind in sentences(100, 0)] + [Example(("x",), "rare")]
    dev = [Example((text,), kind) for text, kind in sentences(50, 1)] + [Example(("y",), "new")]
    assert scored("sequence", train, dev, "accuracy")["word tf-idf + logistic regression"] == 50 / 51


def test_pairs_by_the_words_they_share():
    train, dev = ([Example(texts, str(alike)) for texts, alike in pairs(200, seed)] for seed in (0, 1))
    assert scored("sequence", train, dev, "accuracy")["word overlap"] == 1
    train, dev = ([Example(texts, float(alike)) for texts, alike in pairs(200, seed)] for seed in (0, 1))
    for name in ("regression", "embed"):
        assert scored(name, train, dev, "pearson")["word overlap"] > 0.99


def test_ranks_and_choices():
    train, dev = (
        [Example(texts, str(int(alike)), group=i // 8) for i, (texts, alike) in enumerate(pairs(200, seed))]
        for seed in (0, 1)
    )
    assert scored("rank", train, dev, "map")["word overlap"] > 0.9
    rows = [Example(("a b c", "x y", "a b z"), "1"), Example(("p q", "p r", "k"), "0")]
    assert scored("choice", rows, rows, "accuracy") == {"always the first": 0.5, "word overlap": 1.0}


def test_numbers_and_sets():
    train, dev = ([Example((text,), float(kind == "good")) for text, kind in sentences(200, s)] for s in (0, 1))
    found = scored("regression", train, dev, "pearson")
    assert found["the mean"] == pytest.approx(0, abs=1e-9)
    assert found["word tf-idf + ridge regression"] > 0.95
    train, dev = (
        [Example((text,), tuple(sorted({kind} | ({"one"} & {*text.split()})))) for text, kind in sentences(200, s)]
        for s in (0, 1)
    )
    assert scored("multilabel", train, dev, "micro_f1")["word tf-idf + logistic regression"] > 0.98


def test_tags_by_word():
    rows = [
        spaced(["Ada", "saw", "Ada"], ["B-PER", "O", "B-PER"], 1),
        spaced("saw Bo and us".split(), ["O", "B-PER", "O", "O"], 2),
    ]
    new = [spaced(["Ada", "met", "Bo"], ["B-PER", "O", "B-PER"], 1)]
    assert scored("tagging", rows, new, "accuracy") == {"the most frequent tag of each word": pytest.approx(1.0)}


def test_the_work_is_bounded():
    train = [Example(("word " * 400,), str(i % 2)) for i in range(MAX_TRAINING_CHARACTERS // 1000)]
    (_, *names) = baselines(TASKS["sequence"].from_examples(train, (), {}), train, train[:10])
    assert f"from 1,000 of {len(train):,} examples" in names[0]
    dev = [Example(("x",), "0")] * 5000
    assert len(compared_examples(TASKS["sequence"].from_examples(train, (), {}), dev)) == module.COMPARED


def test_the_sentence():
    train, dev = ([Example((text,), kind) for text, kind in sentences(200, seed)] for seed in (0, 1))
    task = TASKS["sequence"].from_examples(train, (), {})
    scores = task.scores()
    answers = [Prediction("good", 0.5, {"good": 0.5, "bad": 0.5})] * 200
    task.count(scores, dev, answers)
    rows = measure_baselines(task, dev, dict(enumerate(answers)), baselines(task, train, dev), "accuracy")
    report = {**scores.report(), "baselines": rows}
    (note,) = baseline_notes(report, "accuracy")
    assert "does not beat word tf-idf + logistic regression (1.000)" in note
    assert "95% interval -" in note
    sentence, beats = verdict({**report, "baselines": rows[:1], "accuracy": 0.9, "interval_95": {"accuracy": [0.8, 1]}})
    assert beats
    assert "beats the most frequent label" in sentence
    assert verdict({**report, "examples": 9}) == (
        "9 examples cannot show whether the model beats word tf-idf + logistic regression. Evaluate on 10 or more.",
        False,
    )


def test_one_question_or_context_shows_nothing() -> None:
    ranked, answered = Ranking(), AnswerScores()
    ranked.add([("q", i == 0) for i in range(12)], [float(-i) for i in range(12)])
    answered.add([(("a", 0),), ()] * 6, [QaPrediction("a", "a"), QaPrediction("", "b", 1.0)] * 6)
    answered.groups += ["c"] * 12
    beside: dict[str, Any] = {"baselines": [{"name": "nothing", "figures": {"mrr@10": 0.0}}]}
    assert verdict(ranked.report() | beside, "mrr@10") == (
        "1 question cannot show whether the model beats nothing. Evaluate on 10 or more.",
        False,
    )
    assert verdict(answered.report(), "f1")[0].startswith("1 context cannot show whether")


def test_a_run_says_whether_it_was_worth_it(tmp_path, monkeypatch, capsys):
    cli = CommandLine(monkeypatch, capsys)
    model = toy_model(tmp_path / "model", ["good", "bad", *"one two three four five".split()])
    for name, seed in (("train", 0), ("dev", 1)):
        lines = "".join(f"{text}\t{kind}\n" for text, kind in sentences(120, seed))
        (tmp_path / f"{name}.tsv").write_text("text\tlabel\n" + lines)
    calls = []
    real = module.baselines
    monkeypatch.setattr("bertie.runs.finetune_assess.baselines", lambda *given: calls.append(1) or real(*given))
    files = ("--train", tmp_path / "train.tsv", "--dev", tmp_path / "dev.tsv", "epochs=1", "max_length=24", *FAST)
    code, out, err = cli("finetune", model, *files, "-o", tmp_path / "run")
    assert code == 0, err
    said = out + err
    assert "word tf-idf + logistic regression: accuracy 1.000" in said
    assert "beat" in said
    assert "tf-idf + logistic regression (1.000)" in (tmp_path / "run/report.html").read_text()
    code, out, err = cli("finetune", model, *files, "-o", tmp_path / "off", "baselines=false")
    assert "tf-idf" not in out + err
    calls.clear()
    code, out, err = cli("finetune", model, *files, "-o", tmp_path / "seeds", "--seeds", 2)
    assert code == 0, err
    assert len(calls) == 1
    assert "tf-idf + logistic regression (1.000)" in out
    code, _, err = cli("finetune", model, *files, "-o", tmp_path / "run", "baselines=false")  # no other run
    assert code == 0, err
