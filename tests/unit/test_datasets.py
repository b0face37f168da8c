"""The table of published sets: rows that hang together, files read as they come, folders checked."""

import io
import os
import sys
from pathlib import Path

import pytest

from bertie.console import Verbosity, console
from bertie.errors import DataError
from bertie.io.tables import SkipReport
from bertie.program import main
from bertie.tasks import TASKS
from bertie.tasks.datasets import DATASETS

CONTENT = {  # two rows of each split's format, written for this test; the second of mnli has no agreed label
    "stsb": "index\tsentence1\tsentence2\tscore\n0\ta b\tc\t4.5\n1\tz\ty\t0.0\n",
    "mnli": "index\tsentence1\tsentence2\tlabel1\tgold_label\n0\ta\tb\tneutral\tneutral\n1\ta\tb\tneutral\t-\n",
    "klue-sts": '[{"sentence1": "가", "sentence2": "나", "labels": {"label": 3.7, "real-label": 3.71}},'
    '\n {"sentence1": "다", "sentence2": "라", "labels": {"label": 0.0, "real-label": 0.02}}]',
    "klue-tc": '[{"title": "가", "label": "경제"}, {"title": "나", "label": "정치"}]',
    "swag": ",video-id,sent1,sent2,ending0,ending1,ending2,ending3,label\n0,v,A.,She,a,b,c,d,2\n1,v,B.,He,a,b,c,d,0\n",
}


def write(name: str, split: str, folder: Path) -> Path:
    row = DATASETS[name].splits[split]
    path = folder / DATASETS[name].folder / row.file.replace("*", ".1")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(CONTENT[name], encoding="utf-8")
    return path


@pytest.mark.parametrize("name", DATASETS)
def test_a_row_names_a_task_its_metrics_and_its_terms(name):
    row = DATASETS[name]
    kind = TASKS[row.task]
    task = kind.make(row.labels or ("a", "b"), row.options)
    assert row.metrics
    assert row.licence
    assert row.source.startswith("https://")
    if row.task not in ("span", "tagging", "parse"):  # theirs follow from what is counted
        assert set(row.metrics) <= set(task.scores().compute())


@pytest.mark.promise("oddities-of-published-files")
def test_files_are_read_as_they_are_published(tmp_path):
    found = {}
    for name in CONTENT:
        write(name, "train", tmp_path)
        (table,) = DATASETS[name].tables("train", tmp_path)
        found[name] = SkipReport.collect(TASKS[DATASETS[name].task].rows(*table), name)
    assert [e.label for e in found["stsb"][0]] == [4.5, 0.0]
    assert [e.label for e in found["klue-sts"][0]] == [3.71, 0.02]
    assert [e.label for e in found["klue-tc"][0]] == ["경제", "정치"]
    assert found["swag"][0][0].texts == ("A.", "She a", "She b", "She c", "She d")
    assert [e.label for e in found["swag"][0]] == ["2", "0"]
    assert [e.label for e in found["mnli"][0]] == ["neutral"]
    assert found["mnli"][1].counts == {"no gold label ('-')": 1}


def test_a_folder_is_checked_against_what_was_published(tmp_path):
    write("stsb", "train", tmp_path)
    first, second, _ = DATASETS["stsb"].check(tmp_path)
    assert (first.split, first.examples, first.expected, first.as_published) == ("train", 2, 5749, False)
    assert second.examples is None
    assert "exists" in second.problem


def test_a_file_that_cannot_be_read_is_not_as_published(tmp_path):
    (tmp_path / "ratings_test.txt").write_bytes("id\tdocument\tlabel\n1\t영화 좋다\t1\n".encode("cp949"))
    train, test = DATASETS["nsmc"].check(tmp_path)
    assert train.examples is None
    assert (test.examples, test.as_published, "CP949" in test.problem) == (0, False, True)


def test_a_split_of_several_files_is_read_in_order(tmp_path):
    header = "sentence1\tsentence2\tgold_label\n"
    for file, word in (("multinli.train.ko.tsv", "가"), ("snli_1.0_train.ko.tsv", "나")):
        (tmp_path / file).write_text(f"{header}{word}\t{word}\tneutral\n", encoding="utf-8")
    tables = DATASETS["kornli"].tables("train", tmp_path)
    assert [path.name for path, _ in tables] == ["multinli.train.ko.tsv", "snli_1.0_train.ko.tsv"]
    with pytest.raises(DataError, match="several files"):
        DATASETS["kornli"].table("train", tmp_path)
    (tmp_path / "snli_1.0_train.ko.tsv").unlink()
    with pytest.raises(DataError, match="snli_1"):
        DATASETS["kornli"].tables("train", tmp_path)


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command line in this process."""

    def run(*arguments: object):
        monkeypatch.setattr(console, "verbosity", Verbosity())
        monkeypatch.setattr(sys, "argv", ["bertie", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        with pytest.raises(SystemExit) as exit:
            main()
        return exit.value.code, *capsys.readouterr()

    return run


def test_the_command_lists_and_checks(run, tmp_path):
    code, out, _ = run("data")
    assert code == 0
    assert all(name in out for name in DATASETS)
    code, out, err = run("data", "stsb", "--data-dir", tmp_path)
    assert code == 3
    assert "contains none of the files of stsb" in err
    write("stsb", "train", tmp_path)
    code, out, err = run("data", "stsb", "--data-dir", tmp_path)
    assert code == 3
    assert "2 of 5,749 examples" in out
    assert "1 of 1 files differ from the published ones" in err
    assert run("data", "--data-dir", tmp_path / "absent")[0] == 2
    assert run("data", "stbs")[0] == 2


@pytest.mark.skipif("BERTIE_DATA" not in os.environ, reason="needs BERTIE_DATA")
@pytest.mark.parametrize(
    ("name", "folder"),
    [("cola", "glue"), ("sst2", "glue"), ("mrpc", "glue"), ("stsb", "glue"), ("rte", "glue"), ("qnli", "glue"),
     ("nsmc", "."), ("kornli", "korean"), ("korsts", "korean"), ("klue-nli", "korean")],
)  # fmt: skip
def test_real_files_hold_what_was_published(name, folder):
    found = [one for one in DATASETS[name].check(Path(os.environ["BERTIE_DATA"]) / folder) if one.examples is not None]
    assert found
    for one in found:
        assert one.as_published, one
        assert set(one.left_out) <= {"empty text"}  # eight reviews of NSMC
        assert sum(one.left_out.values()) <= 5
