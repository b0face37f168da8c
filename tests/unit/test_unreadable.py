"""What may not be read is named, and never left out without a word."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bertie import checksums
from bertie.apps.search import readers
from bertie.apps.search.index import index
from bertie.console import console
from bertie.data.corpus import build_shards
from bertie.errors import DataError
from bertie.files import files_in
from bertie.io import sources
from bertie.io.brat import annotation_files
from bertie.models import families
from bertie.models.files import WEIGHTS, WEIGHTS_INDEX, weight_files
from bertie.runs.folder import CONFIG, RESULTS, read_results
from bertie.runs.opening import open_engine
from bertie.runs.weights import load_model
from bertie.train import log
from toys import toy_model

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
    build_shards([made / "d" / "a.txt"], made / "first")
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
        for found in (sources.SourceFiles.of([str(pattern)], sources.formats()), readers.expand([str(pattern)])):
            assert (found.names, found.unreadable) == ([f"{folder}/d/a.txt"], [closed])
    shards = build_shards([folder / "d"], folder / "corpus")
    assert shards.manifest["inputs"]["unreadable"] == 1
    assert closed in capsys.readouterr().err
    assert index([folder / "d"], folder / "index").unreadable == [closed]


def test_nothing_but_a_closed_folder_is_an_error_with_the_reason(folder: Path) -> None:
    (folder / "d" / "a.txt").unlink()
    for inputs in (folder / "d", f"{folder}/d/**/*.txt", f"{folder}/d/*/*.txt"):
        with pytest.raises(DataError, match=r"cannot be read: .*d/closed \(Permission denied\)"):
            build_shards([inputs], folder / "corpus")
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
        build_shards([tmp_path / "p.txt"], tmp_path / "corpus")


@pytest.mark.parametrize("sharded", [False, True])
def test_weights_that_may_not_be_read_are_not_called_missing(folder: Path, sharded: bool) -> None:
    families.save(families.build("bert-tiny", vocab_size=50), folder / "model")
    path = folder / "model" / WEIGHTS
    if sharded:
        path = path.rename(folder / "model" / "model-1.safetensors")
        (folder / "model" / WEIGHTS_INDEX).write_text('{"weight_map": {"a": "model-1.safetensors"}}')
    path.chmod(0)
    with pytest.raises(DataError, match=f"{path.name} cannot be read: Permission denied"):
        weight_files(folder / "model")


def test_a_closed_folder_among_annotations_is_named(folder: Path) -> None:
    (folder / "d" / "a.ann").write_text("")
    with pytest.raises(DataError, match=r"cannot be read: .*d/closed \(Permission denied\)"):
        annotation_files(folder / "d")
    with pytest.raises(DataError, match=r"cannot be read: .*d/closed \(Permission denied\)"):
        annotation_files(folder / "d" / "closed")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "closed": lambda path: path.chmod(0),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "noise": lambda path: path.write_bytes(bytes(range(128, 256)) * 9),
    "a list": lambda path: path.write_text("[]"),
    "nested": lambda path: path.write_text("[" * 100_000),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a loop": lambda path: (path.unlink(), path.symlink_to(path.name)),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
}


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder of root's that others may read."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@contextmanager
def as_nobody() -> Iterator[None]:
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", WEIGHTS])
def test_a_damaged_file_of_a_model_is_a_fault_of_the_data(open_folder: Path, name: str, damage: str) -> None:
    """Whatever the file and the damage: one error of exit code 3 that names the folder, or the model is read."""
    model = toy_model(open_folder / "model", ["a", "b"])
    load_model(model)
    open_engine(model)
    DAMAGE[damage](model / name)
    needed = name in ("config.json", WEIGHTS) or damage == "closed"
    with pytest.raises(DataError, match=str(model)) if needed else suppress(DataError), as_nobody():
        load_model(model)
    with pytest.raises(DataError, match=str(model)) if needed else suppress(DataError), as_nobody():
        open_engine(model)  # as the commands do


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", [log.METRICS, RESULTS, CONFIG])
def test_a_damaged_file_of_a_run_is_a_fault_of_the_data(open_folder: Path, name: str, damage: str) -> None:
    for one in (log.METRICS, RESULTS, CONFIG):
        (open_folder / one).write_text("{}\n")
    checksums.write_checksums(open_folder, "run")
    DAMAGE[damage](open_folder / name)
    with as_nobody():
        assert any(name in one for one in checksums.check_files(open_folder).damage)
        if name != CONFIG:
            with pytest.raises(DataError, match=name):
                (log.read_log if name == log.METRICS else read_results)(open_folder)
