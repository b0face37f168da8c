"""Models and data sets by name: `bertie.download`, `upload`, `list_models` and `data_sets`."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, overload

from bertie.api import transfers
from bertie.api.transfers import Downloaded, Remote
from bertie.errors import DataError, UsageError, arguments
from bertie.models import names
from bertie.models.variant import check_no_adapter, read_public
from bertie.runs.models import model_folder
from bertie.runs.verify import verify_folder
from bertie.tasks.datasets import DATASETS, check_dataset


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


@overload
def download(name: str | Remote, *, dry_run: Literal[False] = False) -> Downloaded: ...
@overload
def download(name: str | Remote, *, dry_run: Literal[True]) -> Remote: ...
@arguments(repo_id="name", model="name")
def download(name: str | Remote, *, dry_run: bool = False) -> Downloaded | Remote:
    """Downloads a model of the Hugging Face Hub, for use by name. Files that arrived before are not downloaded again.

    Only weights (safetensors), tokenizer and config are downloaded, to the cache of HF_HOME.

    Args:
        name: organization/model, or organization/model@revision; or what a dry run returned.
        dry_run: Whether to return the files and their sizes, and to download nothing.

    Raises:
        DataError: The model has no weights that can be opened.
        UsageError: There is no such model, or no network.

    Example:
        >>> bertie.download("someone/notes", dry_run=True).name
        'someone/notes'
        >>> downloaded = bertie.download("someone/notes")
        >>> bertie.load("someone/notes").can[:3]
        ('embed', 'similarity', 'fill_mask')
    """
    model = transfers.look_up(name, check_no_adapter) if isinstance(name, str) else name
    return model if dry_run else transfers.download_model(model)


@dataclass(frozen=True)
class Uploaded:
    """A model on the Hub.

    Attributes:
        address: Its address.
        bytes: Size of its files.
    """

    address: str
    bytes: int


@arguments(folder="model", repo_id="name", commit_message="message")
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
    folder = model_folder(model)
    read_public(folder)  # says what is wrong with a folder that is no model
    if damage := [check.result for check in verify_folder(folder).checks if not check.ok]:
        raise DataError(f"{damage[0]} Nothing was uploaded.")
    size = sum((folder / file).stat().st_size for file in transfers.uploaded(folder))
    return Uploaded(transfers.upload_folder(folder, name, private=private, message=message), size)


def list_models() -> list[NamedModel]:
    """Returns the models that have a name: those that come with Bertie and packages, and those of the Hub's cache.

    Example:
        >>> [model.name for model in bertie.list_models() if model.here][:3]
        ['names-en', 'questions-en', 'sentiment-ko']
    """
    return [NamedModel(name, text, here) for name, text, here in names.list_named_models()]


@dataclass(frozen=True)
class PublishedSplit:
    """A split of a published data set: its file, and the number of its examples, where it is known."""

    file: str
    examples: int | None


@dataclass(frozen=True)
class PublishedSet:
    """A published data set that `finetune` and `evaluate` know by name.

    Attributes:
        name: The name.
        title: What it is called.
        task: The task.
        metrics: Its metrics.
        recipe: The recipe with its published settings.
        licence: The licence.
        source: Where it comes from.
        splits: Its splits.
    """

    name: str
    title: str
    task: str
    metrics: tuple[str, ...]
    recipe: str
    licence: str
    source: str
    splits: dict[str, PublishedSplit]

    @property
    def labels(self) -> tuple[str, ...]:
        """Its labels in the order of a model's outputs; empty where they are no labels."""
        return tuple(DATASETS[self.name].labels)

    def check(self, data_dir: str | Path) -> Iterator["CheckedFile"]:
        """Yields a comparison of each downloaded file with the published number of examples.

        Raises UsageError for what is no folder.
        """
        folder = Path(data_dir)
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder.")
        for one in check_dataset(DATASETS[self.name], folder):
            counts = one.skipped.counts if one.skipped else {}
            note = str(one.skipped) if one.skipped and one.skipped.total else ""
            fine = one.rows is None or one.as_published
            yield CheckedFile(self.name, one.split, one.rows, one.expected, counts, one.problem, fine, note)

    def to_dict(self) -> dict[str, object]:
        """Returns the facts as JSON values, without the name."""
        facts = asdict(self)
        del facts["name"]
        return {**facts, "metrics": [*self.metrics]}


@arguments()
def data_sets(names: Sequence[str] = ()) -> list[PublishedSet]:
    """Returns the published data sets that are supported, with their sources and licences.

    Args:
        names: Names of data sets. Default: all.

    Raises:
        UsageError: There is no such data set.

    Example:
        >>> (rte,) = bertie.data_sets(["rte"])
        >>> rte.task, rte.splits["train"].examples
        ('sequence', 2490)
    """
    return [
        PublishedSet(
            name,
            row.title,
            row.task,
            tuple(row.metrics),
            row.recipe,
            row.licence,
            row.source,
            {split: PublishedSplit(file.file, file.rows) for split, file in row.splits.items()},
        )
        for name, row in ((name, DATASETS[name]) for name in names or DATASETS)
    ]


@dataclass(frozen=True)
class CheckedFile:
    """A downloaded file of a data set beside the published one.

    Attributes:
        data: The data set.
        split: The split.
        examples: Number of examples; None for a file that is not there.
        expected: The published number.
        left_out: Reason -> rows that were not read.
        problem: What differs.
        as_published: Whether nothing differs.
        note: What was skipped, in words.
    """

    data: str
    split: str
    examples: int | None
    expected: int | None
    left_out: dict[str, int]
    problem: str
    as_published: bool
    note: str = ""

    def to_dict(self) -> dict[str, object]:
        """Returns the facts as JSON values."""
        facts = asdict(self)
        del facts["note"], facts["as_published"]
        return facts
