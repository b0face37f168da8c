"""`Reader`: how a task's examples are read from files, and which of them belong together.

rows -> Example, or `InvalidRow`
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path

from bertie.data.tables import Columns, Example, Fields, InvalidRow, TableFormat, example, find_columns, stream


class Reader:
    """What reads examples. It stands before a task's labels are known, so its methods are the class's."""

    @classmethod
    def rows(
        cls, path: Path | str, format: TableFormat, *, on_columns: Callable[[Columns], None] = lambda columns: None
    ) -> Iterator[Example | InvalidRow]:
        """The examples of a file, or of standard input ("-"), in order; a row that cannot be used as `InvalidRow`.

        `on_columns` is told which columns are read. By default the file is a table (data/tables.py).
        """
        return stream(path, format, on_columns=on_columns, find=cls.columns, make=cls.example)

    @classmethod
    def columns(cls, names: Sequence[str], format: TableFormat, where: str) -> Columns:
        """Which columns of a table are read. Raises DataError naming what there is."""
        return find_columns(names, format, where)

    @classmethod
    def example(cls, fields: Fields, columns: Columns, line: int) -> Example | InvalidRow:
        """The example of one row of a table."""
        return example(fields, columns, line)

    @classmethod
    def stratify_by(cls, example: Example) -> Hashable:
        """Where dev examples are held out of training ones, each stratum gives its share; by default there is one."""
        return None

    @classmethod
    def group(cls, example: Example) -> Hashable:
        """What an example belongs to with others: a question, a context. None: it stands by itself.

        A group is never split between training and dev, and is drawn whole where examples are drawn again.
        """
        return example.group
