"""Regression, label sets, choices and ranking: from a table to a saved model that answers, on toys of letters."""

import json
import random
import string
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import bertie
from bertie.errors import DataError, UsageError
from bertie.infer.predict import Predictor
from bertie.io.lines import BadRecord
from bertie.io.table_format import TableFormat
from bertie.io.tables import Example, SkipReport
from bertie.runs.config import FinetuneConfig
from bertie.runs.finetune import run_finetune
from bertie.runs.weights import load_model
from bertie.tasks import TASKS
from bertie.tasks.choice import ChoiceTask
from bertie.tasks.multilabel import MultiLabelTask
from bertie.tasks.rank import RankTask
from bertie.tasks.regression import RegressionTask
from bertie.tasks.relation import RelationEntity, RelationExample, RelationTask
from bertie.tasks.sequence import SequenceTask
from bertie.tasks.source import batch_of_examples
from bertie.text.tokenizer import Tokenizer
from toys import CommandLine, toy_model

LETTERS = [*string.ascii_lowercase, *("##" + c for c in string.ascii_lowercase)]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory) -> Path:
    return toy_model(tmp_path_factory.mktemp("pretrained"), LETTERS, max_position_embeddings=48)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Models of this size are faster in one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def settings(pretrained: Path, task: str, file: Path, **values) -> FinetuneConfig:
    tree = {
        "model": str(pretrained),
        "task": task,
        "train_file": str(file),
        "epochs": 12,
        "max_length": 32,
        "baselines": False,
    }
    loop = {"batch_size": 16, "precision": "fp32"}
    return FinetuneConfig.model_validate({**tree, "optim": {"lr": 3e-3}, "train": loop, **values})


def words(rng: random.Random, count: int) -> list[str]:
    return [rng.choice("abcdef") for _ in range(count)]


def rows_of(kind: str, text: str, path: Path, **options):
    path.write_text(text, encoding="utf-8")
    usual = options.pop("usual_label", "")
    format = TableFormat.of(**options)
    return list(TASKS[kind].rows(path, replace(format, columns=replace(format.columns, usual_label=usual))))


# Regression ---------------------------------------------------------------------------------------------------------


def test_regression_learns_a_number_and_is_measured_by_correlation(pretrained, tmp_path):
    rng = random.Random(0)
    lines = []
    for i in range(200):
        text = [*["z"] * (i % 4), *words(rng, 4)]
        rng.shuffle(text)
        lines.append(f"{' '.join(text)}\t{i % 4 / 2}\n")
    (tmp_path / "t.tsv").write_text("text\tlabel\n" + "".join(lines))
    config = settings(pretrained, "regression", tmp_path / "t.tsv", task_options={"threshold": 0.9})
    results = run_finetune(config, tmp_path / "run")
    assert results["dev"]["pearson"] > 0.9
    assert results["dev"]["f1"] > 0.9
    saved = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert saved["problem_type"] == "regression"
    assert saved["id2label"] == {"0": "score"}
    model = load_model(tmp_path / "run" / "model")
    assert Predictor(model).task == RegressionTask(threshold=0.9)
    low, high = bertie.predict(model, ["a b c d", "z a z b z c d"])
    assert low.label < 0.5 < 1 < high.label
    assert low.as_json() == {"label": round(low.label, 6)}
    assert bertie.evaluate(model, tmp_path / "t.tsv")["spearman"] > 0.9


def test_labels_that_are_no_numbers_are_left_out(tmp_path):
    rows = rows_of("regression", "text\tlabel\na\t1.5\nb\thigh\nc\tnan\nd\t\ne\t4,5\nf\t1,234\n", tmp_path / "t.tsv")
    assert rows[0] == Example(("a",), 1.5, 2)
    assert [row.reason for row in rows[1:4]] == ["label is not a number", "label is not a number", "no label"]
    assert (rows[4].label, rows[5].reason.partition(";")[0]) == (
        4.5,
        "label has a comma that may separate thousands or decimals",
    )
    beyond = rows_of("regression", "text\tlabel\na\t1e300\n", tmp_path / "u.tsv")
    assert beyond == [BadRecord(2, "label is beyond 1e+15")], "its square is no float32 number"


def test_the_loss_is_squared_error_with_windows_weighing_one_together(pretrained):
    task, tokenizer = RegressionTask(), Tokenizer.load(pretrained)
    examples = [Example(("x" * 40,), 2.0), Example(("y",), -1.0)]
    encoded = task.encode(examples, tokenizer, max_length=16, too_long="window")
    batch = batch_of_examples(encoded, np.arange(len(encoded.lengths)), task.targets(examples, encoded))
    logits = torch.arange(len(encoded.lengths)).float()[:, None]
    windows = len(encoded.lengths) - 1
    assert windows > 2
    plain = sum((i - 2.0) ** 2 for i in range(windows)) / windows + (windows + 1.0) ** 2
    part = task.losses(logits, batch)["number"]
    assert (part.count, float(part.total)) == (2, pytest.approx(plain))
    assert task.decode(logits.numpy(), encoded, examples)[0].label == pytest.approx(sum(range(windows)) / windows)


# Sets of labels -----------------------------------------------------------------------------------------------------


def multi(path: Path, n: int) -> Path:
    rng = random.Random(1)
    lines = []
    for _ in range(n):
        found = [letter for letter in "xyz" if rng.random() < 0.4]
        text = [*found, *words(rng, 4)]
        rng.shuffle(text)
        lines.append(json.dumps({"text": " ".join(text), "labels": found}))
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("options", [{}, {"per_label": True}, {"threshold": 0.4}])
def test_sets_of_labels_are_learnt_and_thresholds_saved(pretrained, tmp_path, options):
    config = settings(pretrained, "multilabel", multi(tmp_path / "t.jsonl", 300), task_options=options, epochs=20)
    results = run_finetune(config, tmp_path / "run")
    assert results["dev"]["micro_f1"] > 0.9
    model = load_model(tmp_path / "run" / "model")
    task = Predictor(model).task
    assert isinstance(task, MultiLabelTask)
    assert task.labels == ("x", "y", "z")
    if options == {"threshold": 0.4}:
        assert task.threshold == 0.4
    else:
        assert (task.threshold is None, len(task.thresholds)) == ((True, 3) if options else (False, 0))
    answers = [set(p.label) for p in bertie.predict(model, ["a x b z", "a b c d"])]
    assert answers == [{"x", "z"}, set()]
    # The thresholds that were tuned are those measured.
    again = bertie.evaluate(model, tmp_path / "t.jsonl")
    assert again["micro_f1"] > 0.9


def test_label_sets_in_every_notation(tmp_path):
    listed = rows_of(
        "multilabel", '{"text": "t", "labels": ["b", "a"]}\n{"text": "u", "labels": []}\n', tmp_path / "a.jsonl"
    )
    assert [row.label for row in listed] == [("a", "b"), ()]
    joined = rows_of("multilabel", "text\tlabels\nt\tb, a\nu\t\n", tmp_path / "a.tsv")
    assert [row.label for row in joined] == [("a", "b"), ()]
    written = rows_of("multilabel", 'text,labels\nt,"[""b, c"", ""a""]"\nu,[]\nv,[a\n', tmp_path / "a.csv")
    assert [row.label for row in written[:2]] == [("a", "b, c"), ()], "as `predict` writes a list into a csv"
    assert written[2] == BadRecord(4, "labels begins with [ and is not a JSON list")
    others = '{"text": "t", "labels": ["a", null]}\n{"text": "u", "labels": [true, 1]}\n'
    (null, plain) = rows_of("multilabel", others, tmp_path / "b.jsonl")
    assert (null, plain.label) == (BadRecord(1, "labels has an item that is not a label"), ("1", "true"))
    columns = rows_of("multilabel", "text\ta\tb\nt\t1\t0\nu\t2\t0\n", tmp_path / "b.tsv", label="a,b")
    assert columns[0].label == ("a",)
    assert columns[1] == BadRecord(3, "a is neither 0 nor 1")
    again = rows_of("multilabel", "text\tlabel\ta\tb\nt\tx\t1\t0\n", tmp_path / "b.tsv", usual_label="a,b")
    assert again[0].label == ("a",), "the columns of the training file"
    other = rows_of("multilabel", "text\tlabel\ta\nt\tx\t1\n", tmp_path / "b.tsv", usual_label="a,b")
    assert other[0].label == ("x",)
    for threshold in (-0.1, 2):
        with pytest.raises(UsageError, match="between 0 and 1"):
            MultiLabelTask.from_examples(again, (), {"threshold": threshold})
    floats = rows_of("multilabel", "text,a,b\nt,1.0,0.0\nu,,1.0\nv,0.5,0.0\n", tmp_path / "d.csv", label="a,b")
    assert [row.label for row in floats[:2]] == [("a",), ("b",)], "as pandas writes a column with gaps"
    assert floats[2] == BadRecord(4, "a is neither 0 nor 1")
    with pytest.raises(DataError, match="no column 'c'"):
        rows_of("multilabel", "text\ta\tb\nt\t1\t0\n", tmp_path / "c.tsv", label="a,c")
    with pytest.raises(DataError, match="None of the training examples has a label"):
        MultiLabelTask.from_examples([Example(("t",), ())], (), {})


# Choices ------------------------------------------------------------------------------------------------------------


def test_choices_are_learnt_whatever_their_number(pretrained, tmp_path, monkeypatch, capsys):
    rng = random.Random(2)
    lines = []
    for i in range(240):
        choices = [" ".join(words(rng, 3)) for _ in range(2 + i % 3)]
        right = rng.randrange(len(choices))
        choices[right] += " z"
        lines.append(json.dumps({"context": " ".join(words(rng, 3)), "choices": choices, "label": right}))
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    results = run_finetune(settings(pretrained, "choice", tmp_path / "t.jsonl"), tmp_path / "run")
    assert results["dev"]["accuracy"] > 0.9
    saved = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert saved["architectures"] == ["BertForMultipleChoice"]
    model = load_model(tmp_path / "run" / "model")
    two, five = bertie.predict(model, [("a b", "c", "d z"), ("a b", "c", "d", "e", "f z", "a")])
    assert (two.label, five.label) == ("1", "3")
    assert len(five.scores) == 5
    assert sum(five.scores.values()) == pytest.approx(1)
    begun = tmp_path / "begun.csv"  # two columns of context, where the training file had one
    begun.write_text("sent1,sent2,ending0,ending1,label\na b.,a,c,d z,1\n")
    assert CommandLine(monkeypatch, capsys).good("evaluate", tmp_path / "run" / "model", begun).startswith("accuracy")


def test_the_choice_loss_is_the_cross_entropy_of_each_question(pretrained):
    task, tokenizer = ChoiceTask(), Tokenizer.load(pretrained)
    examples = [Example(("a", "b", "c", "d"), "2"), Example(("a", "b", "c"), "0"), Example(("a", "b", "c"))]
    encoded = task.encode(examples, tokenizer, max_length=16, too_long="truncate")
    assert np.diff(encoded.windows).tolist() == [3, 2, 2]
    batch = batch_of_examples(encoded, np.arange(7), task.targets(examples, encoded))
    logits = torch.tensor([0.3, -1.0, 2.0, 0.5, 0.1, 9.0, 9.0])
    plain = -torch.log_softmax(logits[:3], 0)[2] - torch.log_softmax(logits[3:5], 0)[0]
    part = task.losses(logits, batch)["choice"]
    assert part.count == 2  # one has no label
    assert float(part.total) == pytest.approx(float(plain), rel=1e-5)
    assert float(part.correct) == 2
    first = task.decode(logits.numpy(), encoded, examples)[0]
    assert first.scores["2"] == pytest.approx(float(torch.softmax(logits[:3], 0)[2]))


@pytest.mark.parametrize(
    ("text", "suffix", "expected"),
    [
        ("sent1,sent2,ending0,ending1,label\nA.,She,sits.,runs.,1\n", "csv", (("A.", "She sits.", "She runs."), "1")),
        ('{"ctx_a": "A.", "ctx_b": "She", "endings": ["sits.", "runs."], "label": 0}', "jsonl",
         (("A.", "She sits.", "She runs."), "0")),
        ('{"question": "Why?", "choices": {"text": ["a", "b", "c"], "label": ["A", "B", "C"]}, "label": "C"}', "jsonl",
         (("Why?", "a", "b", "c"), "2")),
        ('{"question": "Why?", "choices": {"text": ["a", "b", "c"], "label": ["1", "2", "3"]}, "label": "2"}', "jsonl",
         (("Why?", "a", "b", "c"), "1")),
        ('context,endings,label\nWet.,"[""a"", ""b""]",1\n', "csv", (("Wet.", "a", "b"), "1")),
        ("question\tchoice1\tchoice2\tlabel\nWhy?\ta\tb\tchoice2\n", "tsv", (("Why?", "a", "b"), "1")),
        ('{"premise": "It rained.", "choice1": "Wet.", "choice2": "Dry.", "question": "effect", "label": 0}', "jsonl",
         (("It rained. effect", "Wet.", "Dry."), "0")),
        ("context,question,answer0,answer1,label\nWet.,Why?,a,b,1\n", "csv", (("Wet. Why?", "a", "b"), "1")),
        ("context,answer0,answer1,label\nWet.,a,b,1.0\n", "csv", (("Wet.", "a", "b"), "1")),
    ],
)  # fmt: skip
def test_choices_in_every_notation(tmp_path, text, suffix, expected):
    (row,) = rows_of("choice", text, tmp_path / f"t.{suffix}")
    assert (row.texts, row.label) == expected


def test_choices_that_cannot_be_used(pretrained, tmp_path):
    text = "question\tchoice1\tchoice2\tlabel\nWhy?\ta\tb\t2\nWhy?\ta\t\t0\n \ta\tb\t0\nWhy?\ta\tb\t\nWhy?\t\tb\t1\n"
    reasons = [row.reason for row in rows_of("choice", text, tmp_path / "t.tsv")]
    assert reasons == [
        "label is not a choice",
        "fewer than two choices",
        "empty text",
        "label is not a choice",
        "empty text",
    ]
    three = rows_of("choice", "question,choice1,choice2,choice3,label\nWhy?,a,b,,B\n", tmp_path / "v.csv")
    assert three == [Example(("Why?", "a", "b"), "1", 2)]
    fields = {"question": "Why?", "choice1": "a", "choice2": "b", "choice3": None, "label": "B"}
    listed = rows_of("choice", json.dumps(fields), tmp_path / "v.jsonl")
    assert listed == [Example(("Why?", "a", "b"), "1", 1)]
    numbered = [{"question": "Why?", **{f"choice{n}": c for n, c in enumerate("abcd"[:count])}} for count in (2, 4, 3)]
    text = "\n".join(json.dumps({**row, "label": "choice1" if i == 2 else i}) for i, row in enumerate(numbered))
    more = rows_of("choice", text, tmp_path / "x.jsonl")
    assert [(row.texts[1:], row.label) for row in more] == [(("a", "b"), "0"), ((*"abcd",), "1"), ((*"abc",), "1")]
    two = TASKS["choice"].rows(tmp_path / "x.jsonl", TableFormat.of(("question", "choice0", "choice1")))
    assert [len(row.texts) for row in two] == [3, 3, 3], "the user names the choices"
    (digits,) = rows_of("choice", f"question,choice1,choice2,label\nWhy?,a,b,{'1' * 5000}\n", tmp_path / "w.csv")
    assert digits == BadRecord(2, "label is not a choice")
    with pytest.raises(DataError, match="not recognized"):
        rows_of("choice", "a\tb\nx\ty\n", tmp_path / "u.tsv")
    with pytest.raises(UsageError, match="too_long=truncate"):
        ChoiceTask().encode([Example(("a", "b", "c"))], Tokenizer.load(pretrained), max_length=16, too_long="window")


# Ranking and probabilities -------------------------------------------------------------------------------------------


def test_pairs_are_ranked_by_question(pretrained, tmp_path):
    rng = random.Random(3)
    lines = []
    for question in range(60):
        asked = rng.choice("uvw")
        for number in range(5):
            said = asked if number == 0 else rng.choice([c for c in "uvw" if c != asked])
            lines.append(
                f"{asked} {' '.join(words(rng, 1 + question % 3))}\t{said} {rng.choice('abc')}\t{int(number == 0)}\n"
            )
    (tmp_path / "t.tsv").write_text("question\tsentence\tlabel\n" + "".join(lines))
    config = settings(pretrained, "rank", tmp_path / "t.tsv", epochs=15, dev_file=str(tmp_path / "t.tsv"))
    results = run_finetune(config, tmp_path / "run")
    assert results["metrics"] == ["mrr@10", "map"]
    assert results["dev"]["map"] > 0.6
    assert isinstance(Predictor(load_model(tmp_path / "run" / "model")).task, RankTask)
    assert any(note.startswith("passages with the label '1' count as relevant") for note in results["notes"])
    with pytest.raises(DataError, match="the examples have 3"):
        RankTask(("a", "b", "c"))
    (tmp_path / "u.tsv").write_text("text\tlabel\na\t0\nb\t1\n")
    with pytest.raises(DataError, match="pairs of a question and a passage"):
        run_finetune(settings(pretrained, "rank", tmp_path / "u.tsv"), tmp_path / "none")


def test_a_fitted_temperature_is_saved_and_changes_no_answer(pretrained, tmp_path):
    rng = random.Random(4)
    lines = []
    for i in range(160):  # one label in five is wrong, so that sureness must be paid for
        text = [*words(rng, 4), *(["z"] if i % 2 else [])]
        rng.shuffle(text)
        lines.append(f"{' '.join(text)}\t{(i % 2) ^ (rng.random() < 0.2)}\n")
    (tmp_path / "t.tsv").write_text("text\tlabel\n" + "".join(lines))
    plain = run_finetune(settings(pretrained, "sequence", tmp_path / "t.tsv"), tmp_path / "plain")
    config = settings(pretrained, "sequence", tmp_path / "t.tsv", calibrate="temperature")
    fitted = run_finetune(config, tmp_path / "fitted")
    task = Predictor(load_model(tmp_path / "fitted" / "model")).task
    assert isinstance(task, SequenceTask)
    assert not task.scaling, "the weights contain it"
    assert fitted["calibration"]["scale"][0] != 1
    assert fitted["calibration"]["in_weights"]
    assert fitted["dev"]["confusion"] == plain["dev"]["confusion"]
    assert fitted["dev"]["calibration"] != plain["dev"]["calibration"]
    assert sum(row["answers"] for row in fitted["dev"]["calibration"]) == fitted["dev"]["examples"]


def test_options_a_task_does_not_have_are_refused(pretrained, tmp_path):
    file = multi(tmp_path / "t.jsonl", 20)
    with pytest.raises(UsageError, match=r"no option 'treshold'. Did you mean 'threshold'"):
        run_finetune(settings(pretrained, "multilabel", file, task_options={"treshold": 0.4}), tmp_path / "run")
    with pytest.raises(UsageError, match=r"Task option threshold: .*'high'"):
        run_finetune(settings(pretrained, "multilabel", file, task_options={"threshold": "high"}), tmp_path / "run")
    examples, _ = SkipReport.collect(TASKS["multilabel"].rows(file, TableFormat()), "t")
    assert MultiLabelTask.from_examples(examples, (), {"threshold": 0.25}).threshold == 0.25


@pytest.mark.parametrize(
    ("labels", "noted"),
    [
        ("1.5 3.0 4", True),
        ("1.0 0.0", False),
        ("1 2 3 4 5", False),
        ("1.5 high", False),
        (" ".join(map(str, range(30))), True),
    ],
)
def test_labels_that_are_numbers_are_noted(labels, noted):
    """A column of scores would be classes otherwise, each with few examples."""
    train = [Example((f"text {label}",), label, 1) for label in labels.split() * 2]
    task = SequenceTask.from_examples(train, (), {})
    assert any("--task regression" in note for note in task.notes(train, [])) == noted


def test_labels_that_differ_in_case_alone_are_noted():
    train = [Example((f"text {n}",), label, n) for n, label in enumerate(["Pos", "pos", "neg"] * 2)]
    (note,) = SequenceTask.from_examples(train, (), {}).notes(train, [])
    assert note.endswith("kept apart: 'Pos', 'pos'")


def test_one_text_with_two_relations_is_no_contradiction():
    ends = [
        (RelationEntity(0, 3, ""), RelationEntity(9, 12, "")),
        (RelationEntity(9, 12, ""), RelationEntity(0, 3, "")),
    ]
    train = [
        RelationExample(("Ada taught Bob",), label, 1, entities=pair) for label, pair in zip("ab", ends, strict=True)
    ] * 2
    assert RelationTask.from_examples(train, (), {"outside": "a"}).notes(train, []) == []
    plain = [Example(("Ada taught Bob",), label, 1) for label in "ab"] * 2
    assert "more than one label" in SequenceTask.from_examples(plain, (), {}).notes(plain, [])[0]
