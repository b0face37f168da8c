"""`python -m benchmarks lengths`: every row in a process of its own, kept as it comes, not measured again."""

import json

import pytest
from typer.testing import CliRunner

from benchmarks import lengths
from benchmarks.__main__ import bench
from benchmarks.harness import check_lines
from bertie.errors import BertieError, DataError, UsageError


def run(*arguments):
    return CliRunner().invoke(bench, ["lengths", *arguments], catch_exceptions=False)


def test_a_row_is_measured_once(tmp_path, monkeypatch):
    monkeypatch.setattr(lengths, "KINDS", {"full": lengths.KINDS["full"]})
    out = tmp_path / "rows.jsonl"
    assert run("--at", "16", "--steps", "1", "-o", str(out), "--quiet").exit_code == 0
    (row,) = map(json.loads, out.read_text().splitlines())
    assert (row["attention"], row["length"]) == ("full", 16)
    assert row["cpu_s"] >= 0
    assert row["machine"]["threads"] == 1

    monkeypatch.setattr(lengths, "_cell", None)  # nothing is left to measure
    again = run("--at", "16", "-o", str(out), "--json")
    assert again.exit_code == 0
    assert json.loads(again.stdout) == row
    assert len(out.read_text().splitlines()) == 1


@pytest.mark.parametrize("at", ["512,many", "5000", ""])
def test_what_is_no_length_is_named(at):
    with pytest.raises(UsageError, match="list of lengths"):
        run("--at", at)


def test_what_is_no_row_is_named(tmp_path):
    (tmp_path / "rows.jsonl").write_text("not a row\n")
    with pytest.raises(DataError, match=r"rows.jsonl:1 is not a row"):
        run("--at", "16", "-o", str(tmp_path / "rows.jsonl"))


def test_only_a_file_of_lines_is_written():
    with pytest.raises(UsageError, match=r"Use \.jsonl"):
        run("--at", "16", "-o", "rows.csv")


def test_a_file_that_cannot_be_written_is_refused_before_the_measurements(tmp_path, monkeypatch):
    monkeypatch.setattr(lengths, "measure", None)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Not a directory"):
        run("--at", "16", "-o", str(tmp_path / "file" / "rows.jsonl"))
    check_lines(tmp_path / "new" / "rows.jsonl")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_measurement_that_dies_says_so(monkeypatch):
    monkeypatch.setattr(lengths, "_cell", dies)
    with pytest.raises(BertieError, match="was killed"):
        list(lengths.measure([16]))


def dies(*_):
    raise SystemExit(1)
