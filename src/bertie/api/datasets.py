"""Published data sets by name: `bertie.data_sets`."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bertie.errors import UsageError, arguments
from bertie.tasks.datasets import DATASETS, check_dataset


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
