"""Embeddings learn from positive pairs without scores, and from an anchor with a positive and a negative text."""

import json
from pathlib import Path

import pytest

import bertie
from bertie.errors import DataError, UsageError
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
def test_three_texts_are_an_anchor_a_positive_and_a_negative(
    tmp_path: Path, header: str, named: tuple[str, ...]
) -> None:
    path = write(tmp_path / "t.csv", header, "a,b,c")
    assert rows(path, TableFormat.of(named)) == [(("a", "b", "c"), 1.0)]


def test_a_score_is_still_read_and_other_tables_are_refused(tmp_path: Path) -> None:
    assert rows(write(tmp_path / "s.csv", "text1,text2,label", "a,b,0.5")) == [(("a", "b"), 0.5)]
    one = write(tmp_path / "one.csv", "text,other", "a,b", "c,d")
    with pytest.raises(DataError, match="every text has another label"):
        read_examples(FinetuneConfig(model="m", task="embed", train_file=str(one)))
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
    assert (found.texts, found.task.loss_kind) == (2, "in_batch_negatives")
    chosen = config.model_copy(update={"task_options": {"loss_kind": "triplet"}})
    if width == 3:
        assert read_examples(chosen).task.loss_kind == "triplet"
    else:
        with pytest.raises(UsageError, match="loss_kind=triplet needs a negative text in every row"):
            read_examples(chosen)
    start, run = toy_model(tmp_path / "start", "abcdefghij"), tmp_path / "run"
    fast = ("epochs=1", "max_length=16", "train.precision=fp32", "train.batch_size=8")
    bertie.good("finetune", start, "--task", "embed", "--train", table, "-o", run, *fast)
    assert len(json.loads(bertie.good("embed", run, stdin="a b\n"))["vector"]) == 32
    report = json.loads(bertie.good("evaluate", run, table, "--json"))
    assert 0 < report["mrr@10"] <= 1
    assert report["questions"] == 40


def test_they_are_measured_from_python(tmp_path: Path) -> None:
    start = toy_model(tmp_path / "start", "abc")
    table = write(tmp_path / "t.csv", "anchor,positive,negative", *["a,b,c", "b,a,c"] * 6)
    config = FinetuneConfig(
        model=str(start), task="embed", train_file=str(table), dev_file=str(table), epochs=1.0, max_length=16
    )
    assert bertie.finetune(config=config, output=tmp_path / "run").scores["examples"] == 12
