"""The published data sets by name: their files, how they are read, task and licence. Bertie does not contain any data.

`bertie finetune MODEL --data sst2 --data-dir DIR` searches the files in DIR and in DIR/<folder>. The sets are in
datasets.json, each with the fields of `Dataset` that differ from the defaults.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from bertie.errors import DataError, nearest
from bertie.files import Json, JsonObject
from bertie.io.lines import BadRecord
from bertie.io.table_format import Columns, FileFormat, LabelNames, TableFormat
from bertie.io.tables import SkipReport
from bertie.registry import Registry
from bertie.tasks import TASKS


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
        rows: The published number of examples.
    """

    file: str
    columns: tuple[str, ...] = ()
    labelled: bool = True
    also: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    label: str = ""
    rows: int | None = None

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
class Dataset:
    """A published data set.

    Attributes:
        labels: The labels in the order of the model's outputs.
        meanings: What the labels mean, for models whose labels are these words.
        metrics: The reported metrics, the main one first.
        task: The name of the task, with `options`, which the user can override.
        kind: The format of the files (io/tables.py, io/tagged.py).
        undecided: The label of rows without agreement of the annotators, which are skipped.
        recipe: The published settings (recipes/), used by `bertie finetune --data`.
    """

    title: str
    folder: str
    splits: dict[str, Split]
    text: tuple[str, ...]
    label: str
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    licence: str
    source: str
    task: str = "sequence"
    options: Json = field(default_factory=dict)
    kind: str = "tsv"
    undecided: str | None = None
    recipe: str = "finetune-glue"
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


def _read_sets() -> Iterator[tuple[str, Dataset]]:
    """Yields the names and the rows of datasets.json."""
    for name, row in json.loads(Path(__file__).with_suffix(".json").read_bytes()).items():
        splits = {split: Split(**_with_tuples(fields)) for split, fields in row["splits"].items()}
        yield name, Dataset(**_with_tuples(row | {"splits": splits}))


def _with_tuples(fields: JsonObject) -> JsonObject:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


DATASETS: Registry[Dataset] = Registry("data set", _read_sets())


@dataclass(frozen=True)
class Checked:
    """One split of a data set in a folder. rows: the number of examples, including unusable ones, or None without a
    file."""

    split: str
    expected: int | None
    rows: int | None = None
    skipped: SkipReport | None = None
    problem: str = ""

    @property
    def as_published(self) -> bool:
        """Whether all examples are present."""
        return not self.problem and self.expected in (None, self.rows)


def check_dataset(dataset: Dataset, data_dir: Path) -> Iterator[Checked]:
    """Reads the splits of a data set from a folder, and counts their examples."""
    for name, split in dataset.splits.items():
        skipped, known = SkipReport(), set(dataset.labels)
        odd: set[str] = set()
        try:
            tables = dataset.tables(name, data_dir)
        except DataError as error:
            yield Checked(name, split.rows, problem=str(error))
            continue
        try:
            for path, format in tables:
                for row in TASKS[dataset.task].rows(path, format):
                    skipped.count(row)
                    label = None if isinstance(row, BadRecord) else row.label
                    if known and isinstance(label, str) and label not in known:
                        odd.add(label)
        except DataError as error:  # a file that is there and cannot be read
            yield Checked(name, split.rows, skipped.rows, skipped, str(error))
            continue
        problem = f"labels that are not in the published data set: {', '.join(sorted(odd)[:5])}" if odd else ""
        yield Checked(name, split.rows, skipped.rows, skipped, problem)
