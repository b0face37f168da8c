"""The program `python -m benchmarks`, and what its commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertie.apps.cli import tables
from bertie.apps.cli.app import Commands
from bertie.console import console

if TYPE_CHECKING:
    from rich.table import Table


def writable(output: Path | None) -> Path | None:
    """Callback of an output file: what cannot be written is refused before anything is measured."""
    from benchmarks import harness

    output = tables.ending(".jsonl")(output)
    harness.check_lines(output)
    return output


Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Append one JSON line per result: FILE.jsonl.", callback=writable),
]
bench = Commands(
    name="python -m benchmarks",
    help="Benchmark Bertie on this machine, next to other libraries, and reproduce the published tables.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def tell(lines: list[dict[str, Any]], table: Callable[[], "Table"], output: Path | None = None) -> None:
    """Prints the results as JSON lines or as a table, and appends them to `output`."""
    from benchmarks import harness

    if console.verbosity.json:
        for line in lines:
            console.emit(line)
    else:
        console.show(table())
    harness.write_lines(output, lines)
