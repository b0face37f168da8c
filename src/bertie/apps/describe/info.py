"""`bertie info`: the architecture, size and cost of a model folder or a preset."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Annotated

import typer

import bertie
from bertie.platform import UsageError, console


def info_command(
    model: Annotated[str | None, typer.Argument(help="Preset, or folder of a model, run or checkpoint.")] = None,
    presets: Annotated[bool, typer.Option("--presets", help="List the presets.")] = False,
    length: Annotated[int, typer.Option(min=1, help="Sequence length in tokens, for operations and --batch.")] = 128,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Texts in one call: the memory of prediction, float32 on a CPU.")
    ] = None,
) -> None:
    """Show a model's architecture, parameters, memory, operations and tokenizer.

    \b
    Examples:
      bertie info --presets
      bertie info bert-base
      bertie info runs/wiki/model --length 512
      bertie info bert-base --length 512 --batch 8
    """
    if presets == (model is not None):
        raise UsageError("Name a model folder or a preset, or pass --presets for a list, but not both.")
    if model is None:
        rows = bertie.presets()
        if console.verbosity.json:
            console.emit([asdict(row) for row in rows])
        else:
            _show_presets([(one.preset, one.layers, one.hidden_size, one.vocab_size, one.parameters) for one in rows])
        return
    facts = bertie.info(model, length=length, batch=batch)
    console.emit(facts.to_dict()) if console.verbosity.json else _show(facts.rows())


def _show_presets(presets: Sequence[tuple[str, int, int, int, int]]) -> None:
    """Prints one line per preset. A rich table that is wider than the terminal would break the names."""
    width = max(len(preset) for preset, *_ in presets)
    line = "{:<" + str(width) + "}  {:>6}  {:>6}  {:>10}  {:>13}"
    lines = [line.format("preset", "layers", "hidden", "vocabulary", "parameters")]
    for preset, *numbers in presets:
        lines.append(line.format(preset, *(f"{number:,}" for number in numbers)))
    console.show("\n".join(lines))


def _show(rows: Iterable[tuple[str, str]]) -> None:
    from rich.table import Table

    table = Table(box=None, show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in rows:
        table.add_row(name, value)
    console.show(table)
