"""Tags and spans as a user meets them, with a model small enough to learn a toy in a second: where is the z?"""

import csv
import io
import json
import random
import string
import sys
from pathlib import Path

import pytest
import torch

from bertie.console import Verbosity, console
from bertie.models.heads.features import FeatureHead
from bertie.program import main
from toys import toy_model

FAST = ["optim.lr=3e-3", "train.batch_size=16", "train.precision=fp32", "max_length=24"]


def texts(n: int, *, seed: int = 0) -> list[str]:
    """n texts of letters, two of three with one z."""
    rng = random.Random(seed)
    found = []
    for i in range(n):
        letters = [rng.choice("abcdef") for _ in range(rng.randint(3, 30))]
        if i % 3:
            letters[rng.randrange(len(letters))] = "z"
        found.append(" ".join(letters))
    return found


def write_tags(path: Path, found: list[str]) -> Path:
    tags = {"z": "B-Z"}
    path.write_text("\n\n".join("\n".join(f"{w} {tags.get(w, 'O')}" for w in text.split()) for text in found))
    return path


def write_questions(path: Path, found: list[str], *, always: bool) -> Path:
    qas = [
        {
            "context": text,
            "qas": [
                {
                    "id": f"q{i}",
                    "question": "q",
                    "answers": [{"text": "z", "answer_start": text.index("z")}] if "z" in text else [],
                }
            ],
        }
        for i, text in enumerate(found)
        if "z" in text or not always
    ]
    path.write_text(json.dumps({"data": [{"title": "letters", "paragraphs": qas}]}))
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return toy_model(tmp_path_factory.mktemp("pretrained"), string.ascii_lowercase, max_position_embeddings=32)


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command line in this process. -> exit code, standard output, standard error"""

    def run(*arguments: object, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(console, "verbosity", Verbosity())
        monkeypatch.setattr(sys, "argv", ["bertie", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as exit:
            main()
        return (exit.value.code, *capsys.readouterr())  # type: ignore[return-value]

    return run


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Models of this size are faster in one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("features", [None, "last"])
def test_tags_from_a_file_to_entities(run, model, tmp_path, features, monkeypatch):
    monkeypatch.setitem(FeatureHead.__init__.__kwdefaults__, "width", 48)  # a toy needs no 768
    train, dev = (write_tags(tmp_path / name, texts(n, seed=n)) for name, n in (("train.txt", 160), ("dev.txt", 40)))
    more = [] if features is None else [f"task_options.features={features}", "optim.lr=2e-2", "epochs=10"]
    code, out, err = run(
        *("finetune", model, "--task", "tagging", "--train", train, "--dev", dev, "-o", tmp_path / "run"),
        *("epochs=6", *FAST, *more),
    )
    assert code == 0, err
    assert "f1" in out
    saved = tmp_path / "run" / "model"
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["dev"]["f1"] > 0.9
    assert results["dev"]["words"] == sum(len(text.split()) for text in texts(40, seed=40))
    architecture = json.loads((saved / "config.json").read_text())["architectures"]
    assert architecture == ["BertForTokenClassification" if features is None else "BertieFeatures:last"]
    code, out, err = run("evaluate", saved, dev, "--json")
    report = json.loads(out)
    del results["dev"]["baselines"]  # learned from the training examples, which evaluate does not have
    assert report == {**report, **results["dev"]}
    code, out, err = run("predict", saved, stdin="a b z c\n \n")
    first, second = map(json.loads, out.splitlines())
    assert first["entities"] == [{"type": "Z", "text": "z", "start": 4, "end": 5}]
    assert [word["label"] for word in first["words"]] == ["O", "O", "B-Z", "O"]
    assert second["error"] == "empty text"
    code, out, err = run("predict", saved, dev, "--format", "conll", "-o", tmp_path / "tags.csv")
    assert code == 0, err
    rows = list(csv.DictReader((tmp_path / "tags.csv").open()))
    assert len(rows) == 40
    assert json.loads(rows[0]["words"])[0]["start"] == 0


def test_questions_from_a_file_to_answers(run, model, tmp_path):
    train, dev = (
        write_questions(tmp_path / name, texts(n, seed=n), always=False)
        for name, n in (("train.json", 200), ("dev.json", 50))
    )
    code, out, err = run(
        *("finetune", model, "--task", "span", "--train", train, "--dev", dev, "-o", tmp_path / "run"),
        *("epochs=8", *FAST, "task_options.stride=8"),
    )
    assert code == 0, err
    assert "read in windows" in err
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["dev"]["f1"] > 0.9
    assert results["dev"]["no_answer_exact_match"] > 0.8
    saved = tmp_path / "run" / "model"
    assert json.loads((saved / "config.json").read_text())["architectures"] == ["BertForQuestionAnswering"]
    threshold = json.loads((saved / "bertie.json").read_text())["task_options"]["threshold"]
    assert threshold != 0.0
    code, out, err = run("evaluate", saved, dev, "--json", "--engine", "torch")
    report = json.loads(out)
    assert report == {**report, **results["dev"]}
    assert report["f1"] == pytest.approx(report["best_f1"])  # tuned on these
    code, out, err = run("predict", saved, stdin="q\ta b z c\nq\ta b c\nq\t\n")
    first, second, third = map(json.loads, out.splitlines())
    assert (first["answer"], first["start"], first["end"]) == ("z", 4, 5)
    assert (second["answer"], second["start"]) == ("", None)
    assert second["no_answer_score"] > threshold >= first["no_answer_score"]
    assert "error" in third


def test_bad_files_get_one_clear_line(run, model, tmp_path):
    (tmp_path / "a.json").write_text('{"data": [{"paragraphs": [{"context": " ", "qas": [{"question": "q"}]}]}]}')
    code, _, err = run("finetune", model, "--task", "span", "--train", tmp_path / "a.json", "-o", tmp_path / "run")
    assert code == 3
    assert "empty context" in err
    code, _, err = run("finetune", model, "--task", "tagging", "--train", tmp_path / "a.json", "-o", tmp_path / "run")
    assert code == 3
    assert 'not an object with "tokens" and "tags"' in err
    bad = ["task_options.threshhold=1", "task_options.stride=0", "task_options.script=squad"]
    write_questions(tmp_path / "b.json", texts(40), always=True)
    for option in bad:
        code, _, err = run(
            *("finetune", model, "--task", "span", "--train", tmp_path / "b.json", "-o", tmp_path / "run", option)
        )
        assert code == 2, err
    assert not (tmp_path / "run").exists()
