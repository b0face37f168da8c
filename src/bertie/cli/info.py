"""`bertie info`: the architecture, size and cost of a model folder or a preset."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

import bertie
from bertie.console import console
from bertie.errors import UsageError

if TYPE_CHECKING:
    from bertie.api.describe import ModelInfo, Preset


def info(
    model: Annotated[str | None, typer.Argument(help="Preset, or folder of a model, run or checkpoint.")] = None,
    presets: Annotated[bool, typer.Option("--presets", help="List the presets.")] = False,
    length: Annotated[int, typer.Option(min=1, help="Sequence length in tokens, for the operations per token.")] = 128,
) -> None:
    """Show a model's architecture, parameters, memory, operations and tokenizer.

    \b
    Examples:
      bertie info --presets
      bertie info bert-base
      bertie info runs/wiki/model --length 512
    """
    if presets == (model is not None):
        raise UsageError("Name a model folder or a preset, or pass --presets for a list, but not both.")
    if model is None:
        rows = bertie.presets()
        console.emit([asdict(row) for row in rows]) if console.verbosity.json else _show_presets(rows)
        return
    facts = bertie.info(model, length=length)
    console.emit(facts.to_dict()) if console.verbosity.json else _show(facts)


def _show_presets(presets: "Sequence[Preset]") -> None:
    """Prints one line per preset. A rich table that is wider than the terminal would break the names."""
    width = max(len(row.preset) for row in presets)
    line = "{:<" + str(width) + "}  {:>6}  {:>6}  {:>10}  {:>13}"
    lines = [line.format("preset", "layers", "hidden", "vocabulary", "parameters")]
    for row in presets:
        numbers = (row.layers, row.hidden_size, row.vocab_size, row.parameters)
        lines.append(line.format(row.preset, *(f"{number:,}" for number in numbers)))
    console.show("\n".join(lines))


def _show(facts: "ModelInfo") -> None:
    from rich.table import Table

    table = Table(box=None, show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in facts.rows():
        table.add_row(name, value)
    console.show(table)
