"""`bertie.register`: a task, an objective, a family and others of one's own, in a script."""

from importlib import import_module
from typing import Literal

from bertie.errors import UnknownName, nearest
from bertie.registry import Registry

_Kind = Literal[
    "task", "objective", "family", "tokenizer", "head", "engine", "reader", "source", "splitter", "word_splitter"
]
TABLES: dict[str, tuple[str, str]] = {
    "task": ("bertie.tasks", "TASKS"),
    "objective": ("bertie.objectives", "OBJECTIVES"),
    "family": ("bertie.models.families", "VARIANTS"),
    "head": ("bertie.models.heads", "HEADS"),
    "tokenizer": ("bertie.text.formats", "BY_FAMILY"),
    "reader": ("bertie.io.rows", "FORMATS"),
    "source": ("bertie.io.sources", "SOURCES"),
    "engine": ("bertie.infer.engine", "ENGINES"),
    "splitter": ("bertie.text.sentences", "SPLITTERS"),
    "word_splitter": ("bertie.text.sentences", "WORD_SPLITTERS"),
}
"""Kind -> its table. The entry points of packages have the name of the kind in the plural: bertie.tasks."""


def register(kind: _Kind, name: str, thing: object) -> None:
    """Adds something of one's own to what Bertie knows by name, in this process.

    A package does the same by an entry point: `[project.entry-points."bertie.tasks"]`. Then every command and server
    knows it too.

    Args:
        kind: task (a class of `Task`), objective (a class of `Objective`), family (a `Variant`), tokenizer (a
            `Format`, of a family), head (a `HeadSpec`), engine (a function from a model in torch to an `Engine`),
            reader (of a table's format), source (of a corpus's format), splitter (a function from a text to its
            sentences), word_splitter (a function from a text to where its words begin).
        name: The name in options and settings; of a family its model_type, and of a reader or source the suffix.
        thing: What has the name.

    Raises:
        UsageError: The kind is unknown, or the name exists.

    Example:
        >>> import bertie
        >>> from bertie.tasks.sequence import SequenceTask
        >>> class Stars(SequenceTask):
        ...     "Labels in an order."
        >>> bertie.register("task", "stars", Stars)
    """
    if kind not in TABLES:
        raise UnknownName(f"Unknown kind {kind!r}. {nearest(str(kind), TABLES)}")
    module, table = TABLES[kind]
    registry: Registry[object] = getattr(import_module(module), table)
    registry.add(name, thing)
