"""What the commands of applications share: options by name."""

from typing import get_args

import typer

from bertie.apps.cli import app, tables

OPTIONS: dict[str, object] = {
    "card": tables.Card,
    "columns": tables.ColumnNames,
    "config": app.ConfigFile,
    "device": tables.DeviceOption,
    "encoding": tables.EncodingOption,
    "engine": tables.EngineOption,
    "excel": tables.Excel,
    "file": tables.TextFile,
    "format": tables.FormatOption,
    "label": tables.LabelColumn,
    "max-length": tables.MaxLength,
    "model": tables.ModelArgument,
    "only-answers": tables.OnlyAnswers,
    "output-encoding": tables.OutputEncoding,
    "overrides": app.Overrides,
    "overwrite": app.Overwrite,
    "page": tables.PageFile,
    "precision": tables.PrecisionOption,
    "text": tables.TextColumns,
}


def option(name: str, *endings: str, help: str = "") -> object:
    """Returns the option, or the argument, of this name that many commands have: the metadata of its annotation.

    endings: extensions of the file that it names; the option is then an output of the command's own.
    """
    if not endings:
        return get_args(OPTIONS[name])[1]
    names = ("--output", "-o") if name == "output" else (f"--{name}",)
    return typer.Option(*names, help=help, callback=tables.ending(*endings))
