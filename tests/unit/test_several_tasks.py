"""Several tasks on one encoder: their order, their losses, one folder whose heads answer alone or together."""

import itertools
import json
import random
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import bertie
from bertie.api.run import commands_after
from bertie.errors import DataError, UsageError
from bertie.infer.predict import Predictor
from bertie.io.tables import Example
from bertie.metrics.confusion import Confusion
from bertie.metrics.numbers import Numbers
from bertie.metrics.several import SeveralScores
from bertie.order import MixedOrder, taken
from bertie.runs.config import FinetuneConfig
from bertie.runs.examples import read_examples
from bertie.runs.finetune import run_finetune
from bertie.runs.weights import load_model as load_module
from bertie.settings import load_config
from bertie.tasks.regression import RegressionTask
from bertie.tasks.sequence import SequenceTask
from bertie.tasks.several import SeveralTask
from bertie.tasks.source import batch_of_examples
from bertie.text.tokenizer import Tokenizer
from nano import one_thread
from toys import CommandLine, toy_model, toy_writer

LETTERS = [*string.ascii_lowercase, *("##" + c for c in string.ascii_lowercase)]


def test_an_epoch_has_as_many_of_each_as_said() -> None:
    order = MixedOrder((10, 3), [4, 6], seed=5)
    found = np.concatenate([order.sample_ids(step, 7) for step in range(30)])  # 21 epochs of 10
    assert ((found.reshape(21, 10) < 10).sum(1) == 4).all()
    large, small = np.bincount(found, minlength=13)[:10], np.bincount(found, minlength=13)[10:]
    assert large.sum() == 84
    assert large.max() - large.min() <= 2, "each in turn; the last turn and the epoch that it began in are cut"
    assert small.tolist() == [42, 42, 42]
    halves = [order.sample_ids(3, 7, rank=rank, world=2) for rank in range(2)]
    assert np.concatenate(halves).tolist() == order.sample_ids(3, 7).tolist()


def test_shares_are_sizes_to_a_power_with_a_cap() -> None:
    assert taken([100, 300]) == [100, 300]
    assert taken([100, 300], cap=100) == [100, 100]
    assert taken([100, 400], exponent=0.5) == [167, 333]  # 10 to 20
    assert taken([100, 300], exponent=0.0) == [200, 200]


@pytest.fixture(scope="module")
def several() -> SeveralTask:
    parts = {
        "words": (SequenceTask(labels=("a", "b", "c")), 1, "accuracy"),
        "score": (RegressionTask(), 2, "pearson"),
        "pairs": (SequenceTask(labels=("no", "yes")), 2, "accuracy"),
    }
    return SeveralTask.of(parts)


def test_each_example_is_learned_at_its_head(several: SeveralTask, tmp_path: Path) -> None:
    """Against the losses of each task alone on its columns."""
    assert several.labels == ("words/a", "words/b", "words/c", "score/score", "pairs/no", "pairs/yes")
    tokenizer = Tokenizer.load(toy_model(tmp_path / "m", LETTERS))
    examples = [
        Example(("a",), ("words", "c")),
        Example(("a", "b"), ("score", 2.5)),
        Example(("b c", "b"), ("pairs", "yes")),
        Example(("d",), ("words", "unknown")),
        Example(("e",), ("words", "a")),
    ]
    encoded = several.encode(examples, tokenizer, max_length=16, too_long="truncate")
    batch = batch_of_examples(encoded, np.arange(5), several.targets(examples, encoded))
    torch.manual_seed(0)
    logits = torch.randn(5, 6, requires_grad=True)
    found = several.losses(logits, batch)["heads"]
    expected = (
        torch.nn.functional.cross_entropy(logits[[0, 4], :3], torch.tensor([2, 0]), reduction="sum")
        + (logits[1, 3] - 2.5) ** 2
        + torch.nn.functional.cross_entropy(logits[[2], 4:], torch.tensor([1]), reduction="sum")
    )
    torch.testing.assert_close(found.total, expected)
    assert found.count == several.counts(batch)["heads"] == 4
    (grad,) = torch.autograd.grad(found.total, logits)
    assert (grad[1] != 0).tolist() == [False, False, False, True, False, False]
    answers = several.decode(logits.detach().numpy(), encoded, examples)
    assert answers[2].label["pairs"] == ("yes" if logits[2, 5] > logits[2, 4] else "no")
    assert answers[1].label["score"] == pytest.approx(float(logits[1, 3].detach()))


def test_scores_of_all_are_those_of_each() -> None:
    parts: dict[str, Any] = {"x": (Confusion(("a", "b")), "accuracy"), "z": (Numbers(), "pearson")}
    scores = SeveralScores({**parts, "y": (Numbers(), "pearson")})
    truth: list[Any] = [("x", "a"), ("x", "b"), ("y", 1.0), ("y", 2.0), ("y", 4.0)]
    scores.add(truth, [("x", "a"), ("x", "a"), *truth[2:]])
    assert scores.compute() == {"x/accuracy": 0.5, "y/pearson": pytest.approx(1.0), "mean": pytest.approx(0.75)}
    report = scores.report()
    assert (report["examples"], report["parts"]["x"]["accuracy"]) == (5, 0.5)
    low, high = report["interval_95"]["mean"]
    assert low < 0.75 <= high + 1e-9
    assert report["undefined"] == {}
    flat = SeveralScores({"y": (Numbers(), "pearson")})
    flat.add([("y", 1.0), ("y", 1.0)], [("y", 1.0), ("y", 2.0)])
    assert flat.report()["undefined"] == dict.fromkeys(("y/pearson", "y/spearman"), "every example has the number 1")


def write_tables(folder: Path) -> None:
    """Whether a text has an x; how many y a pair has."""
    draw = random.Random(0)
    texts = [" ".join(draw.choices("abcxy", k=3)) for _ in range(160)]
    rows: list[dict[str, Any]] = [{"text": text, "label": "yes" if "x" in text else "no"} for text in texts]
    (folder / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = itertools.pairwise(texts)
    rows = [{"text1": a, "text2": b, "label": (a + b).count("y")} for a, b in pairs]
    (folder / "y.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def settings(folder: Path, **values: Any) -> FinetuneConfig:
    mix = [
        {"name": "x", "train_file": str(folder / "x.jsonl")},
        {"name": "y", "task": "regression", "train_file": str(folder / "y.jsonl")},
    ]
    tree = {"task": "several", "mix": mix, "epochs": 15, "max_length": 24, "optim": {"lr": 5e-3}}
    loop = {"batch_size": 16, "precision": "fp32", "eval_every": 1000}
    return FinetuneConfig.model_validate({**tree, "train": loop, **values})


def test_a_number_keeps_its_threshold() -> None:
    parts = {"sts": (RegressionTask(threshold=3.0), 2, "pearson"), "rte": (SequenceTask(("no", "yes")), 2, "accuracy")}
    task = SeveralTask.of(parts)
    again = SeveralTask.make((), task.settings())
    assert again == task
    scores = again.scores()
    scores.parts["sts"][0].add([1.0, 2.0, 4.0], [1.5, 2.5, 3.5])
    assert scores.parts["sts"][0].compute()["f1"] == 1.0


def test_two_tasks_on_one_encoder(tmp_path: Path, monkeypatch, capsys) -> None:
    write_tables(tmp_path)
    start = toy_model(tmp_path / "start", LETTERS)
    with one_thread():
        results = run_finetune(settings(tmp_path, model=str(start)), tmp_path / "run")
    assert results["dev"]["x/accuracy"] > 0.9, results["dev"]
    assert results["dev"]["y/pearson"] > 0.7, results["dev"]
    assert set(results["dev"]["parts"]) == {"x", "y"}
    folder = tmp_path / "run/model"
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    assert theirs.config.id2label == {0: "x/no", 1: "x/yes", 2: "y/score"}
    cli = CommandLine(monkeypatch, capsys)
    both = json.loads(cli.good("predict", folder, stdin="a x b\n"))
    assert both["label"] == {"x": "yes"}
    assert both["heads"]["y"] == {"error": "This head reads pairs of texts."}
    (tmp_path / "pair.csv").write_text("text1,text2\na x b,a y\n")
    pair = json.loads(cli.good("predict", folder, tmp_path / "pair.csv"))
    assert (set(pair["label"]), pair["heads"]["x"]) == ({"y"}, {"error": "This head reads single texts."})
    alone = json.loads(cli.good("predict", folder, "--head", "x", stdin="a x b\n"))
    assert (alone["label"], alone["scores"]) == ("yes", both["heads"]["x"]["scores"])
    assert Predictor(load_module(folder), head="y").pipeline.texts == 2
    with pytest.raises(DataError, match="reads pairs of texts"):
        bertie.predict(folder, ["a"], head="y")
    (tmp_path / "one.csv").write_text("text\na x\n")
    code, _, err = cli("predict", folder, tmp_path / "one.csv", "--head", "y")
    assert (code, "pairs of texts" in " ".join(err.split())) == (3, True)
    told = json.loads(cli.good("evaluate", folder, tmp_path / "x.jsonl", "--head", "x", "--json"))
    assert told["accuracy"] > 0.9
    pairs = [{"sentence1": "a", "sentence2": "b y", "labels": {"real-label": n}} for n in (1.0, 2.0, 4.0)]
    (tmp_path / "klue-sts-v1.1_dev.json").write_text(json.dumps(pairs))
    published = cli.good("evaluate", folder, "--data", "klue-sts", "--data-dir", tmp_path, "--head", "y")
    assert ("pearson" in published, "f1" in published) == (True, True), "f1 has the threshold of the set"
    assert commands_after(folder)[1].endswith("FILE --head x")
    code, _, err = cli("evaluate", folder, tmp_path / "x.jsonl")
    assert code == 2
    assert "--head" in err
    code, _, err = cli("predict", folder, "--head", "z", stdin="a\n")
    assert (code, "no head 'z'" in err) == (2, True)


def test_texts_of_several_tasks_are_told_apart_by_their_templates(tmp_path: Path) -> None:
    """T5's way: one model, and the text says what to do. The report has the metric of each task."""
    rows = [{"text": f"{a} {b}", "label": f"{b} {a}"} for a in "abcdef" for b in "abcdef" if a != b]
    (tmp_path / "swap.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "same.jsonl").write_text("".join(json.dumps({**row, "label": row["text"]}) + "\n" for row in rows * 3))
    mix = [{"name": n, "train_file": str(tmp_path / f"{n}.jsonl"), "template": n[1] + " {}"} for n in ("swap", "same")]
    options: dict[str, Any] = {"model": str(toy_writer(tmp_path / "start")), "task": "text2text", "mix": mix}
    options |= {"mix_exponent": 0.5, "epochs": 2, "task_options": {"max_target_length": 6}}
    found = read_examples(settings(tmp_path, **options))
    assert {(example.texts[0][:2], example.share) for example in found.train} == {("w ", "swap"), ("a ", "same")}
    assert found.sizes == (27, 81)
    assert found.taken == (40, 68)  # 108 in proportion to the roots
    with one_thread():
        results = run_finetune(settings(tmp_path, **options), tmp_path / "run")
    assert results["dev"]["examples"] == 12
    slices = json.loads((tmp_path / "run/findings.json").read_text())["slices"]["task"]
    assert [(row["name"], row["examples"]) for row in slices] == [("same", 9), ("swap", 3)]


def test_a_mix_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"mix\.0\.name.*at least 1 character"):
        load_config(FinetuneConfig, overrides=["model=m", 'mix=[{name: "", data: rte}]'])
    write_tables(tmp_path)
    mix = settings(tmp_path, model="m").model_dump()["mix"]
    for values, why in [
        ({"task": "sequence"}, "task=several"),
        ({"mix": mix[:1]}, "two or more"),
        ({"train_file": "t.csv"}, "own files"),
        ({"dev_file": "d.csv", "label": "y"}, "Omit dev_file, label"),
        ({"task_options": {"x": 1}}, "no options"),
        ({"mix": [mix[0], {**mix[0], "name": "t", "task": "multilabel"}]}, "neither"),
        ({"mix": [mix[0], {"name": "t"}]}, "mix, t: No training examples"),
    ]:
        with pytest.raises(UsageError, match=why):
            run_finetune(settings(tmp_path, model=str(tmp_path), **values), tmp_path / "run")
