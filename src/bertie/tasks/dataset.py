"""What a published data set is to Bertie: its files, how they are read, the task they pose, its terms.

`bertie finetune MODEL --data sst2 --data-dir DIR` looks for a set's files in DIR and in DIR/<folder>. Most are
tab-separated with quoting off; what differs is in the row (tasks/sets/).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bertie.data.tables import TableFormat
from bertie.errors import DataError, nearest


@dataclass(frozen=True)
class Split:
    """One file of a set. columns: their names where the file has no header line.

    file: its name, or a pattern (*-ud-dev*.conllu) that one file has; also: other names it goes by; more: further files
    of the split. text, label: columns, where they are not the set's. rows: examples that were published.
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
        """Its path in the first folder that has it. Raises DataError where several files could be meant."""
        for folder in folders:
            found = sorted({path for name in (self.file, *self.also) for path in folder.glob(name) if path.is_file()})
            if len(found) > 1:
                raise DataError(
                    f"{folder} has several matching files: {', '.join(p.name for p in found)}. Keep only one."
                )
            if found:
                return found[0]
        return None


@dataclass(frozen=True)
class Dataset:
    """A published set. labels: in the order the model is to have. metrics: what is reported, the main one first.

    task: by name, with `options`, which the user's lie over. kind: of its files (data/tables.py, data/tagged.py).
    undecided: the label of rows whose annotators did not agree; they are left out. recipe: the published settings of a
    run on it (recipes/), which `bertie finetune --data` takes.
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
    options: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "tsv"
    undecided: str | None = None
    recipe: str = "finetune-glue"

    def tables(self, split: str, data_dir: Path) -> list[tuple[Path, TableFormat]]:
        """The files of one split, and how they are read. Raises DataError: no such split, file not there."""
        if split not in self.splits:
            raise DataError(f"{self.title} has no split {split!r}. {nearest(split, self.splits)}")
        row = self.splits[split]
        label = row.label or self.label if row.labelled else ""
        format = TableFormat(
            row.text or self.text,
            label,
            row.columns,
            kind=self.kind,
            labelled=row.labelled,
            undecided=self.undecided,
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
        """The one file of a split, and how it is read. Raises DataError as `tables`, and when it has several."""
        tables = self.tables(split, data_dir)
        if len(tables) > 1:
            files = ", ".join(path.name for path, _ in tables)
            raise DataError(f"{self.title}: the split {split!r} has several files ({files}). Choose one.")
        return tables[0]
