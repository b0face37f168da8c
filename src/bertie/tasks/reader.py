"""`Reader`: reads a task's examples from files, and defines which examples belong together.

rows -> Example, or `BadRecord`
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from bertie.io.columns import LookAhead, find_columns, no_rows
from bertie.io.fields import Fields
from bertie.io.lines import BadRecord
from bertie.io.table_format import Columns, TableFormat
from bertie.io.tables import Example, example, stream_examples


class Reader:
    """The part of a task that reads examples. The labels are not known yet, so its methods are class methods."""

    several_labels: ClassVar[bool] = False
    """Whether a cell can have several labels, between separators."""
    reads_words: ClassVar[bool] = False
    """Whether files of words with tags or trees are read."""

    @classmethod
    def reads_sets_of(cls, own: type["Reader"]) -> bool:
        """Returns whether the published sets of a task can be read. Default: of this task or one that it extends."""
        return issubclass(cls, own)

    @classmethod
    def rows(
        cls, path: Path | str, format: TableFormat, *, on_columns: Callable[[Columns], None] = lambda columns: None
    ) -> Iterator[Example | BadRecord]:
        """Yields the examples of a file, or of standard input ("-"), in order. An unusable row is an `BadRecord`.

        `on_columns` is called with the columns. By default, the file is a table (io/tables.py).
        """
        return stream_examples(path, format, on_columns=on_columns, find=cls.columns, make=cls.example)

    @classmethod
    def row_of(cls, values: Sequence[object]) -> Mapping[str, object] | None:
        """Returns the values of a tuple in Python by column; None: the last one is the label of a text or of two."""
        return None

    @classmethod
    def columns(cls, names: Sequence[str], columns: Columns, where: str, look: LookAhead = no_rows) -> Columns:
        """Returns the columns to read. Raises DataError with the available names."""
        return find_columns(names, columns, where, look)

    @classmethod
    def example(cls, fields: Fields, columns: Columns, line: int) -> Example | BadRecord:
        """Returns the example of one row of a table."""
        return example(fields, columns, line)

    @classmethod
    def stratify_by(cls, example: Example) -> Hashable:
        """Returns the stratification key used when a dev set is split off. Default: one stratum."""
        return None

    reads_columns: ClassVar[bool] = True
    """Whether examples are rows of a table, of which any column can be the group."""

    @classmethod
    def group(cls, example: Example) -> Hashable:
        """Returns the group of an example, such as a question or a context, or None for an example without a group.

        A group is never split between training and dev, and bootstrap samples draw whole groups.
        """
        return example.group
