"""What the commands of applications share: options by name, and the card of the model that a command describes."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import get_args

from bertie.cli import app, tables
from bertie.report import card

OPTIONS: dict[str, object] = {
    "card": tables.Card,
    "columns": tables.ColumnNames,
    "config": app.ConfigFile,
    "device": tables.Device,
    "encoding": tables.Encoding,
    "engine": tables.Engine,
    "format": tables.Format,
    "label": tables.LabelColumn,
    "max-length": tables.MaxLength,
    "model": tables.ModelFolder,
    "overrides": app.Overrides,
    "overwrite": app.Overwrite,
    "page": tables.PageFile,
    "precision": tables.Precision,
    "text": tables.TextColumns,
}


def option(name: str) -> object:
    """Returns the option, or the argument, of this name that many commands have: the metadata of its annotation."""
    return get_args(OPTIONS[name])[1]


class ModelCard:
    """The card of a model folder, README.md, into which a command writes what it found out."""

    def __init__(self, model: Path) -> None:
        self.model = model

    def check(self, changes: bool = True) -> None:
        """Raises UsageError where the command changes the card and cannot: others use the model, or it is
        read-only."""
        tables.check_card(changes, self.model)

    def put(self, title: str, *parts: str) -> None:
        """Writes a section, instead of an earlier one with the same title."""
        card.put(self.model, title, *parts)

    @staticmethod
    def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
        """Returns a Markdown table."""
        return card.table(columns, rows)
