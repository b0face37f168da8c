"""Names for the labels of a file: in training, in evaluation, and from Python."""

import json
from pathlib import Path
from typing import Literal
from unicodedata import normalize

import pytest

import bertie
from bertie.apps.cli import tables
from bertie.errors import UsageError
from bertie.io.table_format import TableFormat
from bertie.io.tables import read_examples as read
from bertie.metrics.tags import renamed
from bertie.models import families
from bertie.objectives.mlm import MaskedLM
from bertie.runs.config import FinetuneConfig
from bertie.runs.examples import read_examples
from bertie.runs.weights import load_model
from bertie.text.tokenizer import Tokenizer
from toys import CommandLine, toy_model

Form = Literal["NFC", "NFD"]
NAMES = {"0": "poor", "1": "good"}
OPTION = ("--label-names", "0=poor, 1=good")
TEXTS = ["a b", "c d", "a d", "c b", "b a", "d c", "b d", "d a"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("m"), "abcd")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{n % 2}\n" for n, text in enumerate(TEXTS)))
    return path


@pytest.fixture
def run(bertie: CommandLine) -> CommandLine:
    return bertie


MAPPINGS = ("{0: poor, 1: good}", '{"0": "poor", "1": "good"}', "0=poor, 1=good")


def test_pairs_and_mappings_mean_the_same_in_every_option() -> None:
    assert [tables.parse_pairs(text) for text in MAPPINGS] == [NAMES] * 3
    assert tables.parse_pairs("{yes: no, true: 1.5}") == {"yes": "no", "true": "1.5"}
    assert [tables.class_weights(text) for text in ("{a: 2}", "a=2", "balanced")] == [
        {"a": "2"},
        {"a": "2"},
        "balanced",
    ]
    assert [tables.costs(text) for text in ("{a: {b: 2}}", "a:b=2")] == [{"a": {"b": 2}}, {"a": {"b": "2"}}]
    for wrong in ("{a", "{a}", "{a: }", "{a, b}"):
        with pytest.raises(UsageError, match=r"--label-names .* is no mapping of names\. Write pairs"):
            tables.parse_pairs(wrong)


def test_evaluate_and_predict_take_mappings(model: Path, table: Path, tmp_path: Path, run: CommandLine) -> None:
    folder, fast = tmp_path / "run", ("epochs=1", "max_length=16", "train.precision=fp32", "label_check=none")
    run.good("finetune", model, "--train", table, "-o", folder, "--label-names", MAPPINGS[0], *fast)
    first, *others = (run.good("evaluate", folder, table, "--json", "--label-names", one) for one in MAPPINGS)
    assert others == [first] * 2
    families.save(families.build(model, heads=MaskedLM().heads), tmp_path / "mlm", tokenizer=Tokenizer.load(model))
    pattern = ("--pattern", "{} [MASK]", "--words")
    first, other = (
        run.good("predict", tmp_path / "mlm", table, *pattern, one) for one in ("{poor: c, good: d}", "poor=c,good=d")
    )
    assert first == other
    assert "poor" in first


def test_the_model_predicts_the_names(model: Path, table: Path, tmp_path: Path, run: CommandLine) -> None:
    folder, fast = tmp_path / "run", ("epochs=1", "max_length=16", "train.precision=fp32", "label_check=none")
    run.good("finetune", model, "--train", table, "--dev", table, "-o", folder, *OPTION, *fast)
    assert load_model(folder).labels == ("poor", "good")
    (tmp_path / "named.tsv").write_text(
        "text\tlabel\n" + "".join(f"{t}\t{NAMES[str(n % 2)]}\n" for n, t in enumerate(TEXTS))
    )
    expected = bertie.evaluate(folder, tmp_path / "named.tsv")
    assert bertie.evaluate(folder, table, label_names=NAMES) == expected
    told = run.good("evaluate", folder, table, *OPTION, "--json")
    assert json.loads(told) == json.loads(json.dumps(expected.to_dict()))
    code, _, err = run("evaluate", folder, table)
    assert (code, "no label is one of the model's" in " ".join(err.split())) == (0, True)
    code, _, err = run("evaluate", folder, table, "--label-names", "0=pour,1=good")
    assert (code, "Did you mean 'poor'?" in " ".join(err.split())) == (2, True)
    code, _, err = run("evaluate", folder, table, "--label-names", "poor")
    assert (code, "--label-names 'poor' must consist of pairs" in " ".join(err.split())) == (2, True)
    code, _, err = run("evaluate", folder, table, "--label-names", "0=poor,0=good")
    assert (code, "--label-names has '0' twice" in " ".join(err.split())) == (2, True)


def test_a_published_set_says_what_its_labels_mean(model: Path, tmp_path: Path, run: CommandLine) -> None:
    """For models whose labels are the meanings; a model of the labels as published is scored as ever."""
    rows = "".join(f"{n}\t{text}\t{n % 2}\n" for n, text in enumerate(TEXTS))
    (tmp_path / "ratings_test.txt").write_text("id\tdocument\tlabel\n" + rows)
    fast = ("epochs=1", "max_length=16", "train.precision=fp32", "label_check=none")
    meanings = ("--label-names", "0=negative,1=positive")
    for folder, names in (("words", meanings), ("numbers", ())):
        table = tmp_path / "ratings_test.txt"
        run.good("finetune", model, "--train", table, "--dev", table, "-o", tmp_path / folder, *names, *fast)
    of_set = {"data": "nsmc", "data_dir": tmp_path, "split": "test"}
    told = [bertie.evaluate(tmp_path / folder, **of_set) for folder in ("words", "numbers")]
    assert told[0]["accuracy"] == told[1]["accuracy"]
    assert told[0] == bertie.evaluate(tmp_path / "words", **of_set, label_names={"0": "negative", "1": "positive"})
    code, _, err = run(
        "evaluate",
        tmp_path / "words",
        "--data",
        "nsmc",
        "--data-dir",
        tmp_path,
        "--split",
        "test",
        "--against",
        tmp_path / "words",
        "--perturb",
        "typos",
    )
    assert code == 0, err
    assert "is one of the model's" not in " ".join(err.split())


def test_types_of_entities_are_renamed(tmp_path: Path, run: CommandLine) -> None:
    assert [renamed(tag, {"PER": "person", "MISC": "O"}) for tag in ("B-PER", "I-PER", "B-MISC", "B-LOC", "O")] == [
        *("B-person", "I-person", "O", "B-LOC", "O")
    ]
    assert renamed("B-PER", {"B-PER": "O", "PER": "person"}) == "O"
    assert renamed("NOUN", {"NOUN": "noun"}) == "noun"
    (tmp_path / "n.conll").write_text("Angela B-PER\nMerkel I-PER\nspoke O\nin O\nBerlin B-LOC\n\nIt O\nrained O\n")
    code, _, err = run("evaluate", "names-en", tmp_path / "n.conll")
    assert (code, "--label-names LOC=NAME,PER=NAME" in " ".join(err.split())) == (0, True)
    told = run.good("evaluate", "names-en", tmp_path / "n.conll", "--label-names", "PER=person,LOC=location", "--json")
    assert json.loads(told)["unknown_labels"] == {}
    assert json.loads(told)["f1"] == 1


def test_a_name_without_a_label_is_refused(model: Path, table: Path) -> None:
    with pytest.raises(UsageError, match="label_names has '2'"):
        read_examples(FinetuneConfig(model=str(model), train_file=str(table), label_names={"2": "x", **NAMES}))


def test_a_label_that_is_left_out_is_told(model: Path, table: Path) -> None:
    config = FinetuneConfig(model=str(model), train_file=str(table), label_names={"0": "poor"})
    found = read_examples(config)
    assert found.task.labels == ("1", "poor")
    assert any(
        "label_names leaves out are labels of their own, with 4 training examples: '1'" in n for n in found.notes
    )
    assert not any(
        "leaves out" in note for note in read_examples(config.model_copy(update={"label_names": NAMES})).notes
    )


def test_published_sets_and_several_labels(tmp_path: Path) -> None:
    """The labels of a published set keep their order; a list of labels is renamed one by one."""
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text(
            "sentence\tlabel\n" + "".join(f"{t}\t{n % 2}\n" for n, t in enumerate(TEXTS))
        )
    config = FinetuneConfig.model_validate(
        {"model": "m", "data": "sst2", "data_dir": str(tmp_path), "label_names": {0: "poor", 1: "good"}}
    )
    found = read_examples(config)
    assert found.task.labels == ("poor", "good")
    assert [one.label for one in found.train[:2]] == ["poor", "good"]
    assert not any("not in the published" in note for note in found.notes)
    (tmp_path / "m.jsonl").write_text('{"text": "a", "label": ["0", "1"]}\n{"text": "b", "label": ["2"]}\n')
    several = FinetuneConfig(
        model="m",
        task="multilabel",
        train_file=str(tmp_path / "m.jsonl"),
        dev_file=str(tmp_path / "m.jsonl"),
        label_names=NAMES,
    )
    found = read_examples(several)
    assert found.task.labels == ("2", "good", "poor")
    assert [one.label for one in found.train] == [("good", "poor"), ("2",)]
    assert any(
        "label_names leaves out are labels of their own, with 1 training examples: '2'" in n for n in found.notes
    )
    assert [one.label for one in read(tmp_path / "dev.tsv", TableFormat.of(label_names=NAMES))[0][:2]] == [
        "poor",
        "good",
    ]


def test_labels_with_the_same_name_become_one(table: Path) -> None:
    table.write_text("text\tlabel\n" + "".join(f"{text}\t{n % 3 + 1}\n" for n, text in enumerate(TEXTS)))
    found = read_examples(
        FinetuneConfig(model="m", train_file=str(table), label_names={"1": "low", "2": "low", "3": "high"})
    )
    assert found.task.labels == ("low", "high")
    assert {one.label for one in found.train} == {"low", "high"}


@pytest.mark.parametrize(("trained", "measured"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_labels_in_another_unicode_form_are_those_of_the_model(
    model: Path, tmp_path: Path, run: CommandLine, trained: Form, measured: Form
) -> None:
    for form in (trained, measured):
        rows = "".join(f"{text}\t{normalize(form, '긍정' if n % 2 else '부정')}\n" for n, text in enumerate(TEXTS))
        (tmp_path / f"{form}.tsv").write_text("text\tlabel\n" + rows)
    fast = ("epochs=1", "max_length=16", "train.precision=fp32", "label_check=none")
    table, dev = tmp_path / f"{trained}.tsv", tmp_path / f"{measured}.tsv"
    run.good("finetune", model, "--train", table, "--dev", dev, "-o", tmp_path / "run", *fast)
    assert json.loads((tmp_path / "run" / "results.json").read_text())["dev"]["unknown_labels"] == {}
    found = [bertie.evaluate(tmp_path / "run", tmp_path / f"{form}.tsv").to_dict() for form in (trained, measured)]
    assert found[1]["unknown_labels"] == {}
    assert found[0] == found[1]
    names = {normalize(trained, "긍정"): normalize(trained, "부정")}
    other = bertie.evaluate(tmp_path / "run", tmp_path / f"{measured}.tsv", label_names=names).to_dict()
    assert other["per_label"][normalize(trained, "부정")]["examples"] == len(TEXTS)
