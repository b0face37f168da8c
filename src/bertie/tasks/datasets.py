"""The published data sets by name: their files, how they are read, task and licence. Bertie does not contain any data.

`bertie finetune MODEL --data sst2 --data-dir DIR` searches the files in DIR and in DIR/<folder>. The sets are in
datasets.json, each with the fields of `Dataset` that differ from the defaults.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from bertie.errors import DataError, UsageError, arguments, nearest
from bertie.files import Json, JsonObject
from bertie.io.lines import BadRecord
from bertie.io.table_format import RECOGNISED, Columns, FileFormat, LabelNames, TableFormat
from bertie.io.tables import SkipReport
from bertie.metrics.compare import SCORE_SETTINGS
from bertie.registry import Registry
from bertie.tasks import TASKS, Task


@dataclass(frozen=True)
class Split:
    """One split of a data set.

    Attributes:
        file: The file name, or a pattern with one match (*-ud-dev*.conllu).
        also: Other names of the file.
        more: Further files of the split.
        columns: Column names of a file without a header line.
        text: Text columns, where they differ from the data set's.
        label: The label column, where it differs from the data set's.
        examples: The published number of examples, where it is known.
    """

    file: str
    columns: tuple[str, ...] = ()
    labelled: bool = True
    also: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    label: str = ""
    examples: int | None = None

    def find(self, *folders: Path) -> Path | None:
        """Returns the path in the first folder that has the file. Raises DataError for several matches."""
        for folder in folders:
            paths = sorted({path for name in (self.file, *self.also) for path in folder.glob(name) if path.is_file()})
            if len(paths) > 1:
                raise DataError(
                    f"{folder} has several matching files: {', '.join(p.name for p in paths)}. Keep only one."
                )
            if paths:
                return paths[0]
        return None


@dataclass(frozen=True)
class CheckedFile:
    """A downloaded file of a data set beside the published one.

    Attributes:
        data: The data set.
        split: The split.
        examples: Number of examples, including unusable ones; None for a file that is not there.
        expected: The published number.
        left_out: Reason -> rows that were not read.
        problem: What differs.
        note: What was skipped, in words.
    """

    data: str
    split: str
    examples: int | None
    expected: int | None
    left_out: dict[str, int] = field(default_factory=dict)
    problem: str = ""
    note: str = ""

    @property
    def as_published(self) -> bool:
        """Whether all examples are present."""
        return not self.problem and self.expected in (None, self.examples)

    def to_dict(self) -> dict[str, object]:
        """Returns the facts as JSON values."""
        facts = asdict(self)
        del facts["note"]
        return facts


@dataclass(frozen=True, kw_only=True)
class PublishedSet:
    """A published data set that `finetune` and `evaluate` know by name.

    Attributes:
        name: The name.
        title: What it is called.
        splits: Its splits.
        labels: The labels in the order of the model's outputs; empty where they are no labels.
        metrics: The reported metrics, the main one first.
        licence: The licence.
        source: Where it comes from.
        task: The name of the task.
        recipe: The recipe with its published settings.
    """

    name: str
    title: str
    splits: dict[str, Split]
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    licence: str
    source: str
    task: str = "sequence"
    recipe: str = "finetune-glue"

    def check(self, data_dir: str | Path) -> Iterator[CheckedFile]:
        """Yields a comparison of each downloaded file with the published number of examples.

        Raises UsageError for what is no folder.
        """
        folder = Path(data_dir)
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder.")
        for split in self.splits:
            yield DATASETS[self.name].check_split(split, folder)

    def to_dict(self) -> dict[str, object]:
        """Returns the facts as JSON values, without the name."""
        splits = {name: {"file": one.file, "examples": one.examples} for name, one in self.splits.items()}
        facts = {"title": self.title, "task": self.task, "metrics": [*self.metrics], "recipe": self.recipe}
        return {**facts, "licence": self.licence, "source": self.source, "splits": splits}


@dataclass(frozen=True, kw_only=True)
class Dataset(PublishedSet):
    """A published data set, and how its files are read.

    Attributes:
        folder: The folder of its files, in that of all sets.
        meanings: What the labels mean, for models whose labels are these words.
        options: Those of the task, which the user can override.
        kind: The format of the files (io/tables.py, io/tagged.py).
        undecided: The label of rows without agreement of the annotators, which are skipped.
    """

    folder: str
    text: tuple[str, ...]
    label: str
    options: Json = field(default_factory=dict)
    kind: str = "tsv"
    undecided: str | None = None
    meanings: Mapping[str, str] = field(default_factory=dict)

    def tables(self, split: str, data_dir: Path) -> list[tuple[Path, TableFormat]]:
        """Returns the files of one split and their format. Raises DataError for an unknown split or a missing file."""
        if split not in self.splits:
            raise DataError(f"{self.title} has no split {split!r}. {nearest(split, self.splits)}")
        row = self.splits[split]
        format = TableFormat(
            FileFormat(self.kind, names=row.columns),
            Columns(row.text or self.text, (row.label or self.label) if row.labelled else None),
            LabelNames(meanings=self.meanings, undecided=self.undecided),
        )
        parts = [row, *(replace(row, file=file, also=()) for file in row.more)]
        return [(self._find(part, data_dir), format) for part in parts]

    def _find(self, split: Split, data_dir: Path) -> Path:
        places = [data_dir, data_dir / self.folder]
        path = split.find(*places)
        if path is None:
            neither = " nor ".join(str(place / split.file) for place in places)
            raise DataError(f"{self.title}: neither {neither} exists. Download the data set from {self.source}.")
        return path

    def table(self, split: str, data_dir: Path) -> tuple[Path, TableFormat]:
        """Returns the only file of a split and its format. Raises DataError as `tables`, and for several files."""
        tables = self.tables(split, data_dir)
        if len(tables) > 1:
            files = ", ".join(path.name for path, _ in tables)
            raise DataError(f"{self.title}: the split {split!r} has several files ({files}). Choose one.")
        return tables[0]

    def table_for(self, split: str, data_dir: Path | str | None, format: TableFormat) -> tuple[Path, TableFormat]:
        """Returns the file of a split and its format, with the label names of the user's.

        Raises UsageError as `check_format`; DataError for an unknown split or a missing file.
        """
        self.check_format(format)
        path, published = self.table(split, Path(data_dir or ""))
        return path, replace(published, labels=replace(published.labels, names=format.labels.names))

    def check_format(self, format: TableFormat) -> None:
        """Raises UsageError for columns, an encoding or a format of the user's: the files are read as published."""
        file, columns = format.file, format.columns
        options = {
            "text": columns.text,
            "label": columns.label,
            "columns": file.names,
            "encoding": file.encoding != RECOGNISED.file.encoding,
            "format": file.kind,
            "label-separator": columns.separator,
        }
        if option := next((option for option, value in options.items() if value), ""):
            raise UsageError(
                f"--{option} and --data exclude each other: the files of {self.name} are read as published. Omit "
                f"--{option}."
            )

    def scored(self, task: Task) -> tuple[Task, tuple[str, ...]]:
        """Returns a model's task with the settings of the set that its scores depend on, such as the script of
        KorQuAD; and the metrics of the set that the task has, or else its own."""
        if isinstance(task, TASKS[self.task]):
            options = {option: value for option, value in self.options.items() if option in SCORE_SETTINGS}
            if task.labels != self.labels:
                options.pop("frequent", None)  # it counts the first labels of the set
            task = replace(task, **options) if options else task
        return task, self.metrics_of(task)

    def metrics_of(self, task: Task) -> tuple[str, ...]:
        """Returns the metrics of the set that a task has, or else the task's own."""
        known = task.scores().compute()
        return tuple(metric for metric in self.metrics if metric in known) or task.metrics

    def check_split(self, split: str, folder: Path) -> CheckedFile:
        """Reads a split, and compares its number of examples."""
        file = CheckedFile(self.name, split, None, self.splits[split].examples)
        try:
            tables = self.tables(split, folder)
        except DataError as error:
            return replace(file, problem=str(error))
        skipped, odd, problem = SkipReport(), set[str](), ""
        try:
            for path, format in tables:
                for row in TASKS[self.task].rows(path, format):
                    skipped.count(row)
                    label = None if isinstance(row, BadRecord) else row.label
                    if self.labels and isinstance(label, str) and label not in self.labels:
                        odd.add(label)
        except DataError as error:  # a file that is there and cannot be read
            problem = str(error)
        else:
            if odd:
                problem = f"labels that are not in the published data set: {', '.join(sorted(odd)[:5])}"
        note = str(skipped) if skipped.total else ""
        return replace(file, examples=skipped.rows, left_out=skipped.counts, problem=problem, note=note)


def _read_sets() -> Iterator[tuple[str, Dataset]]:
    """Yields the names and the rows of datasets.json."""
    for name, row in json.loads(Path(__file__).with_suffix(".json").read_bytes()).items():
        splits = {split: Split(**_with_tuples(fields)) for split, fields in row["splits"].items()}
        yield name, Dataset(name=name, **_with_tuples(row | {"splits": splits}))


def _with_tuples(fields: JsonObject) -> JsonObject:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


DATASETS: Registry[Dataset] = Registry("data set", _read_sets())


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
    return [DATASETS[name] for name in names or DATASETS]
