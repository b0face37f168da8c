"""Embeddings learn from positive pairs without scores, and from an anchor with a positive and a negative text."""

import json
from pathlib import Path

import pytest

import bertie
from bertie.errors import DataError
from bertie.io.table_format import RECOGNISED, TableFormat
from bertie.io.tables import Example
from bertie.runs.config import FinetuneConfig
from bertie.runs.examples import read_examples
from bertie.tasks import TASKS
from toys import CommandLine, toy_model

EMBED = TASKS["embed"]


def write(path: Path, header: str, *rows: str) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def rows(path: Path, format: TableFormat = RECOGNISED) -> list[tuple[tuple[str, ...], float]]:
    return [(row.texts, row.label) for row in EMBED.rows(path, format) if isinstance(row, Example)]


@pytest.mark.parametrize(
    ("header", "named"),
    [("text1,text2", ()), ("anchor,positive", ()), ("question,answer", ("question", "answer"))],
)
def test_two_texts_without_a_label_are_a_positive_pair(tmp_path: Path, header: str, named: tuple[str, ...]) -> None:
    path = write(tmp_path / "t.csv", header, "a,b", "c,d")
    assert rows(path, TableFormat.of(named)) == [(("a", "b"), 1.0), (("c", "d"), 1.0)]


@pytest.mark.parametrize(
    ("header", "named"),
    [("anchor,positive,negative", ()), ("query,positive,negative", ()), ("q,yes,no", ("q", "yes", "no"))],
)
def test_three_texts_are_a_positive_and_a_negative_pair(tmp_path: Path, header: str, named: tuple[str, ...]) -> None:
    path = write(tmp_path / "t.csv", header, "a,b,c")
    assert rows(path, TableFormat.of(named)) == [(("a", "b"), 1.0), (("a", "c"), 0.0)]


def test_a_score_is_still_read_and_other_tables_are_refused(tmp_path: Path) -> None:
    assert rows(write(tmp_path / "s.csv", "text1,text2,label", "a,b,0.5")) == [(("a", "b"), 0.5)]
    with pytest.raises(DataError, match="no label column was recognized"):
        rows(write(tmp_path / "one.csv", "text,other", "a,b"))
    with pytest.raises(DataError, match="has no column 'nein'"):
        rows(write(tmp_path / "q.csv", "q,yes,no", "a,b,c"), TableFormat.of(("q", "yes", "nein")))


@pytest.mark.parametrize("header", ["anchor,positive", "anchor,positive,negative"])
def test_they_are_learned_from_the_other_texts_of_the_batch(tmp_path: Path, header: str, bertie: CommandLine) -> None:
    width = header.count(",") + 1
    lines = [
        ",".join("abcdefghij"[(n + i) % 10] + f" {'abcdefghij'[n // 10]}" for i in range(width)) for n in range(40)
    ]
    table = write(tmp_path / "t.csv", header, *lines)
    config = FinetuneConfig(model="m", task="embed", train_file=str(table))
    found = read_examples(config)
    assert (found.texts, found.task.loss_kind) == (2, "contrastive")
    assert {e.texts[0] for e in found.train}.isdisjoint({e.texts[0] for e in found.dev}) or width == 2
    chosen = config.model_copy(update={"task_options": {"loss_kind": "cosine"}})
    assert read_examples(chosen).task.loss_kind == "cosine"
    start, run = toy_model(tmp_path / "start", "abcdefghij"), tmp_path / "run"
    fast = ("epochs=1", "max_length=16", "train.precision=fp32", "train.batch_size=8")
    bertie.good("finetune", start, "--task", "embed", "--train", table, "-o", run, *fast)
    assert len(json.loads(bertie.good("embed", run, stdin="a b\n"))["vector"]) == 32
    report = json.loads(bertie.good("evaluate", run, table, "--json"))
    assert ("spearman" in report["undefined"]) == (width == 2)


def test_they_are_measured_from_python(tmp_path: Path) -> None:
    start = toy_model(tmp_path / "start", "abc")
    table = write(tmp_path / "t.csv", "anchor,positive,negative", *["a,b,c", "b,a,c"] * 6)
    config = FinetuneConfig(
        model=str(start), task="embed", train_file=str(table), dev_file=str(table), epochs=1.0, max_length=16
    )
    assert bertie.finetune(config=config, output=tmp_path / "run").scores["examples"] == 24
