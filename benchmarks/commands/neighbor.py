"""`python -m benchmarks neighbor`: training alone and next to a busy program."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks.commands.app import Output, bench, tell
from bertie.apps.cli import tables

if TYPE_CHECKING:
    from rich.table import Table


@bench.command("neighbor")
def neighbor(
    spins: Annotated[
        str,
        typer.Option(
            help="Values of GOMP_SPINCOUNT, comma-separated; `default` is that of libgomp, `bertie` that of Bertie."
        ),
    ] = "default,bertie,0,1000,10000,100000",
    rounds: Annotated[int, typer.Option(min=2, help="Measured rounds per value.")] = 3,
    output: Output = None,
) -> None:
    """Benchmark training next to a busy program.

    The table shows the speed alone and next to a program with one thread per core, for several times that waiting
    threads spin. Shares are relative to the speed of the first value alone. Needs Linux.

    \b
    Examples:
      python -m benchmarks neighbor
      python -m benchmarks neighbor --spins default,10000 --rounds 5 -o neighbor.jsonl
    """
    from benchmarks import neighbor as program
    from bertie.errors import UsageError

    counts = tables.comma_names(spins)
    if not counts or not all(count in (program.DEFAULT, program.OURS) or count.isdigit() for count in counts):
        raise UsageError(f"--spins {spins!r} is not a list of whole numbers, like default,10000.")
    rows = program.measure(counts, rounds=rounds)
    tell(rows, partial(_neighbor_table, rows), output)


def _neighbor_table(rows: list[dict[str, Any]]) -> "Table":
    from rich.table import Table

    table = Table("spins", title="bert-tiny, masked-LM training: tokens/s and their share", box=None)
    for where in ("alone", "busy"):
        table.add_column(where, justify="right")
        table.add_column("share (lowest to highest)", justify="right")
    for row in rows:
        cells = []
        for cell in (row["alone"], row["busy"]):
            share = cell["share"]
            cells += [f"{cell['tokens_per_s']:,}"]
            cells += [f"{share['median']:.0%} ({share['low']:.0%} to {share['high']:.0%})"]
        table.add_row(row["spins"], *cells)
    return table
