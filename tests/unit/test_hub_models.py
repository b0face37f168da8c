"""Models by name: download, upload and the cache, against a hub on loopback."""

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import bertie as library
import processes
from bertie import checksums
from bertie.errors import DataError, UsageError, speech
from bertie.models import names
from fakehub import TOKEN, Hub, running
from toys import toy_model

NAME = "people/toy"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("toy") / "model", ["a", "text"])


@pytest.fixture
def hub(model: Path):
    with running() as found:
        files = {file: (model / file).read_bytes() for file in checksums.list_files(model) if file != "checksums.json"}
        found.repositories[NAME] = files | {"pytorch_model.bin": b"no", "run.py": b"no", "onnx/model.onnx": b"no"}
        yield found


@pytest.fixture
def command(hub: Hub, tmp_path: Path):
    def run(*arguments: object, code: int = 0, fresh: bool = False, **environment: str) -> str:
        """fresh: in a process that starts from nothing, beside others"""
        unset = ("HF_HUB_OFFLINE", "HF_TOKEN", "HF_HUB_CACHE")
        inherited = {name: value for name, value in os.environ.items() if name not in unset}
        home = {"HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": hub.address, "HF_HUB_DISABLE_XET": "1"}
        whole = {**inherited, **home, "HF_HUB_DISABLE_TELEMETRY": "1", **environment}
        if fresh:
            command = [sys.executable, "-m", "bertie", *map(str, arguments)]
            done = subprocess.run(command, env=whole, capture_output=True, text=True, timeout=120)
        else:
            done = processes.run(arguments, environment=whole)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    return run


def test_a_downloaded_model_opens_by_name(command, hub, tmp_path, monkeypatch):
    hub.breaks["model.safetensors"] = 1000
    said = command("info", NAME, code=2)
    assert f"bertie download {NAME}" in said
    facts = json.loads(command("download", NAME, "--json").splitlines()[0])
    folder = Path(facts["folder"])
    assert facts["commit"] == folder.name == hub.commit(NAME)
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in folder.iterdir()}
    assert not [path for path in folder.rglob("*") if path.suffix in (".bin", ".py", ".onnx")]
    assert checksums.check_files(folder).damage == []
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    assert (
        names.find_named_model(NAME)
        == names.find_named_model(f"{NAME}@main")
        == names.find_named_model(f"{NAME}@{facts['commit']}")
        == folder
    )
    assert np.isfinite(library.embed(NAME, ["a text"])[0]).all()
    assert NAME in command("download", "--list")
    command("download", f"{NAME}@v1")
    assert f"{NAME}@v1 " in command("download", "--list")
    asked = len(hub.requests)
    command("download", NAME)
    assert not [r for r in hub.requests[asked:] if r[0] == "GET" and "/resolve/" in r[1]], "files were read again"


def test_a_killed_download_is_continued(command, hub, tmp_path):
    """What arrived stays: only the file that is not there is read."""
    folder = Path(json.loads(command("download", NAME, "--json").splitlines()[0])["folder"])
    (folder / "tokenizer.json").resolve().unlink()
    (folder / "tokenizer.json").unlink()
    before = len(hub.requests)
    command("download", NAME)
    read = {path.rpartition("/")[2] for kind, path, _ in hub.requests[before:] if kind == "GET" and "/resolve/" in path}
    assert read == {"tokenizer.json"}


def test_a_tokenizer_in_the_cache_is_no_model(command, hub, model, tmp_path):
    """As `transformers` leaves it. A download gets the rest."""
    commit = hub.commit(NAME)
    repository = tmp_path / "hf" / "hub" / f"models--{NAME.replace('/', '--')}"
    folder = repository / "snapshots" / commit
    folder.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    for file in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(model / file, folder)
    (listed,) = (line for line in command("download", "--list").splitlines() if line.startswith(NAME))
    assert " missing " in listed
    assert f"bertie download {NAME}@{commit}" in command("embed", NAME, code=3)
    command("download", NAME)
    command("info", NAME)


def test_a_damaged_file_in_the_cache_is_replaced(command, hub):
    folder = Path(json.loads(command("download", NAME, "--json").splitlines()[0])["folder"])
    for file in ("model.safetensors", "tokenizer.json"):
        path = (folder / file).resolve()
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    assert len(checksums.check_files(folder).damage) == 2
    command("download", NAME)
    assert checksums.check_files(folder).damage == []
    for file in ("model.safetensors", "tokenizer.json"):
        assert (folder / file).read_bytes() == hub.repositories[NAME][file]


def test_errors_say_what_to_do(command, hub, tmp_path):
    assert "no model people/none" in command("download", "people/none", code=2)
    assert "no revision" in command("download", f"{NAME}@v9", code=2)
    assert "asks for consent" in command("download", "gated/model", code=2)
    assert "not a name" in command("download", "bert-base", code=2)
    assert "pip install 'bertie[minilm]'" in command("download", "minilm-l6", code=2)
    assert "comes with Bertie" in command("download", "starter-ko", code=2)
    assert "runs/none is not a folder" in command("upload", "runs/none", "people/mine", code=3)
    assert "HF_HUB_OFFLINE" in command("download", NAME, code=2, HF_HUB_OFFLINE="1")
    hub.repositories["people/pickled"] = {"config.json": b"{}", "pytorch_model.bin": b"no"}
    assert "--unsafe" in command("download", "people/pickled", code=3)
    hub.repositories["people/lora"] = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"x"}
    assert "people/lora is an adapter without its model" in command("download", "people/lora", code=3)
    hub.repositories["people/both"] = {"config.json": b"{}", "model.safetensors": b"x", "adapter_config.json": b"{}"}
    assert "people/both has an adapter beside the model" in command("download", "people/both", code=3)
    hub.repositories["people/empty"] = {"README.md": b"nothing"}
    assert "pickles" not in command("download", "people/empty", code=3)
    hub.repositories["people/bare"] = {"model.safetensors": b"x"}
    assert "no config.json" in command("download", "people/bare", code=3)
    (tmp_path / "file").write_text("")
    assert f"{tmp_path / 'file'}" in command("download", NAME, code=1, HF_HOME=str(tmp_path / "file"))
    hub.lies["model.safetensors"] = b"\0" * len(hub.repositories[NAME]["model.safetensors"])
    assert "arrived damaged" in command("download", NAME, code=3)
    hub.lies.clear()
    command("download", NAME)
    assert "could not be reached" in command("download", f"{NAME}@v1", code=3, HF_ENDPOINT="http://127.0.0.1:9")


def test_an_uploaded_model_comes_back(command, hub, model):
    assert "HF_TOKEN" in command("upload", model, "people/mine", code=2)
    assert "HF_TOKEN" in command("upload", model, "people/mine", code=2, HF_TOKEN="hf_wrong")
    command("upload", model, "people/mine", "--private", HF_TOKEN=TOKEN)
    sent = hub.repositories["people/mine"]
    assert sent == {file: (model / file).read_bytes() for file in checksums.list_files(model)}
    command("download", "people/mine")
    command("tokenizer", "encode", "people/mine", "a text")


def test_what_is_not_uploaded(command, hub, model, tmp_path):
    """Hidden files stay here, also those in folders; a folder inside with a list of its own is sent, too. A folder
    that cannot be opened is refused before anything is made."""
    folder = tmp_path / "copy"
    shutil.copytree(model, folder)
    for name in (".git/HEAD", "sub/.key/secret"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("x")
    shutil.copytree(model, folder / "inner")
    checksums.write_checksums(folder / "inner", "model")
    command("upload", folder, "people/copy", HF_TOKEN=TOKEN)
    inside = {file for file in hub.repositories["people/copy"] if "/" in file}
    assert inside == {f"inner/{file}" for file in [*checksums.list_files(model), "checksums.json"]}
    (folder / "inner" / "old.bin").write_text("x")
    assert "old.bin is a pickle" in command("upload", folder, "people/pickle", code=3, HF_TOKEN=TOKEN)
    (folder / "inner" / "old.bin").unlink()
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:1000])
    assert "Nothing was uploaded" in command("upload", folder, "people/broken", code=3, HF_TOKEN=TOKEN)
    assert "people/broken" not in hub.repositories


def test_two_downloads_of_one_model_at_once(command, hub, model):
    with ThreadPoolExecutor() as pool:
        assert all("people/toy" in said for said in pool.map(lambda _: command("download", NAME, fresh=True), range(2)))


def test_an_upload_leaves_the_library_as_it_was(hub, model, monkeypatch):
    """Its progress bar is its own, and no part of it is replaced."""
    from huggingface_hub import constants

    bars = import_module("huggingface_hub.utils.tqdm")
    own = bars.tqdm
    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # of the tests
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert library.upload(model, "people/mine").address.endswith("people/mine")
    assert bars.tqdm is own


def test_packaged_models_are_names(monkeypatch, tmp_path):
    monkeypatch.setattr(names.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"bertie\[minilm\]"):
        names.find_named_model("minilm-l6")
    assert names.find_named_model("bert-tiny") is None
    with pytest.raises(DataError, match="bertie download people/none"):
        library.load("people/none")


def test_models_that_come_with_bertie_are_names(model, monkeypatch, tmp_path):
    """A folder of models/, in a clone or in the wheel."""
    monkeypatch.setattr(names, "BUNDLED", (tmp_path / "none", model.parent))
    assert names.find_named_model(model.name) == model
    assert names.list_models()[0] == names.NamedModel(model.name, "comes with Bertie", True)
    assert library.load(model.name).tokenizer is not None
    with monkeypatch.context() as patch:
        patch.setattr(speech, "shell", False)
        with pytest.raises(DataError, match=r"has a name is bertie\.load_tokenizer\(NAME\)\."):
            library.Tokenizer.load(model.name)
    with pytest.raises(UsageError, match="model is 3; a text or a PathLike was expected"):
        library.load(3)
    assert names.find_named_model("starter-xx") is None
    with pytest.raises(DataError, match="starter-xx is not a folder"):
        library.load("starter-xx")
