"""The published data sets by name. Bertie does not contain any data."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bertie.errors import DataError
from bertie.io.lines import BadRecord
from bertie.io.tables import SkipReport
from bertie.registry import Registry
from bertie.tasks import TASKS
from bertie.tasks.dataset import Dataset, Split
from bertie.tasks.sets.english import ENGLISH
from bertie.tasks.sets.glue import GLUE
from bertie.tasks.sets.korean import KOREAN

__all__ = ["DATASETS", "Checked", "Dataset", "Split", "check_dataset"]

DATASETS: Registry[Dataset] = Registry("data set", [*GLUE, *ENGLISH, *KOREAN])


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
