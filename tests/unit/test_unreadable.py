"""What may not be read is named, and never left out without a word."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertie import console, families
from bertie.apps.search import readers
from bertie.apps.search.index import index
from bertie.data import sources
from bertie.data.brat import documents
from bertie.data.corpus import build
from bertie.data.records import ReadOptions
from bertie.errors import DataError
from bertie.files import files_in
from bertie.models.weights import INDEX, WEIGHTS, weight_files

NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a file, and one in a folder that may not be read, by a user who is not root."""
    made = Path(tempfile.mkdtemp())  # tmp_path is inside a folder of root's
    (made / "d" / "closed").mkdir(parents=True)
    (made / "d" / "a.txt").write_text("This is a text.")
    (made / "d" / "closed" / "b.txt").write_text("This is another one.")
    (made / "d" / "closed").chmod(0)
    root = os.geteuid() == 0
    console.warn("")  # what is imported at first use may be root's
    build([made / "d" / "a.txt"], made / "first")
    shutil.rmtree(made / "first")
    if root:
        os.chown(made, NOBODY, NOBODY)
        os.chown(made / "d", NOBODY, NOBODY)
        os.chown(made / "d" / "closed", NOBODY, NOBODY)
        os.seteuid(NOBODY)
    yield made
    if root:
        os.seteuid(0)
    (made / "d" / "closed").chmod(0o700)
    shutil.rmtree(made)


def test_a_closed_folder_is_named_and_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    closed = f"{folder}/d/closed (Permission denied)"
    for pattern in (folder / "d", f"{folder}/d/**/*.txt"):
        for found in (sources.expand([str(pattern)], ReadOptions()), readers.expand([str(pattern)])):
            assert (found.names, found.unreadable) == ([f"{folder}/d/a.txt"], [closed])
    shards = build([folder / "d"], folder / "corpus")
    assert shards.manifest["inputs"]["unreadable"] == 1
    assert closed in capsys.readouterr().err
    assert index([folder / "d"], folder / "index").unreadable == [closed]


def test_nothing_but_a_closed_folder_is_an_error_with_the_reason(folder: Path) -> None:
    (folder / "d" / "a.txt").unlink()
    for inputs in (folder / "d", f"{folder}/d/**/*.txt", f"{folder}/d/*/*.txt"):
        with pytest.raises(DataError, match=r"cannot be read: .*d/closed \(Permission denied\)"):
            build([inputs], folder / "corpus")
        with pytest.raises(DataError, match=r"cannot be read: .*d/closed \(Permission denied\)"):
            index([inputs], folder / "index")


def test_files_of_an_index_in_a_closed_folder_are_not_called_deleted(folder: Path) -> None:
    (folder / "d" / "closed").chmod(0o700)
    index([folder / "d"], folder / "index")
    (folder / "d" / "closed").chmod(0)
    assert not index([folder / "d"], folder / "index").missing


def test_links_and_pipes_in_a_folder_are_named(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.txt").write_text("a")
    os.mkfifo(tmp_path / "d" / "b.txt")
    (tmp_path / "d" / "c.txt").symlink_to("nowhere")
    (tmp_path / "d" / "e").symlink_to(tmp_path)
    names, unreadable = files_in(tmp_path / "d")
    assert names == [tmp_path / "d" / "a.txt"]
    reasons = ["b.txt (a pipe or a device)", "c.txt (No such file or directory)", "e (a link to a folder)"]
    assert unreadable == [f"{tmp_path}/d/{reason}" for reason in reasons]


def test_a_pipe_for_a_corpus_is_named_as_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.txt")
    with pytest.raises(DataError, match=r"p\.txt is a pipe or a device.*- < .*p\.txt"):
        build([tmp_path / "p.txt"], tmp_path / "corpus")


@pytest.mark.parametrize("sharded", [False, True])
def test_weights_that_may_not_be_read_are_not_called_missing(folder: Path, sharded: bool) -> None:
    families.save(families.build("bert-tiny", vocab_size=50), folder / "model")
    path = folder / "model" / WEIGHTS
    if sharded:
        path = path.rename(folder / "model" / "model-1.safetensors")
        (folder / "model" / INDEX).write_text('{"weight_map": {"a": "model-1.safetensors"}}')
    path.chmod(0)
    with pytest.raises(DataError, match=f"{path.name} cannot be read: Permission denied"):
        weight_files(folder / "model")


def test_a_closed_folder_among_annotations_is_named(folder: Path) -> None:
    (folder / "d" / "a.ann").write_text("")
    with pytest.raises(DataError, match=r"cannot be read: .*d/closed \(Permission denied\)"):
        documents(folder / "d")
    with pytest.raises(DataError, match=r"cannot be read: .*d/closed \(Permission denied\)"):
        documents(folder / "d" / "closed")
