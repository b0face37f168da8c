"""Smaller models by trial, through the command line: measured, resumable, and kept only within the limits."""

import json
import shutil

import numpy as np
import pytest

import bertie as library
from bertie.apps.compress import run as compressing
from bertie.apps.compress.page import _front
from bertie.apps.compress.run import CompressionLimits, _beats
from bertie.compression.prune import Recipe
from bertie.io.tables import Example
from bertie.metrics.answers import QaPrediction
from bertie.models import families
from bertie.models.config import EncoderConfig
from bertie.models.kinds import Groups
from bertie.runs.weights import load_model as load_module
from bertie.tasks import Prediction
from bertie.tasks.sequence import SequenceTask
from bertie.text.tokenizer import Tokenizer
from toys import toy_model

LETTERS = [*"abcdefgh", *("##" + c for c in "abcdefgh")]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "teacher"
    toy_model(folder, LETTERS, num_hidden_layers=2, num_attention_heads=2)
    made = families.load(folder, heads=SequenceTask(("no", "yes")).heads, seed=1)[0]
    made.save_pretrained(folder, tokenizer=Tokenizer.load(folder), labels=("no", "yes"))
    return folder


@pytest.fixture(scope="module")
def files(model, tmp_path_factory):
    """Rows labelled by the teacher itself, to learn from and to measure on."""
    where = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice([*"abcdefgh", " "], size=rng.integers(6, 40))) + " a" for _ in range(160)]
    answers = library.predict(library.load(model), texts)
    rows = [f"{text},{answer.label}" for text, answer in zip(texts, answers, strict=True)]
    for name, some in (("train", rows[:100]), ("dev", rows[100:])):
        (where / f"{name}.csv").write_text("\n".join(["text,label", *some]))
    return where


@pytest.mark.parametrize(
    ("ours", "theirs", "agreement"),
    [
        (QaPrediction("Berlin", "Berlin", -3.1), QaPrediction("Berlin", "Berlin", -3.2), 1.0),
        (QaPrediction("", "Berlin", 0.1), QaPrediction("Berlin", "Berlin", -0.1), 0.0),
        ({"topic": "film", "stars": 2.1}, {"topic": "film", "stars": 2.2}, 1.0),
        ({"stars": 2.1}, {"stars": 2.1}, None),
        (2.1, 2.1, None),
    ],
)
def test_answers_agree_by_their_names_and_texts(ours, theirs, agreement):
    assert compressing._agreement([(Example(("a",)), Prediction(ours), Prediction(theirs))]) == agreement


def test_the_quickest_within_the_limits_is_kept(model, files, tmp_path, bertie, monkeypatch):
    few = [Recipe(neurons=32), Recipe(layers=1, learned="distilled")]
    monkeypatch.setattr(Recipe, "to_try", lambda config, **_: few)
    monkeypatch.setattr(compressing, "RESAMPLED", 1)
    out = tmp_path / "out"
    command = ("compress", model, "--train", files / "train.csv", "--dev", files / "dev.csv", "-o", out)
    common = ("--max-drop", "0.9", "--epochs", "1")
    code, _, err = bertie(*command, *common, "--minutes", "0")  # nothing is begun
    assert (code, "No model was measured" in err) == (3, True)
    stopped = json.loads((out / "results.json").read_text())
    assert (stopped["tried"], stopped["chosen"], stopped["wanted"]) == ([], None, 2)
    found = json.loads(bertie.good(*command, *common, "--json"))
    assert [row["name"] for row in found["tried"]] == ["32 neurons", "1 layer, distilled"]
    narrow, half = found["tried"]
    assert narrow["bytes"] < found["teacher"]["bytes"]
    assert found["teacher"]["accuracy"] == 1.0
    assert narrow["accuracy"] == pytest.approx(1 + narrow["difference"]["difference"])
    assert half["kept"]
    assert narrow["agreement"] == pytest.approx(narrow["accuracy"])  # the rows have the answers of the teacher itself
    chosen = load_module(out / "model")
    assert found["chosen"] in (out / "model" / "README.md").read_text()
    assert chosen.config.num_hidden_layers == (1 if found["chosen"] == half["name"] else 2)
    page = (out / "report.html").read_text()
    assert "1 layer, distilled" in page
    assert "<svg" in page
    assert not (out / "training").exists()
    lines = (out / "tried.jsonl").read_text()
    again = json.loads(bertie.good(*command, *common, "--json"))  # nothing is made again
    assert (out / "tried.jsonl").read_text() == lines
    assert [row["seconds"] for row in again["tried"]] == [row["seconds"] for row in found["tried"]]
    shutil.rmtree(out / narrow["folder"])  # made again
    code, _, err = bertie(*command, "--max-drop", "0", "--speed", "1000x", "--epochs", "1")
    assert code == 3
    assert "None of 2 models is within the limits" in " ".join(err.split())
    assert (out / narrow["folder"]).exists()
    assert not (out / "model").exists()
    (out / "tried.jsonl").write_text("{\n" + lines)
    code, _, err = bertie(*command, *common)
    assert (code, "tried.jsonl is not readable JSON" in " ".join(err.split())) == (3, True)
    code, _, err = bertie(*command, "--epochs", "2")
    assert code == 2
    assert "another epochs" in err


def test_short_texts_leave_out_what_they_cannot_calibrate(model, files, tmp_path, bertie, monkeypatch):
    monkeypatch.setattr(compressing, "RESAMPLED", 1)
    given = []
    monkeypatch.setattr(Recipe, "to_try", lambda config, **asked: given.append(asked) or [Recipe(neurons=32)])
    train, dev = files / "train.csv", files / "dev.csv"  # 100 texts to train on, with fewer than 2,600 tokens
    bertie.good("compress", model, "--train", train, "--dev", dev, "--max-drop", "1", "-o", tmp_path / "out")
    assert given == [{"learns": True, "int8": False, "int4": False}]


def test_bad_input_is_refused_in_one_line(model, files, tmp_path, bertie):
    data = ("--dev", files / "dev.csv")
    (tmp_path / "bare.csv").write_text("text\nabc\n")
    for arguments, code, said in (
        ((*data, "--layers", "1"), 2, "Bertie chooses what to try"),
        ((*data, "--max-size", "small"), 2, "--max-size is 'small'"),
        ((*data, "--speed", "fast"), 2, "--speed is 'fast'"),
        (("--max-size", "3MB", "--texts", files / "dev.csv"), 2, "need labeled examples"),
        (data, 2, "There is nothing to try"),
        (("--neurons", "32"), 2, "--train"),
        (("--neurons", "9999", "--train", files / "train.csv"), 2, "each layer has 64"),
        (("--trim",), 2, "No texts given"),
        (("--distil", "--train", files / "train.csv"), 2, "--distil, --layer-wise and --movement need --train"),
        (("--dev", tmp_path / "bare.csv"), 3, "label"),
    ):
        found, _, err = bertie("compress", model, *arguments, "-o", tmp_path / "out")
        assert (found, said in " ".join(err.split())) == (code, True), (arguments, err)
        assert not (tmp_path / "out").exists()


def test_cuts_alone(model, files, tmp_path, bertie):
    texts = tmp_path / "texts.txt"
    texts.write_text("abc a\nb c d\n")
    bertie.good("compress", model, "--layers", "1", "--trim", "--texts", texts, "-o", tmp_path / "trimmed")
    small = load_module(tmp_path / "trimmed")
    assert (small.config.num_hidden_layers, small.config.vocab_size) == (1, 11)  # five special, a b c d ##b ##c
    bertie.good("compress", model, "--heads", "1", "--train", files / "train.csv", "-o", tmp_path / "narrow")
    assert load_module(tmp_path / "narrow").config.attention_size == 16
    student = ("compress", model, "--layers", "1", "--distil", "--train", files / "train.csv", "--epochs", "1")
    (tmp_path / "student-training").mkdir()  # of the user
    bertie.good(*student, "-o", tmp_path / "student")
    assert load_module(tmp_path / "student").config.num_hidden_layers == 1
    assert (tmp_path / "student-training").exists()
    assert not (tmp_path / ".student.training").exists()


def test_what_is_tried():
    base = EncoderConfig()
    found = Recipe.to_try(base, learns=True, int8=True)
    names = [one.name for one in found]
    assert names[0] == "int8"
    assert "6 layers, distilled" in names
    assert "6 layers, 1536 neurons, distilled, int8" in names
    assert "6 heads, 1536 neurons, distilled" in names
    assert "6 heads, 1536 neurons, distilled, int8" in names
    for one in found:  # what is quantized was made before
        assert one.bits is None or one.in_float == Recipe() or names.index(one.in_float.name) < names.index(one.name)
    assert Recipe.to_try(base, learns=False, int8=True) == [Recipe(bits=8)]
    small = Recipe.to_try(base, learns=False, int8=True, int4=True)
    assert small == [Recipe(bits=8), Recipe(bits=4, embeddings=4)]
    shared = base.replace(sharing="groups", num_hidden_groups=1, inner_group_num=1)
    assert isinstance(shared.sharing, Groups)
    assert Recipe.to_try(shared, learns=True, int8=False) == []


def test_limits_and_the_front():
    def row(size: float, faster: float, metric: float, near: bool | None = None) -> dict:
        apart = {"difference": metric - 0.9}
        return {"bytes": size, "rate": {"faster": faster}, "f1": metric, "difference": apart, "near": near}

    good = row(10, 2, 0.895)
    assert CompressionLimits(0.01).kept(good)
    assert not CompressionLimits(0.001).kept(good)
    assert not CompressionLimits(0.01, bytes=9).kept(good)
    assert not CompressionLimits(0.01, faster=2.5).kept(good)
    assert CompressionLimits(0.01).kept(row(10, 2, 0.895, near=False))  # the metric decides
    assert _beats(row(9, 2, 0.895), good, "f1")
    assert not _beats(row(9, 1.9, 0.895), good, "f1")
    assert not _beats(good, good, "f1")
    points = {"a": (1.0, 0.9), "b": (3.0, 0.8), "c": (2.0, 0.7), "twin": (3.0, 0.8)}
    assert _front(points) == ["a", "b", "twin"]  # no line goes down and up again
