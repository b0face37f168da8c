"""`bertie bench neighbour`: training alone and next to a busy program."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertie.cli.app import Json, Quiet, Verbose
from bertie.cli.bench import Output, bench, tell

if TYPE_CHECKING:
    from rich.table import Table


@bench.command("neighbour")
def neighbour(
    spins: Annotated[
        str, typer.Option(help="Values of GOMP_SPINCOUNT, comma-separated; default: of libgomp; bertie: chosen.")
    ] = "default,bertie,0,1000,10000,100000",
    rounds: Annotated[int, typer.Option(min=2, help="Measured rounds of every value.")] = 3,
    output: Output = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Training alone and beside a busy program, by how long waiting threads spin.

    The busy program has one thread for each core. Shares are of the first value's speed alone. Linux.

    [bold]Examples[/]

      bertie bench neighbour

      bertie bench neighbour --spins default,10000 --rounds 5 -o neighbour.jsonl
    """
    from bertie.bench import neighbour as program
    from bertie.errors import UsageError

    counts = [name.strip() for name in spins.split(",") if name.strip()]
    if not counts or not all(count in (program.DEFAULT, program.OURS) or count.isdigit() for count in counts):
        raise UsageError(f"--spins {spins!r} is not a list of whole numbers, like default,10000.")
    rows = program.measure(counts, rounds=rounds)
    tell(rows, partial(_neighbour_table, rows), output)


def _neighbour_table(rows: list[dict[str, Any]]) -> "Table":
    from rich.table import Table

    table = Table("spins", title="bert-tiny, masked-LM training: tokens/s and their share", box=None)
    for where in ("alone", "beside"):
        table.add_column(where, justify="right")
        table.add_column("share (lowest to highest)", justify="right")
    for row in rows:
        cells = []
        for cell in (row["alone"], row["beside"]):
            share = cell["share"]
            cells += [f"{cell['tokens_per_s']:,}"]
            cells += [f"{share['median']:.0%} ({share['low']:.0%} to {share['high']:.0%})"]
        table.add_row(row["spins"], *cells)
    return table
