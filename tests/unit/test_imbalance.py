"""Weights, balanced sampling and losses of a fine-tuning run: as options, from Python and in scikit-learn, refused by
name where a task has none, and named in the report."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertie as package
from bertie import settings
from bertie.errors import DataError, UsageError
from bertie.sklearn import InputError, TextClassifier, TextRegressor
from toys import CommandLine, toy_model

FAST: dict[str, Any] = {"epochs": 1, "lr": 1e-3, "max_length": 16, "precision": "fp32", "batch_size": 16}
QUICK = {"label_check": "none", "baselines": False}
OPTIONS = ("--max-length", "16", "--precision", "fp32", "--epochs", "1", "label_check=none", "baselines=false")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("m"), "abcdefghij")


def rows(count: int = 200, rare: int = 25) -> list[dict[str, Any]]:
    """One row in `rare` is of the label yes."""
    letters = "abcdefghij"
    texts = [f"{a} {b} {c}" for a in letters for b in letters for c in letters][:count]
    return [
        {"text": text, "label": "no" if i % rare else "yes", "w": 2.0 if i % 3 else 0.5} for i, text in enumerate(texts)
    ]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    path.write_text("text,label,w\n" + "".join(f"{r['text']},{r['label']},{r['w']}\n" for r in rows()))
    return path


def trained(model: Path, data: Any = None, **options: Any) -> package.Run:
    settings = {**QUICK, **options.pop("settings", {})}
    return package.finetune(model, rows() if data is None else data, settings=settings, **(FAST | options))


@pytest.mark.parametrize(
    ("options", "done"),
    [
        ({"class_weights": "balanced"}, "class_weights=balanced"),
        ({"class_weights": {"yes": 10}}, "class_weights={'yes': 10.0}"),
        ({"sampling": "balanced"}, "sampling=balanced"),
        ({"loss": "focal", "focal_gamma": 1.5}, "loss=focal (focal_gamma=1.5)"),
        ({"weight": "w"}, "weights of rows in 'w'"),
    ],
)
def test_the_report_names_rare_labels_and_what_was_done(model: Path, options: dict[str, Any], done: str) -> None:
    run = trained(model, **options)
    rare = run.results["rare_labels"]
    assert rare["done"] == [done]
    (label,) = rare["labels"]
    assert (label["label"], label["train"], label["dev"]) == ("yes", 7, 1)
    page = run.report.read_text()
    assert "Rare labels" in page
    assert "hardly learned" not in " ".join(run.results["notes"])
    name, value = next(iter(options.items()))
    saved = (run.folder / "run.yaml").read_text()
    assert f"{name}: {value}" in saved or f"{name}:\n  'yes': 10" in saved


def test_a_warning_says_that_nothing_was_done(model: Path) -> None:
    run = trained(model)
    assert "'yes': fewer than 10 training examples" in " ".join(run.results["notes"])
    assert run.results["rare_labels"]["done"] == []
    plenty = trained(model, rows(200, rare=2))
    assert "rare_labels" not in plenty.results
    assert "hardly" not in " ".join(plenty.results["notes"])


def test_options_do_what_arguments_do(model: Path, table: Path, tmp_path: Path, bertie: CommandLine) -> None:
    ours = trained(
        model, table, class_weights={"yes": 10, "no": 0.5}, weight="w", loss="focal", label_smoothing=0.1, lr=1e-4
    )
    bertie.good(
        *("finetune", model, "--train", table, "-o", tmp_path / "run", "--class-weights", "yes=10,no=0.5"),
        *("--weight", "w", "--loss", "focal", "--label-smoothing", "0.1", "--lr", "1e-4", "--batch-size", "16"),
        *OPTIONS,
    )  # fmt: skip
    theirs = json.loads((tmp_path / "run/results.json").read_text())
    assert theirs["dev"] == ours.results["dev"]
    assert theirs["dev"]["weighted"]
    assert theirs["rare_labels"] == ours.results["rare_labels"]


def test_evaluation_weighs_rows(model: Path, table: Path, tmp_path: Path, bertie: CommandLine) -> None:
    run = trained(model, table, output=tmp_path / "run")
    scores = package.evaluate(run.folder, table, weight="w")
    out = json.loads(bertie.good("evaluate", run.folder, table, "--weight", "w", "--json"))
    assert out["accuracy"] == scores["accuracy"]
    answers = package.predict(run.folder, [row["text"] for row in rows()])
    right = [answer.label == row["label"] for answer, row in zip(answers, rows(), strict=True)]
    assert scores["accuracy"] == pytest.approx(np.average(right, weights=[row["w"] for row in rows()]))


def test_weights_change_what_is_learned(model: Path) -> None:
    """With all weight on one label, it is predicted."""
    for label in ("no", "yes"):
        weights = {one: float(one == label) for one in ("no", "yes")}
        run = trained(model, rows(200, rare=2), class_weights=weights, epochs=8)
        assert {answer.label for answer in package.predict(run.folder, ["a b", "c d", "e f"])} == {label}


def test_a_loss_of_ones_own(model: Path) -> None:
    seen: list[tuple[int, ...]] = []

    def loss(logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append(tuple(logits.shape))
        rows = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
        return (weights * rows).sum(), weights.sum()

    own, usual = trained(model, loss=loss), trained(model)
    assert own.results["dev"]["accuracy"] == usual.results["dev"]["accuracy"]
    one, other = (run.model.module.state_dict() for run in (own, usual))
    assert all(torch.allclose(one[name], other[name], atol=1e-6) for name in one)
    assert {shape[1] for shape in seen} == {2}
    assert "loss: function" in (own.folder / "run.yaml").read_text()
    numbers = [(row["text"], float(i)) for i, row in enumerate(rows(60))]

    def absolute(logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, float]:
        return (weights * (logits[:, 0] - labels).abs()).sum(), float(weights.sum())

    assert trained(model, numbers, task="regression", loss=absolute).scores["examples"] == 6
    with pytest.raises(UsageError, match="needs the function itself"):
        trained(model, settings={"loss": "function"})
    with pytest.raises(UsageError, match="loss function returned Tensor; a tuple"):
        trained(model, loss=lambda logits, labels, weights: logits.sum())


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"class_weights": {"yess": 2}}, r"class_weights has 'yess', which is no label. Did you mean 'yes'\?"),
    ({"class_weights": {"yes": -1}}, "the weight of 'yes' is -1; a number of 0 or more"),
    ({"class_weights": {"yes": 0, "no": 0}}, "all labels of the training examples have the weight 0"),
    ({"class_weights": "even"}, "class_weights"),
    ({"sampling": "equal"}, "sampling"),
    ({"label_smoothing": 1.0}, "label_smoothing"),
    ({"loss": "hinge"}, "loss"),
    ({"focal_gamma": -1.0}, "focal_gamma"),
    ({"weight": "weights"}, r"train has no column 'weights'. Did you mean 'w'|train has no column 'weights'"),
    ({"task": "few-shot", "class_weights": "balanced"}, "class_weights has no effect under task=few-shot"),
    ({"task": "embed", "loss": "focal"}, "loss=focal has no effect under task=embed"),
    ({"task": "multilabel", "sampling": "balanced"}, "sampling has no effect under task=multilabel. Omit it. Tasks"),
    ({"task": "regression", "label_smoothing": 0.1}, "label_smoothing has no effect under task=regression"),
    ({"task": "embed", "weight": "w"}, "weight has no effect under task=embed"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=lambda one: str(one)[:40])
def test_what_is_wrong_is_said_and_nothing_is_written(
    model: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((UsageError, DataError), match=message):
        trained(model, output=tmp_path / "run", **options)
    assert not (tmp_path / "run" / "run.yaml").exists()


@pytest.mark.parametrize(
    ("value", "message"),
    [("abc", "has 'abc'"), (-1, "has '-1'"), (None, "is empty"), (float("inf"), "has 'inf'"), ("", "is empty")],
)
def test_a_bad_weight_names_row_and_column(model: Path, value: Any, message: str) -> None:
    data = rows()
    data[6]["w"] = value
    with pytest.raises(DataError, match=f"train, row 7: the weight column 'w' {message}; a number of 0 or more"):
        trained(model, data, weight="w")
    with pytest.raises(DataError, match="The weight column 'w' is 0 in all training rows"):
        trained(model, [{**row, "w": 0} for row in rows()], weight="w")


def test_a_task_whose_scores_have_no_weights_says_so(model: Path, tmp_path: Path) -> None:
    numbers = [{**row, "label": float(i)} for i, row in enumerate(rows(60))]
    run = trained(model, numbers, task="regression", weight="w", output=tmp_path / "run")
    assert "the scores of this task have none" in " ".join(run.results["notes"])
    with pytest.raises(UsageError, match="The metrics of this task have no weights of rows"):
        package.evaluate(run.folder, numbers, weight="w")


def test_scikit_learn_has_weights_of_rows_and_classes(model: Path) -> None:
    X, y = [row["text"] for row in rows()], [row["label"] for row in rows(200, rare=2)]
    options = {"epochs": 8, "lr": 1e-3, "max_length": 16, "precision": "fp32", "batch_size": 16}
    for label in ("no", "yes"):
        weights = [float(one == label) for one in y]
        fitted = TextClassifier(model, **options).fit(X, y, sample_weight=weights)
        assert {*fitted.predict(X[:20])} == {label}
        weight = {one: float(one == label) for one in ("no", "yes")}
        fitted = TextClassifier(model, class_weight=weight, **options).fit(X, y)
        assert {*fitted.predict(X[:20])} == {label}
    assert TextClassifier(model, class_weight="balanced").get_params()["class_weight"] == "balanced"
    numbers = TextClassifier(model, class_weight={0: 1, 1: 0}, **options).fit(X, [int(one == "yes") for one in y])
    assert {*numbers.predict(X[:20])} == {0}
    pairs = [[text, "a"] for text in X]
    assert len(TextRegressor(model, **FAST).fit(pairs, range(200), sample_weight=np.ones(200)).predict(pairs[:3])) == 3
    with pytest.raises(InputError, match="at least one non-zero number"):
        TextClassifier(model, **options).fit(X, y, sample_weight=np.zeros(200))
    with pytest.raises(UsageError, match="class_weights has 'maybe', which is no label"):
        TextClassifier(model, class_weight={"maybe": 1}, **options).fit(X, y)


@pytest.mark.parametrize("weights", ["yes=10,no=0.5", "{yes: 10, no: 0.5}", '{"yes": 10, "no": 0.5}'])
def test_weights_are_pairs_or_a_mapping(
    weights: str, model: Path, table: Path, tmp_path: Path, bertie: CommandLine
) -> None:
    run = tmp_path / "run"
    bertie.good("finetune", model, "--train", table, "-o", run, "--class-weights", weights, *OPTIONS)
    assert settings.parse_yaml((run / "run.yaml").read_text())["class_weights"] == {"yes": 10, "no": 0.5}  # type: ignore[index]


@pytest.mark.parametrize("value", ["nan", "x", "inf"])
def test_a_weight_that_is_no_number_is_named(value: str, tmp_path: Path, bertie: CommandLine) -> None:
    (tmp_path / "t.csv").write_text("text,label\na,spam\nb,ham\n")
    code, _, err = bertie("finetune", tmp_path, "--train", "t.csv", "--class-weights", f"spam={value}", "-o", "run")
    told = " ".join(err.split())
    assert code == 2
    assert f"class_weights.spam: Input should be a {'valid' if value == 'x' else 'finite'} number" in told
    assert "literal" not in told
