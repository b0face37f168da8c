"""`--task soft`: a classifier that learns a teacher's probabilities."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertie.errors import DataError, UsageError
from bertie.io.lines import BadRecord
from bertie.io.table_format import Columns, LabelNames, SoftLabel
from bertie.io.tables import Example
from bertie.tasks.soft import SoftTask
from bertie.text.sequences import Sequences
from toys import CommandLine, toy_model

COLUMNS = Columns(("text",), "label")
FIELDS = {"text": "a b", "label": "good", "scores.good": "0.9", "scores.poor": "0.1"}


def read(**fields: Any) -> Example | BadRecord:
    return SoftTask.example({**FIELDS, **fields}, COLUMNS, 1)


def test_rows() -> None:
    row = read()
    assert isinstance(row, Example)
    assert (row.label, row.label.shares) == ("good", {"good": 0.9, "poor": 0.1})
    plain = SoftTask.example({"text": "a b", "label": "good"}, COLUMNS, 1)
    assert isinstance(plain, Example)
    assert not isinstance(plain.label, SoftLabel)
    for wrong in ("x", "-1", "nan", "inf"):
        assert isinstance(read(**{"scores.good": wrong}), BadRecord)
    assert isinstance(read(**{"scores.good": "0", "scores.poor": "0"}), BadRecord)
    assert SoftTask.columns(list(FIELDS), Columns(), "t") == COLUMNS


def encoded(rows: int) -> Sequences:
    """Two windows of the first example, one of each other."""
    example = np.array([0, *range(rows)])
    weight = np.array([0.5, 0.5, *[1.0] * (rows - 1)], np.float32)
    made = object.__new__(Sequences)
    object.__setattr__(made, "example", example)
    object.__setattr__(made, "weight", weight)
    return made


class Labelled:
    """The labels of a batch, which is all that a loss reads."""

    def __init__(self, labels: dict[str, np.ndarray]) -> None:
        self.labels = {name: torch.from_numpy(value) for name, value in labels.items()}
        self.host = self


def test_the_loss_is_that_of_hinton() -> None:
    """T^2 times the cross-entropy of softmax(teacher / T) and softmax(student / T), with its gradient."""
    teacher = torch.tensor([[2.0, -1.0, 0.5], [0.1, 0.2, 0.3]], dtype=torch.float64)
    names = ("a", "b", "c")
    shares = torch.softmax(teacher, -1)
    rows = [
        Example(("t",), SoftLabel.of("a", dict(zip(names, row, strict=True))), n)
        for n, row in enumerate(shares.tolist())
    ]
    task = SoftTask.make(names, {"soften": 3.0})
    batch: Any = Labelled(task.targets(rows, encoded(2)).sequence)
    student = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    term = task.losses(student, batch)["label"]
    assert term.count == 2
    target = torch.softmax(teacher / 3, -1)[[0, 0, 1]]
    weight = torch.tensor([0.5, 0.5, 1.0], dtype=torch.float64)
    plain = -(9 * weight[:, None] * target * torch.log_softmax(student / 3, -1)).sum()
    torch.testing.assert_close(term.total, plain, rtol=1e-6, atol=0)
    (ours,) = torch.autograd.grad(term.total, student)
    (theirs,) = torch.autograd.grad(plain, student)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)


def test_truth_and_rows_without_probabilities() -> None:
    rows = [Example(("t",), SoftLabel.of("poor", {"good": 0.8, "poor": 0.2}), 1), Example(("t",), "good", 2)]
    task = SoftTask.from_examples(rows, (), {"soften": 1.0, "truth": 0.5})
    assert task.labels == ("good", "poor")
    found = task.targets(rows, encoded(2)).sequence["shares"]
    np.testing.assert_allclose(found, [[0.4, 0.6], [0.4, 0.6], [1.0, 0.0]], rtol=1e-6)
    assert "soften" not in task.settings()


def test_a_zero_of_the_teacher_is_finite() -> None:
    rows = [Example(("t",), SoftLabel.of("a", {"a": 1.0, "b": 0.0}), 1)]
    found = SoftTask.make(("a", "b"), {"soften": 2.0}).targets(rows, encoded(1)).sequence["shares"]
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-6)


def test_new_names_keep_the_probabilities() -> None:
    """Those of labels that become one are added."""
    label = LabelNames({"4": "good", "5": "good"}).of(SoftLabel.of("4", {"4": 0.5, "5": 0.3, "1": 0.2}))
    assert (label, label.shares) == ("good", {"good": 0.8, "1": 0.2})


def test_bad_settings_and_tables() -> None:
    for wrong in ({"soften": 0.0}, {"truth": 1.5}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            SoftTask.make(("a", "b"), wrong)
    with pytest.raises(DataError, match="bertie predict TEACHER"):
        SoftTask.from_examples([Example(("t",), "a", 1), Example(("t",), "b", 2)], (), {})


def test_labels_that_the_teacher_does_not_know() -> None:
    """All of them are refused, with the option that renames them; some are told."""
    rows = [Example(("t",), SoftLabel.of(str(n), {"bad": 0.4, "good": 0.6}), n) for n in range(2)]
    with pytest.raises(DataError, match="--label-names 0=bad"):
        SoftTask.from_examples(rows, (), {})
    rows += [Example(("t",), SoftLabel.of(name, {"bad": 0.4, "good": 0.6}), 3) for name in ("bad", "good")]
    task = SoftTask.from_examples(rows, (), {})
    assert "labels that no row has a probability of: '0', '1'" in task.notes(rows, rows)
    assert not any("probability" in note for note in task.notes(rows[2:], []))


def test_from_a_teacher_to_a_student(bertie: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Teacher and student have other tokenizers; the student is an ordinary classifier."""
    monkeypatch.chdir(tmp_path)
    texts = [f"{'good' if n % 2 else 'poor'} {'film' if n % 3 else 'book'}" for n in range(60)]
    Path("train.tsv").write_text("text\tlabel\n" + "".join(f"{t}\t{t.split()[0]}\n" for t in texts))
    Path("texts.txt").write_text("".join(f"{text}\n" for text in texts))
    words = ["good", "poor", "film", "book"]
    toy_model(Path("large"), words)
    toy_model(Path("small"), words[::-1])
    fast = ("max_length=16", "train.precision=fp32", "label_check=none")
    bertie.good("finetune", "large", "--train", "train.tsv", "-o", "teacher", "epochs=20", "optim.lr=3e-3", *fast)
    bertie.good("predict", "teacher/model", "texts.txt", "-o", "soft.jsonl")
    assert set(json.loads(Path("soft.jsonl").read_text().splitlines()[0])["scores"]) == {"good", "poor"}
    student = ("finetune", "small", "--task", "soft", "--train", "soft.jsonl", "--dev", "train.tsv", "-o", "student")
    bertie.good(*student, "epochs=20", "optim.lr=3e-3", *fast, "task_options.soften=3")
    assert "accuracy 1.000" in bertie.good("evaluate", "student/model", "train.tsv")
    config = json.loads(Path("student/model/config.json").read_text())
    assert config["id2label"] == {"0": "good", "1": "poor"}
    saved = json.loads(Path("student/model/bertie.json").read_text())
    assert saved["task"] == "sequence"
    assert "soften" not in json.dumps(saved)
    bertie.good(*student[:-1], "named", *fast, "--label-names", "good=yes,poor=no")
    config = json.loads(Path("named/model/config.json").read_text())
    assert set(config["id2label"].values()) == {"no", "yes"}
    code, _, err = bertie("finetune", "small", "--task", "soft", "--train", "train.tsv", "-o", "none", *fast)
    assert (code, "bertie predict TEACHER" in " ".join(err.split()), Path("none").exists()) == (3, True, False)
