"""A rare label: macro F1 leads, a warning says so, and every binary figure names its label, which can be chosen."""

import json
from pathlib import Path

import pytest

import bertie
from bertie.errors import UnknownLabel
from bertie.metrics.base import called, summarize_metrics, undefined
from bertie.metrics.confusion import Confusion, leading, rarest
from bertie.metrics.numbers import Numbers
from bertie.runs.compare import RunComparison
from toys import CommandLine, toy_model

FAST = ("epochs=1", "max_length=16", "train.precision=fp32", "label_check=none", "optim.lr=1e-3")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("m"), "abcdefghij")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("t") / "t.tsv"
    texts = [f"{a} {b} {c}" for a in "abcde" for b in "abcd" for c in "fg"]
    path.write_text("text\tlabel\n" + "".join(f"{t}\t{'ok' if n % 8 else 'bad_one'}\n" for n, t in enumerate(texts)))
    return path


def test_a_label_is_rare_below_a_fifth_and_half_of_an_equal_share() -> None:
    assert rarest({"a": 81, "b": 19}) == ("b", 0.19)
    assert rarest({"a": 80, "b": 20}) is None
    assert rarest(dict.fromkeys("abcdefgh", 10)) is None
    assert rarest({**dict.fromkeys("abc", 10), "d": 4}) == ("d", 4 / 34)
    assert rarest({}) is None


def test_the_label_of_f1_is_named_and_can_be_chosen() -> None:
    truth, predicted = ["x", "x", "y", "y", "y"], ["x", "y", "y", "y", "y"]
    for positive, label, value in (("", "y", 6 / 7), ("x", "x", 2 / 3)):
        scores = Confusion(("x", "y"), positive=positive)
        scores.add(truth, predicted)
        report = scores.report()
        assert report["positive"] == {"f1": label}
        assert report["f1"] == pytest.approx(value) == report["per_label"][label]["f1"]
        assert f"f1 of '{label}' {value:.3f}" in summarize_metrics(report, ["f1"])
    of_three = Confusion(("x", "y", "z"), positive="x")
    of_three.add(["y"], ["y"])
    assert "f1 of 'x'" in undefined(of_three.report())[1]
    numbers = Numbers(threshold=3.0)
    numbers.add([1.0, 4.0], [1.0, 3.5])
    assert called("f1", numbers.report()) == "f1 of '3 or more'"


def test_macro_f1_leads_where_a_label_is_rare(model: Path, table: Path, tmp_path: Path, bertie: CommandLine) -> None:
    run = tmp_path / "run"
    code, out, err = bertie("finetune", model, "--train", table, "--dev", table, "-o", run, *FAST)
    assert code == 0
    assert "'bad_one' is the label of only 12.5% of the training examples" in " ".join(err.split())
    assert "--positive bad_one" in " ".join(err.split())
    assert out.startswith("dev: macro_f1 ")
    assert json.loads((run / "results.json").read_text())["metrics"] == ["macro_f1", "accuracy"]
    assert bertie.good("evaluate", run, table).startswith("macro_f1 ")  # the model remembers it
    assert (
        leading(("accuracy", "macro_f1"), {"per_label": {"a": {"examples": 9}, "b": {"examples": 1}}})[0] == "macro_f1"
    )


def test_a_chosen_label_leads_and_is_named_everywhere(
    model: Path, table: Path, tmp_path: Path, bertie: CommandLine
) -> None:
    run, named = tmp_path / "run", "f1 of 'bad_one'"
    chosen = ("--positive", "bad_one")
    code, out, err = bertie("finetune", model, "--train", table, "--dev", table, "-o", run, *chosen, *FAST)
    assert (code, "only 12.5%" in err) == (0, False)
    assert out.startswith(f"dev: {named} ")
    assert out.count(named) >= 3, "the model's figure, and those of the baselines"
    results = json.loads((run / "results.json").read_text())
    assert (results["metrics"][0], results["dev"]["positive"]) == ("f1", {"f1": "bad_one"})
    assert f"| {named} |" in (run / "model/README.md").read_text()
    assert "F1 of &#x27;bad_one&#x27;" in (run / "report.html").read_text()
    assert next(iter(RunComparison("run", (run,)).finals)) == named
    assert bertie.good("evaluate", run, table).startswith(named)
    other = bertie.good("evaluate", run, table, "--positive", "ok")
    assert other.startswith("f1 of 'ok'")
    code, _, err = bertie("evaluate", run, table, "--positive", "bad")
    assert (code, "Did you mean 'bad_one'?" in " ".join(err.split())) == (2, True)


def test_the_label_is_chosen_from_python_too(model: Path, table: Path, tmp_path: Path) -> None:
    settings = {"epochs": 1.0, "max_length": 16, "label_check": "none", "baselines": False}
    config = bertie.FinetuneConfig(model=str(model), train_file=str(table), positive="bad_one", **settings)
    assert bertie.finetune(config=config, output=tmp_path / "run").results["metrics"][0] == "f1"
    report = bertie.evaluate(tmp_path / "run", table, positive="ok").to_dict()
    assert report["positive"] == {"f1": "ok"}
    assert report["f1"] == report["per_label"]["ok"]["f1"]


def test_tuning_names_the_label(model: Path, table: Path, tmp_path: Path, bertie: CommandLine) -> None:
    pytest.importorskip("optuna")
    run, vary = tmp_path / "tuned", ("--vary", "optim.lr=1e-3,3e-3")
    out = bertie.good("tune", model, "--train", table, "--positive", "bad_one", "-o", run, *vary, *FAST[:3])
    assert "f1 of 'bad_one'" in out
    assert "f1 of &#x27;bad_one&#x27;" in (run / "report.html").read_text()


@pytest.mark.parametrize("labels", ["xy", "xyz"])
def test_a_threshold_of_a_call_is_that_of_its_positive_label(labels: str, tmp_path: Path) -> None:
    rows = [(f"a {letter}", label) for letter in "abcdefghij" for label in labels]
    model = bertie.finetune(toy_model(tmp_path / "m", "abcdefghij"), rows, epochs=1, max_length=8).model
    for label in labels:
        for threshold, count in ((0.0, len(rows)), (1.0, 0)):
            confusion = model.evaluate(rows, positive=label, threshold=threshold).confusion
            assert sum(row[label] for row in confusion.values()) == count, (label, threshold)
    with pytest.raises(UnknownLabel, match="'w' does not exist"):
        model.evaluate(rows, positive="w", threshold=0.5)
