"""What people tried first, and what they were told: texts in the place of paths, weights of zero, odd indexes."""

from pathlib import Path
from typing import Any

import pytest
import torch

import bertie
from bertie.apps.explain.targets import _choose
from bertie.errors import DataError, UsageError
from bertie.models import families
from bertie.models.facts import Facts
from bertie.models.model import TorchModel
from bertie.runs.weights import load_model
from bertie.tasks import with_task
from bertie.tasks.sequence import SequenceTask
from bertie.text.tokenizer import Tokenizer
from toys import TOY_WORDS, toy_model

LONG = "a long text " * 100


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier that predicts the second label from a probability of 0.01 on."""
    place = tmp_path_factory.mktemp("toy")
    task = SequenceTask(("no", "yes"), threshold=0.01)
    model, _ = families.load(toy_model(place / "start", TOY_WORDS), heads=task.heads)
    model.labels, model.training_facts = task.labels, with_task(model.training_facts, task)
    model.tokenizer = Tokenizer.load(place / "start")
    model.save_pretrained(place / "model")
    return place / "model"


def test_explanations_are_of_the_label_that_a_threshold_chooses(folder: Path) -> None:
    model: TorchModel = load_model(folder)
    assert Facts.of(model).training_facts.task == "sequence"
    assert _choose(model, torch.tensor([3.0, 0.0]), "") == 1  # 0.05 is above the threshold
    assert _choose(model, torch.tensor([9.0, 0.0]), "") == 0
    assert _choose(model, torch.tensor([3.0, 0.0]), "no") == 0
    assert bertie.predict(folder, ["a b"]).labels == ["yes"]
    assert "label yes" in bertie.load(folder).explain("a b").about


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda _: bertie.train_tokenizer(["a b c", "d e f"], "t", size=30), "iter\\(texts\\)"),
        (lambda _: bertie.build_corpus([LONG], output="c"), "iter\\(texts\\)"),
        (lambda _: bertie.build_corpus(LONG, output="c"), "is no file"),
        (lambda folder: bertie.predict(folder, LONG), "must be a list of texts"),
        (lambda folder: bertie.embed(folder, LONG), "must be a list of texts"),
        (lambda _: bertie.load(LONG), "too long for the name"),
        (lambda folder: bertie.finetune(folder, [{"text": "a", "label": "b"}], seeds=0), "1 or more"),
    ],
    ids=["tokenizer", "corpus of texts", "corpus of a text", "predict", "embed", "load", "seeds"],
)
def test_a_text_is_no_path(folder: Path, call: Any, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=told):
        call(folder)
    assert [*tmp_path.iterdir()] == []


def test_weights_of_zero_have_no_metric(folder: Path) -> None:
    rows = [{"text": "a", "label": "yes", "w": 0}, {"text": "b", "label": "no", "w": 0}]
    with pytest.raises(DataError, match="0 in all rows"):
        bertie.evaluate(folder, rows, weight="w")
    train = [row | {"w": 1} for row in rows * 4]
    with pytest.raises(DataError, match="0 in all dev rows"):
        bertie.finetune(folder, train, dev=rows, weight="w")


def test_predictions_keep_the_index_of_pandas(folder: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["a", "b", "a b"]}, index=[7, 7, 2])
    for data in (frame, frame["text"]):
        predictions = bertie.predict(folder, data)
        assert predictions.to_pandas().index.tolist() == [7, 7, 2]
        assert predictions[1:].to_pandas().index.tolist() == [7, 2]
    assert bertie.predict(folder, ["a", "b"]).to_pandas().index.tolist() == [0, 1]


def test_a_run_that_is_not_kept_gives_no_advice_about_its_folder(folder: Path) -> None:
    class Breaks(bertie.Callback):
        def on_step(self, run: Any, step: int, metrics: Any) -> None:
            raise RuntimeError("of the user")

    rows = [{"text": text, "label": label} for text, label in (("a", "yes"), ("b", "no")) * 6]
    with pytest.raises(RuntimeError, match="of the user") as caught:
        bertie.finetune(folder, rows, dev=rows, epochs=1, max_length=32, device="cpu", callbacks=[Breaks()])
    assert caught.value.__notes__ == [
        "Nothing is kept without output. Pass a folder, and the same call resumes the run."
    ]


def test_columns_of_one_name_are_told(folder: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([["a", "yes", "no"]], columns=["text", "label", "label"])
    for call in (
        lambda: bertie.predict(folder, frame),
        lambda: bertie.evaluate(folder, frame),
        lambda: bertie.finetune(folder, frame),
        lambda: bertie.embed(folder, frame),
    ):
        with pytest.raises(UsageError, match="several columns named 'label'"):
            call()
