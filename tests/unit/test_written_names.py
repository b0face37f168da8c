"""Names that are not UTF-8, and several outputs of one command."""

import errno
import json
import os
from pathlib import Path

import pytest

from bertie.console import console
from bertie.data.corpus import build_shards
from bertie.errors import DataError, Stopped, UsageError
from bertie.files import atomic_writes, check_readable, json_bytes, read_json, shown, write_text
from bertie.folders import ANYTHING, check_writable
from bertie.report.page import Report

NAME = os.fsdecode(b"\xc7\xd1.txt")  # 한 in CP949, as old archives have it


def test_bytes_that_are_not_utf8_are_written_as_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(f"{NAME} 한 😀 \ud83d") == r"\xc7\xd1.txt 한 😀 " + "\ufffd"
    assert json.loads(json_bytes({NAME: [NAME, "한\\"]})) == {r"\xc7\xd1.txt": [r"\xc7\xd1.txt", "한\\"]}
    console.say(NAME)
    assert capsys.readouterr().err == "\\xc7\\xd1.txt\n"


def test_a_file_of_such_a_name_is_read_and_told_of(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("This is a text.")
    shards = build_shards([tmp_path / NAME], tmp_path / "corpus")
    assert shards.num_documents == 1
    assert read_json(tmp_path / "corpus" / "card.json")["inputs"]["names"] == [rf"{tmp_path}/\xc7\xd1.txt"]
    assert r"\xc7\xd1.txt" in (tmp_path / "corpus" / "card.md").read_text()
    page = Report("title", NAME)
    page.save(tmp_path / "page.html")
    write_text(tmp_path / "card.md", NAME)
    assert (tmp_path / "card.md").read_text() == r"\xc7\xd1.txt"


def test_no_folder_of_such_a_name_is_begun(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\\xc7\\xd1\.txt is not UTF-8"):
        check_writable(tmp_path / NAME, ANYTHING)
    with pytest.raises(DataError, match="is not UTF-8"):
        check_readable(tmp_path / NAME)


def test_several_outputs_are_all_written_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / name for name in ("a.json", "b.html", "c.csv")]
    synced, failing = [], os.fsync

    def full(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        failing(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Stopped, match="The disk is full"), atomic_writes(paths) as files:
        files[0].write(b"a")
    assert not list(tmp_path.iterdir())
    with atomic_writes(paths) as files:
        for file in files:
            file.write(b"a")
    assert sorted(tmp_path.iterdir()) == paths
