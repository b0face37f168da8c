"""Calibrated probabilities: the scaling of the highest likelihood, in the weights of the head, so that `transformers`
gives the same probabilities; errors before and after; thresholds of the calibrated probabilities."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import approx_fprime, minimize
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss

import bertie as package
from bertie.errors import UsageError
from bertie.metrics.calibration import Calibration
from bertie.metrics.scaling import Scaling, _Fit
from toys import CommandLine, toy_model, toy_writer

FAST: dict[str, Any] = {"epochs": 4, "lr": 3e-3, "max_length": 16, "precision": "fp32", "batch_size": 16}
SETTINGS = {"label_check": "none", "baselines": False}


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def drawn(windows: int = 1, count: int = 300, labels: int = 3) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(3)
    logits = rng.normal(0, 3, (count * windows, labels))
    of_each = softmax(0.4 * logits + [0.5, 0.0, -0.5]).reshape(count, windows, labels).mean(1)
    truth = np.array([rng.choice(labels, p=row) for row in of_each])[:, None] == np.arange(labels)
    return logits, truth, np.arange(count) * windows


@pytest.mark.parametrize("kind", ["temperature", "vector"])
@pytest.mark.parametrize("windows", [1, 3])
def test_the_scaling_has_the_highest_likelihood(kind: Any, windows: int) -> None:
    logits, truth, first = drawn(windows)

    def plain(x: NDArray[np.float64]) -> float:
        scaled = logits * np.exp(x[0]) if kind == "temperature" else logits * np.exp(x[:3]) + x[3:]
        mean = softmax(scaled).reshape(len(truth), windows, 3).mean(1)
        return float(-np.log(mean[truth]).mean())

    best = minimize(
        plain, np.zeros(1 if kind == "temperature" else 6), method="Nelder-Mead", options={"maxiter": 20_000}
    )
    fitted = Scaling.fitted(kind, logits, truth, first)
    shift = fitted.shift or (0.0,) * 3
    mean = softmax(logits * fitted.scale + shift).reshape(len(truth), windows, 3).mean(1)
    assert -np.log(mean[truth]).mean() == pytest.approx(best.fun, abs=2e-4)
    scaled = logits.astype(np.float32)
    np.testing.assert_allclose(fitted.undo(fitted(scaled)), scaled, atol=1e-4)


@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("kind", ["temperature", "vector"])
def test_the_gradient_is_that_of_the_loss(kind: Any, exclusive: bool) -> None:
    logits, truth, first = drawn(2, 40)
    fit = _Fit(kind, logits, truth, first, exclusive)
    x = np.random.default_rng(0).normal(0, 0.3, len(fit.start))
    np.testing.assert_allclose(fit.loss(x)[1], approx_fprime(x, lambda x: fit.loss(x)[0], 1e-7), atol=1e-5)


def test_labels_that_exclude_nothing_are_scaled_as_by_platt() -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 2, (2000, 1))
    truth = rng.random((2000, 1)) < 1 / (1 + np.exp(-(0.6 * logits - 0.3)))
    fitted = Scaling.fitted("vector", logits, truth, exclusive=False)
    platt = LogisticRegression(C=1e9).fit(logits, truth[:, 0])
    assert (fitted.scale[0], fitted.shift[0]) == pytest.approx((platt.coef_[0, 0], platt.intercept_[0]), abs=1e-3)


def test_the_brier_score_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(200)
    truth, counted = rng.random(200) < 0.4, Calibration()
    counted.add(p, truth)
    counted.add_all(np.stack([1 - p, p], 1), np.stack([~truth, truth], 1))
    assert counted.report()["brier"] == pytest.approx(brier_score_loss(truth, p))
    logits, labels, _ = drawn()
    three = Calibration()
    three.add([0.5], [True])
    three.add_all(softmax(logits), labels)
    assert three.report()["brier"] == pytest.approx(((softmax(logits) - labels) ** 2).sum(1).mean())


def noisy(count: int, labels: int = 2) -> list[tuple[str, str]]:
    """Texts whose label is that of their letters for four of five: a model that learns them by heart is too sure."""
    rng = random.Random(4)
    rows = []
    for i in range(count):
        text = [rng.choice("defghij") for _ in range(4)] + ["abc"[i % labels]] * 2
        rng.shuffle(text)
        rows.append((" ".join(text), "xyz"[i % labels if rng.random() < 0.75 else rng.randrange(labels)]))
    return rows


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("m"), "abcdefghij")


@pytest.mark.parametrize("kind", ["temperature", "vector"])
def test_transformers_gives_the_calibrated_probabilities(
    kind: str, model: Path, tmp_path: Path, bertie: CommandLine
) -> None:
    transformers = pytest.importorskip("transformers")
    run, rows = tmp_path / "run", noisy(1200, 3)
    frame = tmp_path / "rows.jsonl"
    frame.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))
    options = (
        "epochs=8",
        "optim.lr=3e-3",
        "max_length=16",
        "label_check=none",
        "baselines=false",
        "--precision",
        "fp32",
    )
    bertie.good("finetune", model, "--train", frame, "--calibrate", kind, "-o", run, *options)
    results = json.loads((run / "results.json").read_text())
    fitted, before = results["calibration"], results["untuned"]["dev"]
    assert (fitted["kind"], fitted["on"], fitted["in_weights"]) == (kind, "held-out training", True)
    better = {name: results["dev"][name] < before[name] for name in ("ece", "brier")}
    assert all(better.values()) or kind == "vector", "six numbers need more than 108 rows"
    texts = [text for text, _ in rows[:20]]
    answers = package.predict(run, texts)
    tokenizer = transformers.AutoTokenizer.from_pretrained(run / "model")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(run / "model").eval()
    with torch.no_grad():
        logits = theirs(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    np.testing.assert_allclose(logits.softmax(-1).numpy(), answers.probabilities, atol=1e-5)
    page = (run / "report.html").read_text()
    assert "Scaling of the logits" in page
    assert "Brier score" in page
    assert "optimistic" not in page, "dev did not choose the scaling"
    facts = json.loads((run / "model/bertie.json").read_text())["task_options"]
    assert (facts["calibrate"], facts["scale"]) == (kind, [])
    graph = tmp_path / "graph"
    bertie.good("export", run, "-o", graph)
    np.testing.assert_allclose(package.predict(graph, texts).probabilities, answers.probabilities, atol=1e-5)


def test_a_head_without_biases_keeps_the_shift_in_its_folder(tmp_path: Path) -> None:
    writer = toy_writer(tmp_path / "gpt", "gpt2")
    options = {"settings": SETTINGS, **FAST}
    plain = package.finetune(writer, noisy(200), calibrate="temperature", output=tmp_path / "t", **options)
    assert plain.results["calibration"]["in_weights"]
    run = package.finetune(writer, noisy(200), calibrate="vector", output=tmp_path / "v", **options)
    assert not run.results["calibration"]["in_weights"]
    assert "the weights of this head cannot contain the calibration" in " ".join(run.results["notes"])
    facts = json.loads((tmp_path / "v/model/bertie.json").read_text())["task_options"]
    assert "20 examples are few for 4 numbers" in " ".join(run.results["notes"])
    assert facts["shift"] == run.results["calibration"]["shift"] != []
    score = package.evaluate(tmp_path / "v", noisy(200), threshold=None)
    assert score["brier"] > 0


def test_thresholds_are_those_of_calibrated_probabilities(model: Path, tmp_path: Path) -> None:
    both = {"calibrate": "temperature", "optimize": "f2", "settings": SETTINGS}
    run = package.finetune(model, noisy(1200), output=tmp_path / "run", **both, **FAST)
    threshold = run.results["thresholds"]["labels"]["y"]["threshold"]
    for answer in package.predict(run.folder, [text for text, _ in noisy(100)]):
        assert (answer.label == "y") == (answer.scores["y"] >= threshold)


def test_several_labels_are_calibrated(model: Path, tmp_path: Path) -> None:
    sets = [(text, [label, "w"] if "d" in text else [label]) for text, label in noisy(1200, 3)]
    options = {"task": "multilabel", "settings": {**SETTINGS, "select_on": "train"}, "output": tmp_path / "run"}
    run = package.finetune(model, sets, calibrate="vector", **options, **{**FAST, "epochs": 8})
    assert run.results["calibration"]["in_weights"]
    assert run.results["dev"]["brier"] < run.results["untuned"]["dev"]["brier"]


def test_what_has_no_probabilities_is_not_calibrated(model: Path, tmp_path: Path) -> None:
    numbers = [(text, float(i)) for i, (text, _) in enumerate(noisy(40))]
    with pytest.raises(UsageError, match="calibrate has no effect under task=regression"):
        package.finetune(model, numbers, task="regression", calibrate="vector", output=tmp_path / "run", **FAST)
    with pytest.raises(UsageError, match="calibrate"):
        package.finetune(model, noisy(40), calibrate="platt", output=tmp_path / "run", **FAST)
    assert not (tmp_path / "run").exists()
