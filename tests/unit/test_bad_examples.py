"""Examples as bad as they come, from the command line: each counted and named, or one clear error with its code."""

import json
import re
import string
from html import unescape
from pathlib import Path

import pytest

from bertie.errors import BertieError, DataError, UsageError
from bertie.infer.findings import Findings
from bertie.io.tables import Example
from bertie.io.words import TaggedExample
from bertie.tasks import TASKS, Prediction
from bertie.tasks.relation import RelationTask
from bertie.text.tokenizer import Tokenizer
from toys import FAST, TASK_OPTIONS, CommandLine, toy_model

QUICK = ("epochs=1", "max_length=16", *FAST)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("toy"), string.ascii_lowercase)


def table(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows), encoding="utf-8")
    return path


def rows(count: int, labels: str = "xy") -> list[tuple[str, str]]:
    return [(f"{string.ascii_lowercase[i % 20]} b", labels[i % len(labels)]) for i in range(count)]


def notes(run: Path) -> str:
    return "\n".join(json.loads((run / "results.json").read_text())["notes"])


def squad(path: Path, *changes: dict[str, object]) -> Path:
    """Ten questions that are whole, and one with each of these changes."""
    whole = {"context": "a b c", "question": "q", "answers": [{"text": "b", "answer_start": 2}]}
    asked = [{**whole, **change} for change in ({},) * 10 + changes]
    paragraphs = [{"context": q.pop("context"), "qas": [{**q, "id": str(i)}]} for i, q in enumerate(asked, 1)]
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))
    return path


def test_answers_out_of_place_are_counted_and_teach_nothing(folder: Path, tmp_path: Path, bertie: CommandLine) -> None:
    moved: dict[str, object] = {"answers": [{"text": "b", "answer_start": 0}]}
    train, dev = squad(tmp_path / "train.json", moved, moved), squad(tmp_path / "dev.json")
    out = ("-o", tmp_path / "run", *QUICK)
    bertie.good("finetune", folder, "--task", "span", "--train", train, "--dev", dev, *out)
    assert "2 of 12 training questions have an answer that is not at the given position (question 11, 12)" in notes(
        tmp_path / "run"
    )


def test_empty_contexts_and_questions_are_counted(folder: Path, tmp_path: Path, bertie: CommandLine) -> None:
    changes: list[dict[str, object]] = [{"context": " "}, {"context": ""}, {"question": "\n"}]
    train, dev = squad(tmp_path / "train.json", *changes), squad(tmp_path / "dev.json")
    bertie.good("finetune", folder, "--task", "span", "--train", train, "--dev", dev, "-o", tmp_path / "run", *QUICK)
    told = "3 of 13 rows skipped: empty context (2: line 11, 12); empty question (1: line 13)"
    assert told in notes(tmp_path / "run")
    squad(tmp_path / "dev.json", *changes)
    report = json.loads(bertie.good("evaluate", tmp_path / "run/model", tmp_path / "dev.json", "--json"))
    assert report["left_out"] == {"rows": 13, "total": 3, "reasons": {"empty context": 2, "empty question": 1}}


def test_labels_a_set_was_not_published_with_are_named(folder: Path, tmp_path: Path, bertie: CommandLine) -> None:
    for split in ("train", "dev"):
        lines = [f"{text}\t{label}\n" for text, label in rows(20, "01" if split == "dev" else "012")]
        (tmp_path / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(lines))
    data = ("--data", "sst2", "--data-dir", tmp_path, "--seeds", 1)
    bertie.good("finetune", folder, *data, "-o", tmp_path / "run", *QUICK)
    assert "training has labels that are not in the published sst2; they are trained too: '2'" in notes(
        tmp_path / "run"
    )


def test_a_label_that_only_dev_has_counts_as_an_error(folder: Path, tmp_path: Path, bertie: CommandLine) -> None:
    train, dev = table(tmp_path / "train.tsv", rows(20)), table(tmp_path / "dev.tsv", [*rows(8), ("a b", "new")])
    bertie.good("finetune", folder, "--train", train, "--dev", dev, "-o", tmp_path / "run", *QUICK)
    assert "1 dev examples have labels that do not occur in training and count as errors: 'new'" in notes(
        tmp_path / "run"
    )
    report = json.loads(bertie.good("evaluate", tmp_path / "run/model", dev, "--json"))
    assert report["unknown_labels"] == {"new": 1}
    assert report["examples"] == 9
    assert report["accuracy"] <= 8 / 9


@pytest.mark.parametrize(
    ("task", "content", "told"),
    [
        ("sequence", "text\tlabel\na\tx\nb\tx\n", "only 'x'"),
        ("rank", "text1\ttext2\tlabel\na\tb\t0\nb\tc\t0\n", "only '0'"),
        ("tagging", "a O\nb O\n\nc O\n", "only 'O'"),
        ("multilabel", "text\tlabel\na\t\nb\t\n", "None of the training examples has a label"),
    ],
)
def test_a_single_class_is_one_clear_error(
    folder: Path, tmp_path: Path, bertie: CommandLine, task: str, content: str, told: str
) -> None:
    train = tmp_path / ("train.conll" if task == "tagging" else "train.tsv")
    train.write_text(content)
    run = tmp_path / "run"
    code, _, err = bertie("finetune", folder, "--task", task, "--train", train, "--dev", train, "-o", run, *QUICK)
    assert code == 3
    assert told in err
    assert not run.exists()


DEV_OF_ONE_KIND = {  # task -> name of the files, examples to learn from, dev ones that are all of a kind, what is told
    "sequence": ("tsv", "a\tx\nb\ty\n", "a\tx\nb\tx\n", {"mcc": "every example has the label 'x'", "f1": "no example"}),
    "multilabel": ("tsv", "a\tx\nb\tx, y\n", "a\t\nb\t\n", {"micro_f1": "no example has a label"}),
    "regression": ("tsv", "a\t1\nb\t2\n", "a\t1\nb\t1\n", {"pearson": "every example has the number 1"}),
    "rank": ("tsv", "a\tb\t0\nb\tb\t1\n", "a\tb\t0\nb\tb\t0\n", {"mrr@10": "no question has an answer"}),
    "relation": ("tsv", "a\tx\nb\tno_relation\n", "a\tno_relation\n", {"micro_f1": "every example has the label"}),
    "tagging": ("conll", "a B-x\nb O\n\n", "a O\nb O\n\n", {"f1": "no sentence has an entity"}),
}


@pytest.mark.parametrize("task", DEV_OF_ONE_KIND)
def test_metrics_that_dev_cannot_tell_are_said_to_be_undefined(
    folder: Path, tmp_path: Path, bertie: CommandLine, task: str
) -> None:
    ending, train, dev, told = DEV_OF_ONE_KIND[task]
    header = {"conll": "", "tsv": "text1\ttext2\tlabel\n" if task == "rank" else "text\tlabel\n"}[ending]
    files = {name: tmp_path / f"{name}.{ending}" for name in ("train", "dev")}
    files["train"].write_text(header + train * 4)
    files["dev"].write_text(header + dev * 4)
    run = tmp_path / "run"
    given = ("--train", files["train"], "--dev", files["dev"], "-o", run)
    code, _, err = bertie("finetune", folder, "--task", task, *given, *QUICK)
    assert code == 0, err
    undefined = json.loads((run / "results.json").read_text())["dev"]["undefined"]
    for name, why in told.items():
        assert undefined[name].startswith(why)
    for said in (err, unescape((run / "report.html").read_text())):
        assert re.search(rf"not defined here, and reported as 0: [^(]*{next(iter(told))}", " ".join(said.split()))
    code, out, err = bertie("evaluate", run / "model", files["dev"], "--report", tmp_path / "page.html")
    assert code == 0, err
    assert "not defined here" in err
    main = json.loads((run / "results.json").read_text())["metrics"][0]
    if main in told:
        assert f"{main} not defined" in out
    full = json.loads(bertie.good("evaluate", run / "model", files["train"], "--json"))
    assert full["undefined"] == {}


def test_several_seeds_say_it_too(folder: Path, tmp_path: Path, bertie: CommandLine) -> None:
    train, dev = table(tmp_path / "train.tsv", rows(20)), table(tmp_path / "dev.tsv", rows(4, "x"))
    given = ("--train", train, "--dev", dev, "-o", tmp_path / "run", "--seeds", 2)
    code, _, err = bertie("finetune", folder, *given, *QUICK)
    assert code == 0, err
    assert json.loads((tmp_path / "run/results.json").read_text())["undefined"].keys() == {"mcc", "f1"}
    for said in (err, unescape((tmp_path / "run/report.html").read_text())):
        assert "reported as 0: mcc (every example has the label 'x')" in " ".join(said.split())


def test_questions_that_all_have_no_answer_say_so(folder: Path, tmp_path: Path, bertie: CommandLine) -> None:
    none: dict[str, object] = {"answers": []}
    train, dev = squad(tmp_path / "train.json", none, none), squad(tmp_path / "dev.json", none, none)
    bertie.good("finetune", folder, "--task", "span", "--train", train, "--dev", dev, "-o", tmp_path / "run", *QUICK)
    only = json.loads(dev.read_text())
    only["data"][0]["paragraphs"] = only["data"][0]["paragraphs"][10:]
    dev.write_text(json.dumps(only))
    report = json.loads(bertie.good("evaluate", tmp_path / "run/model", dev, "--json"))
    assert report["undefined"]["has_answer_f1"] == "no question has an answer"
    assert "f1" not in report["undefined"]


def test_a_slice_that_has_no_relation_has_no_figure() -> None:
    task = RelationTask(("no_relation", "x", "y"))
    findings = Findings(task)
    for label, tokens in (("no_relation", 9), ("x", 40)):
        told = Prediction("x", 0.5, {"no_relation": 0.2, "x": 0.5, "y": 0.3})
        findings.add([Example(("a",), label)] * 3, [told] * 3, [tokens] * 3, [True] * 3)
    values = {one["name"]: one["value"] for one in findings.as_json()["slices"]["tokens"]}
    assert values == {"1 to 16": None, "33 to 64": 1.0}


def test_an_example_that_cleaning_empties_is_named(folder: Path, tmp_path: Path, bertie: CommandLine) -> None:
    gone = "\x01\x02"  # control characters: not white space, yet nothing that a model reads
    train = table(tmp_path / "train.tsv", [*rows(20), (gone, "x")])
    dev = table(tmp_path / "dev.tsv", rows(8))
    bertie.good("finetune", folder, "--train", train, "--dev", dev, "-o", tmp_path / "run", *QUICK)
    assert "training: 1 examples are empty after cleaning (line 22)" in notes(tmp_path / "run")
    out = bertie.good("predict", tmp_path / "run/model", stdin=f"{gone}\na b\n")
    assert len(out.splitlines()) == 2


def many(count: int) -> list[tuple[str, str]]:
    return [(f"{string.ascii_lowercase[i % 20]} b", f"label-{i}") for i in range(count)]


@pytest.mark.slow
def test_a_hundred_thousand_labels_are_learnt_one_each(folder: Path, tmp_path: Path, bertie: CommandLine) -> None:
    train, dev = table(tmp_path / "train.tsv", many(100_000)), table(tmp_path / "dev.tsv", many(40))
    steps = ("epochs=0.0005", "max_length=16", "train.batch_size=16", "train.precision=fp32")
    out = bertie.good("finetune", folder, "--train", train, "--dev", dev, "-o", tmp_path / "run", *steps)
    assert "labels with a single example: 'label-0'" in notes(tmp_path / "run")
    assert len(out.splitlines()) < 100
    (answer,) = map(json.loads, bertie.good("predict", tmp_path / "run/model", stdin="a b\n").splitlines())
    assert len(answer["scores"]) == 1000


@pytest.mark.parametrize("task", ["tagging", "multilabel"])
def test_more_labels_than_a_task_can_hold_are_one_clear_error(
    folder: Path, tmp_path: Path, bertie: CommandLine, task: str
) -> None:
    """As when the column that is read is not the one with the labels."""
    train = tmp_path / "train.conll"
    if task == "tagging":
        train.write_text("".join(f"{text.split()[0]} B-{label}\n\n" for text, label in many(10_001)))
    else:
        train = table(tmp_path / "train.tsv", many(10_001))
    run = tmp_path / "run"
    code, _, err = bertie("finetune", folder, "--task", task, "--train", train, "--dev", train, "-o", run, *QUICK)
    assert code == 3
    assert "10,001 different labels" in err
    assert "--label" in err


# Long texts: every task reads windows that vote, or says that it does not and what to do.
LONG = " ".join("abcdefgh" * 4)
EXAMPLES = {
    "choice": Example((LONG, "a", "b"), "0"),
    "embed": Example((LONG, "a"), 1.0),
    "tagging": TaggedExample((LONG,), ("O",) * 32, spans=tuple((2 * i, 2 * i + 1) for i in range(32))),
    "parse": TaggedExample((LONG,), ((0, "x"),) * 32, spans=tuple((2 * i, 2 * i + 1) for i in range(32))),
    "span": Example(("q", LONG), (("a", 0),)),
}
REFUSED = ("choice", "embed", "parse", "text2text", "pattern")


@pytest.mark.parametrize("name", TASKS)
def test_every_task_reads_windows_or_refuses_aloud(folder: Path, name: str) -> None:
    tokenizer = Tokenizer.load(folder)
    task = TASKS[name].make(("x", "y"), TASK_OPTIONS.get(name, {}))
    example = EXAMPLES.get(name, Example((LONG,), "x"))
    if name in REFUSED:
        with pytest.raises(UsageError, match="too_long=truncate"):
            task.encode([example], tokenizer, max_length=16, too_long="window")
        return
    encoded = task.encode([example], tokenizer, max_length=16, too_long="window")
    assert len(encoded.lengths) > 1
    assert encoded.too_long.tolist() == [0]
    assert {*string.ascii_lowercase[:8]} <= {tokenizer.id_to_token(i) for i in encoded.input_ids.tolist()}


def test_limits_are_told_of_the_class() -> None:
    for name, kind in TASKS.items():
        if kind.most_labels is not None:
            with pytest.raises(DataError, match=f"at most {kind.most_labels:,}"):
                kind.make(tuple(map(str, range(kind.most_labels + 1))), {})
        assert issubclass(DataError, BertieError), name
