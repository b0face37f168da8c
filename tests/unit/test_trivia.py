"""TriviaQA in its published layout: what is read, what is left out with a reason, and a run from it to SQuAD."""

import json
from pathlib import Path

import pytest

from bertie.errors import DataError
from bertie.io.lines import BadRecord
from bertie.io.questions import trivia
from bertie.io.tables import Example
from bertie.tasks import TASKS
from bertie.tasks.datasets import DATASETS
from toys import FAST, CommandLine, toy_model


def asked(name: str, answer: str, *pages: str, key: str = "EntityPages", aliases: tuple[str, ...] = ()) -> dict:
    return {
        "Question": f"Which {name}?",
        "QuestionId": name,
        "Answer": {"Value": answer, "Aliases": [answer, *aliases], "NormalizedValue": answer.lower()},
        key: [{"Filename": page, "Title": page} for page in pages],
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "triviaqa"
    for place in ("qa", "evidence/wikipedia", "evidence/web"):
        (home / place).mkdir(parents=True)
    long = " ".join(["word"] * 399 + ["Red", "blue"])
    texts = {"mill.txt": "The old mill, built by Ann Lee.\n\nAnn died.", "long.txt": long, "none.txt": "Annexes only."}
    for name, text in texts.items():
        (home / "evidence" / "wikipedia" / name).write_text(text)
    (home / "evidence" / "web" / "w.html.txt").write_text("It was ANN.")
    (home.parent / "secret.txt").write_text("Ann")
    data = [
        asked("builder", "Ann", "mill.txt", "none.txt", aliases=("Ann Lee", "Miss Lee")),
        asked("color", "red", "long.txt"),
        asked("other color", "blue", "long.txt"),
        asked("web", "Ann", "w.html.txt", key="SearchResults"),
        asked("lost", "Ann", "missing.txt", "../../../secret.txt"),
        {"Question": "no answer", "QuestionId": "x", "EntityPages": [{"Filename": "mill.txt"}]},
    ]
    for split in ("train", "dev"):
        (home / "qa" / f"wikipedia-{split}.json").write_text(json.dumps({"Data": data, "Domain": "Wikipedia"}))
    return home


def test_pairs_of_questions_and_documents(folder: Path) -> None:
    rows = list(trivia(folder / "qa" / "wikipedia-train.json"))
    found = {row.id: row for row in rows if isinstance(row, Example)}
    assert list(found) == ["builder--mill.txt", "color--long.txt", "web--w.html.txt"]
    first = found["builder--mill.txt"]
    assert first.label == (("Ann Lee", 23), ("Ann", 23)), "the longest of those that begin first"
    assert all(first.texts[1][start : start + len(text)] == text for text, start in first.label)
    assert found["color--long.txt"].label[0][0] == "Red", "in any case, and in the 400th word"
    assert found["web--w.html.txt"].label == (("ANN", 7),)
    reasons = [row.reason for row in rows if isinstance(row, BadRecord)]
    assert reasons == [
        "no answer in the first 400 words",
        "no answer in the first 400 words",
        "no file of the document",
        "a document outside the folder of evidence",
        "no question, answer or name of a document",
    ]


def test_the_task_reads_it_as_a_published_set(folder: Path) -> None:
    (path, format), *_ = DATASETS["triviaqa"].tables("train", folder.parent)
    assert sum(isinstance(row, Example) for row in TASKS["span"].rows(path, format)) == 3


@pytest.mark.parametrize(
    ("text", "message"), [("{", "not JSON"), ("[]", "format of TriviaQA"), ('{"Data": [1]}', "format")]
)
def test_another_file(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(DataError, match=message):
        list(trivia(tmp_path / "x.json"))


def test_a_run_from_it_to_squad(folder: Path, tmp_path: Path, bertie: CommandLine) -> None:
    model = toy_model(tmp_path / "model", ["ann", "mill", "the", "word"])
    sizes = ("max_length=64", "epochs=1", "train.micro_batch_size=2", *FAST)
    bertie.good(
        "finetune", model, "--data", "triviaqa", "--data-dir", folder, "-o", tmp_path / "run", "--seeds", 1, *sizes
    )
    context = "The old mill"
    answers = [{"text": "mill", "answer_start": 8}]
    frame = {
        "data": [
            {"paragraphs": [{"context": context, "qas": [{"id": str(i), "question": "What?", "answers": answers}]}]}
            for i in range(4)
        ]
    }
    (tmp_path / "train.json").write_text(json.dumps(frame))
    squad = tmp_path / "train.json"
    start = tmp_path / "run"
    bertie.good("finetune", start, "--task", "span", "--train", squad, "--dev", squad, "-o", tmp_path / "squad", *sizes)
    assert "f1" in bertie.good("evaluate", tmp_path / "squad", squad)
