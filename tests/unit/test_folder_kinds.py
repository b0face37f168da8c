"""A folder of another kind than a command takes: what it is, and which command takes it."""

from pathlib import Path

import pytest

from bertie.errors import DataError
from bertie.folders import FOLDER_KINDS, check_folder_kind
from bertie.runs.weights import load_model
from bertie.text.tokenizer import Tokenizer

FOLDERS = {
    "search index": ("index.sqlite", "bertie search 'a b' QUESTION"),
    "corpus": ("manifest.json", "bertie pretrain --corpus 'a b' -o RUN"),
    "tokenizer": ("tokenizer.json", "bertie pretrain --tokenizer 'a b' --corpus CORPUS -o RUN"),
    "model": ("model.safetensors", "bertie info 'a b'"),
    "run": ("metrics.jsonl", "bertie report 'a b'"),
}


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("a b")
    path.mkdir()
    (path / FOLDERS[request.param][0]).write_text("")
    return path


@pytest.mark.parametrize(("folder", "kind"), [(kind, kind) for kind in FOLDERS], indirect=["folder"])
def test_what_a_folder_is_and_who_takes_it(folder: Path, kind: str) -> None:
    assert set(FOLDERS) == set(FOLDER_KINDS)
    check_folder_kind(folder, kind)
    for other in FOLDERS.keys() - {kind}:
        with pytest.raises(DataError) as error:
            check_folder_kind(folder, other)
        assert f"is a {kind}, not a {other}. To use it: {FOLDERS[kind][1]}" in str(error.value)


def test_any_other_folder_has_no_kind(tmp_path: Path) -> None:
    check_folder_kind(tmp_path, "model")
    check_folder_kind(tmp_path / "nowhere", "model")


@pytest.mark.parametrize("folder", ["search index", "corpus", "tokenizer"], indirect=True)
@pytest.mark.parametrize("words", ["predict {} a.txt", "evaluate {} a.txt", "embed {} a.txt -o a.npy", "info {}"])
def test_a_command_says_it(bertie: object, folder: Path, words: str) -> None:
    Path("a.txt").write_text("one text\n")
    code, _, error = bertie(*(str(folder) if word == "{}" else word for word in words.split()))  # type: ignore[operator]
    assert code == 3
    assert "not a model. To use it: bertie " in " ".join(error.split())


@pytest.mark.parametrize("folder", ["search index"], indirect=True)
def test_python_says_it(folder: Path) -> None:
    with pytest.raises(DataError, match=r"is a search index, not a model\. To use it: bertie search"):
        load_model(folder)
    with pytest.raises(DataError, match="is a search index, not a model or a tokenizer"):
        Tokenizer.load(folder)
