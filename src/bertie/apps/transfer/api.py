"""`bertie.download` and `bertie.upload`, with huggingface_hub (bertie[hub]). No other module uses the network.

A downloaded model is in the cache that other libraries use too ($HF_HOME). Its folder is that of a commit, and contains
a checksums.json, which later damage is found with.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, overload

import bertie
from bertie.platform import BertieError, DataError, HubModel, ModelFolder, UsageError, checked_arguments, console

WEIGHTS, INDEX, SHARDS = "model.safetensors", "model.safetensors.index.json", "model-*-of-*.safetensors"
WANTED = (
    *("config.json", "generation_config.json", "README.md", "LICENSE*", "score.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt"),
    *("vocab.json", "merges.txt", "*.model"),
    *("modules.json", "config_sentence_transformers.json", "sentence_*_config.json"),
    *("[0-9]_*/*.json", "[0-9]_*/*.safetensors", "[0-9]_*/vocab.txt"),
)
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
"""Extensions of files that can run code when they are source."""


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

    @property
    def model(self) -> HubModel:
        """The same model in the cache."""
        return HubModel(self.name, self.revision)


@dataclass(frozen=True)
class Uploaded:
    """A model on the Hub.

    Attributes:
        address: Its address.
        bytes: Size of its files.
    """

    address: str
    bytes: int


@overload
def download(name: str | Remote, *, dry_run: Literal[False] = False) -> Downloaded: ...
@overload
def download(name: str | Remote, *, dry_run: Literal[True]) -> Remote: ...
@checked_arguments
def download(name: str | Remote, *, dry_run: bool = False) -> Downloaded | Remote:
    """Downloads a model of the Hugging Face Hub, for use by name. Files that arrived before are not downloaded again.

    Only weights (safetensors), tokenizer and config are downloaded, to the cache of HF_HOME.

    Args:
        name: organization/model, or organization/model@revision; or what a dry run returned.
        dry_run: Whether to return the files and their sizes, and to download nothing.

    Raises:
        DataError: The model has no weights that can be source.
        UsageError: There is no such model, or no network.

    Example:
        >>> bertie.download("someone/notes", dry_run=True).name
        'someone/notes'
        >>> downloaded = bertie.download("someone/notes")
        >>> bertie.load("someone/notes").can[:3]
        ('embed', 'similarity', 'fill_mask')
    """
    model = look_up(name) if isinstance(name, str) else name
    return model if dry_run else download_model(model)


@checked_arguments
def upload(model: str | Path, name: str, *, private: bool = False, message: str = "") -> Uploaded:
    """Uploads a model folder to the Hugging Face Hub, with its tokenizer and card.

    Args:
        model: Name or folder of the model.
        name: Name on the Hub: organization/model.
        private: Whether to make a new repository private.
        message: Message of the commit.

    Raises:
        DataError: The folder is damaged, or no model.

    Example:
        >>> uploaded = bertie.upload("runs/other", "someone/reviews", private=True)
        >>> uploaded.bytes > 1_000_000
        True
    """
    source = ModelFolder(model)
    folder, _ = source.path, source.public  # the config says what is wrong with a folder that is no model
    if damage := [check.result for check in bertie.verify(folder).checks if not check.ok]:
        raise DataError(f"{damage[0]} Nothing was uploaded.")
    address = upload_files(folder, source.files, name, private=private, message=message)
    return Uploaded(address, sum((folder / file).stat().st_size for file in source.files))


def look_up(name: str) -> Remote:
    """Returns what a download would fetch. name: "organization/model", with "@" and a branch, tag or commit, or "main".

    Raises UsageError for another name, for one that needs no download, and without network. Raises UsageError too for a
    model that the Hub does not have or does not show to this user. Raises DataError for a repository without
    safetensors, or with an adapter.
    """
    model = HubModel.of(name)
    repository, revision = model.name, model.revision
    hub = _library()
    with _errors(f"{repository}@{revision}"):
        info = hub.HfApi().model_info(repository, revision=revision, files_metadata=True)
    files = {file.rfilename: file for file in info.siblings}
    model.check_files(files)
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
    hub, here = _library(), remote.model
    here.discard_damaged(remote.commit, remote.files)
    with _errors(f"{remote.name}@{remote.revision}"):
        for file in remote.files:
            hub.hf_hub_download(remote.name, file, revision=remote.commit, cache_dir=here.cache)
    if damaged := here.discard_damaged(remote.commit, remote.files):
        raise DataError(f"{damaged[0]} of {remote.name} arrived damaged and was deleted. Run the same command again.")
    here.keep(remote.commit)
    return Downloaded(remote.name, here.folder_of(remote.commit), remote.commit, len(remote.files), remote.bytes)


def upload_files(folder: Path, files: Sequence[str], name: str, *, private: bool = False, message: str = "") -> str:
    """Uploads files of a folder as one commit of a repository, which is made if it does not exist. -> its address.

    huggingface_hub shows its own progress. Files that the Hub has already are not sent again. Raises UsageError without
    an access token or the right to write; DataError for pickles.
    """
    hub = _library()
    if HubModel.of(name).name != name:  # with a revision
        raise UsageError(f"{name!r} is not a name of the Hugging Face Hub. Such names are like organization/model.")
    if pickles := [file for file in files if file.endswith(PICKLES)]:
        raise DataError(f"{folder / pickles[0]} is a pickle, which can run code. Move it away. Nothing was uploaded.")
    api = hub.HfApi()
    with _errors(name):
        address = api.create_repo(name, private=private, exist_ok=True)
        parts = [hub.CommitOperationAdd(path_in_repo=file, path_or_fileobj=folder / file) for file in files]
        api.create_commit(name, parts, commit_message=message or "Upload a model")
    return str(address)


def _library() -> Any:
    try:
        import huggingface_hub
        from huggingface_hub.utils.tqdm import disable_progress_bars
    except ImportError:
        raise UsageError(
            "The Hugging Face Hub needs huggingface_hub: pip install 'bertie[hub]'", code="missing-package"
        ) from None
    if console.verbosity.level < 0 or console.verbosity.json:
        disable_progress_bars()
    return huggingface_hub


@contextmanager
def _errors(name: str) -> Iterator[None]:
    """Context in which the errors of the Hub become one sentence each."""
    from huggingface_hub import errors

    unreachable: type[Exception] = errors.HfHubHTTPError.__bases__[0]  # of the HTTP library that this version uses
    token = "set HF_TOKEN, or run: hf auth login"

    try:
        yield
    except errors.OfflineModeIsEnabled:
        raise UsageError("HF_HUB_OFFLINE forbids the network. Unset it to download or upload.") from None
    except errors.GatedRepoError:
        raise BertieError.with_code(
            "no-access", f"{name} asks for consent. Give it on its page, then {token}"
        ) from None
    except errors.RepositoryNotFoundError:
        missing = f"The Hub has no model {name}, or shows it only to its owners. Check the name; for a private model,"
        raise BertieError.with_code("unknown-name", f"{missing} {token}") from None
    except errors.RevisionNotFoundError:
        raise BertieError.with_code("unknown-name", f"The Hub has no revision {name}.") from None
    except errors.LocalTokenNotFoundError:
        raise BertieError.with_code("no-access", f"No access token. To upload, {token}") from None
    except (unreachable, errors.LocalEntryNotFoundError, OSError) as error:
        if getattr(error, "filename", None) is not None:  # of a file or folder here, such as the cache
            raise
        response = getattr(error, "response", None)
        if response is not None and response.status_code in (401, 403):
            refused = f"The Hub refuses this user for {name}. Set HF_TOKEN to a token with that right."
            raise BertieError.with_code("no-access", refused) from None
        reason = str(error).strip().splitlines() or [type(error).__name__]
        said = f"{name}: the Hub could not be reached ({reason[0]}). Run the same command again."
        raise BertieError.with_code("no-network", said) from None
