"""A run whose targets the loss would ignore stops before training, and what a file leaves unclear is noted."""

import json
import string
from pathlib import Path
from typing import Any

import pytest

from bertie.errors import UsageError
from bertie.io.table_format import TableFormat
from bertie.io.tables import SkipReport
from bertie.runs.config import FinetuneConfig
from bertie.runs.examples import read_examples
from bertie.tasks import TASKS
from bertie.tasks.multilabel import MultiLabelTask
from toys import FAST, CommandLine, toy_model

QUICK = ("epochs=1", "max_length=16", *FAST)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("toy"), string.ascii_lowercase)


def questions(path: Path, answers: Any) -> Path:
    rows = [{"context": f"a b {c} c b", "question": "q", "answers": answers} for c in string.ascii_lowercase[3:23]]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([{"text": "b"}], "20 of 20 training questions have an answer that occurs several times"),
        ([{"text": "z z"}], "that is not at the given position"),
        ([{"text": "a", "answer_start": 7}], "that is not at the given position"),
    ],
)
def test_questions_without_a_place(model: Path, tmp_path: Path, bertie: CommandLine, answers: Any, said: str) -> None:
    train = questions(tmp_path / "q.jsonl", answers)
    code, _, err = bertie("finetune", model, "--task", "span", "--train", train, "-o", tmp_path / "run", *QUICK)
    assert (code, "No training question has an answer whose place" in err, said in err) == (3, True, True), err
    assert not (tmp_path / "run").exists()


def test_answers_get_their_only_place(model: Path, tmp_path: Path, bertie: CommandLine) -> None:
    train = questions(tmp_path / "q.jsonl", [{"text": "a"}])
    bertie.good("finetune", model, "--task", "span", "--train", train, "-o", tmp_path / "run", *QUICK)
    notes = json.loads((tmp_path / "run" / "results.json").read_text())["notes"]
    assert not any("position" in note for note in notes)


def test_targets_that_are_all_ignored(model: Path, tmp_path: Path, bertie: CommandLine) -> None:
    """Every head lies beyond max_length, so that no word of these trees is learned from."""
    words = "".join(f"{i}\ta\ta\tN\t_\t_\t{0 if i == 40 else 40}\tdep\t_\t_\n" for i in range(1, 41))
    (tmp_path / "t.conllu").write_text((words + "\n") * 20)
    out = ("-o", tmp_path / "run", "epochs=1", "max_length=8", *FAST)
    code, _, err = bertie("finetune", model, "--task", "parse", "--train", tmp_path / "t.conllu", *out)
    assert (code, "can learn nothing from the" in err) == (3, True), err
    assert not (tmp_path / "run").exists()


def noted(path: Path, task: str, content: str, **settings: Any) -> str:
    path.write_text(content, encoding="utf-8")
    return "\n".join(read_examples(FinetuneConfig(model="x", task=task, train_file=str(path), **settings)).notes)


def table(labels: str, rows: int = 20) -> str:
    return "text,label\n" + "".join(f"text {i},{labels.split()[i % len(labels.split())]}\n" for i in range(rows))


def test_what_is_unclear_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    assert "labels contain '#', for example 'a#b'" in noted(path, "multilabel", table("a#b a b"))
    assert "labels contain" not in noted(path, "multilabel", table("R&D/Sales x y")), "no part is a label"
    assert "labels contain" not in noted(path, "multilabel", table("a#b a b"), label_separator="#")
    assert "1 training texts occur with different labels" in noted(
        path, "multilabel", "text,label\na,x\na,y\n" + "b,x\n" * 20, dev_file=str(path)
    )
    with pytest.raises(UsageError, match="label_separator has no effect under task=sequence"):
        noted(path, "sequence", table("a b"), label_separator="#")
    assert "the label 'NA' may mean that there is none (10 training" in noted(
        path, "sequence", table("NA x"), dev_file=str(path)
    )
    assert "differ only in case, spaces or Unicode form" in noted(path, "sequence", table("가 \u1100\u1161"))
    assert "in none of the schemes" in noted(
        tmp_path / "a.jsonl", "tagging", '{"tokens": ["a", "b"], "tags": ["B_PER", "O"]}\n' * 20
    )
    assert "in none of the schemes" not in noted(
        tmp_path / "a.jsonl", "tagging", '{"tokens": ["a", "b"], "tags": ["U-PER", "O"]}\n' * 20
    )
    quoted = "text\tlabel\n" + '"he said ""yes"""\tx\nb\ty\n' * 10
    assert "10 texts are in quotation marks" in noted(tmp_path / "a.tsv", "sequence", quoted)
    assert "quotation marks" not in noted(tmp_path / "a.tsv", "sequence", quoted, format="csv")


def test_relations_in_utf16(tmp_path: Path) -> None:
    row = {
        "sentence": "\U0001f600 Ada saw London",
        "subject_entity": {"word": "Ada", "start_idx": 3, "end_idx": 5, "type": "PER"},
        "object_entity": {"word": "London", "start_idx": 11, "end_idx": 16, "type": "LOC"},
        "label": "saw",
    }
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    (example,), _ = SkipReport.collect(TASKS["relation"].rows(tmp_path / "a.jsonl", TableFormat()), "a")
    assert [example.texts[0][one.start : one.end] for one in example.entities] == ["Ada", "London"]


def test_a_named_position_that_is_never_1_is_a_label_with_a_warning(tmp_path: Path) -> None:
    rows = [{"text": f"text {n}", "label": [n % 2, 1, 0]} for n in range(8)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = {"1": "x", "2": "y", "3": "z"}
    examples = [*MultiLabelTask.rows(tmp_path / "a.jsonl", TableFormat.of(label_names=names))]
    assert examples[1].label == ("x", "y")
    task = MultiLabelTask.from_examples(examples, (), {})
    assert task.labels == ("x", "y", "z")
    assert "labels without a training example, which are never learned: z" in task.notes(examples, [])
    unnamed = [*MultiLabelTask.rows(tmp_path / "a.jsonl", TableFormat())]
    assert MultiLabelTask.from_examples(unnamed, (), {}).labels == ("1", "2")


def test_each_file_has_its_own_encoding(tmp_path: Path) -> None:
    """A training file in CP949 and a dev file in UTF-8: no option read both."""
    table = "text,label\n" + "".join(f"좋은 영화 {n},{'긍정' if n % 2 else '부정'}\n" for n in range(8))
    for first, second in (("cp949", "utf-8"), ("utf-8", "cp949"), ("cp949", "cp949")):
        (tmp_path / "train.csv").write_text(table, encoding=first)
        (tmp_path / "dev.csv").write_text(table, encoding=second)
        files = {"train_file": str(tmp_path / "train.csv"), "dev_file": str(tmp_path / "dev.csv")}
        examples = read_examples(FinetuneConfig(model="m", encoding="cp949", **files))  # type: ignore[arg-type]
        assert {*examples.task.labels} == {"긍정", "부정"}
        assert len(examples.dev) == 8
