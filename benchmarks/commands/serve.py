"""`python -m benchmarks serve`: served models under load."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks.commands.app import Output, bench, tell
from bertie.apps.cli import tables

if TYPE_CHECKING:
    from rich.table import Table


@bench.command("serve")
def serve(
    model: Annotated[
        Path, typer.Argument(help="Folder of a classifier or a sentence model.", callback=tables.resolved)
    ],
    seconds: Annotated[float, typer.Option("--seconds", min=1.0, help="Length of each load.")] = 4.0,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Searches for the highest rate of each server.")] = 2,
    steps: Annotated[int, typer.Option("--steps", min=2, help="Loads in each search.")] = 4,
    infinity: Annotated[
        str | None, typer.Option("--infinity", help="Program infinity_emb, which may be in another environment.")
    ] = None,
    int8: Annotated[
        Path | None,
        typer.Option("--int8", help="The same model in int8; adds a row.", callback=tables.resolved),
    ] = None,
    bf16: Annotated[bool, typer.Option("--bf16", help="Measure Bertie in bfloat16 too.")] = False,
    overload: Annotated[
        float, typer.Option("--overload", min=0.0, help="Seconds of ten times the load that Bertie can answer.")
    ] = 0.0,
    precision: tables.PrecisionOption = "fp32",
    output: Output = None,
) -> None:
    """Benchmark a server against a plain FastAPI server.

    The table shows requests per second, latency, memory and cold start. The load is open: requests arrive at random
    moments, whether or not earlier ones were answered. The rate is the highest one with a 99th percentile of at most
    100 ms. Needs the other libraries: pip install 'bertie[dev]'.

    \b
    Examples:
      python -m benchmarks serve runs/reviews/model
      python -m benchmarks serve runs/reviews/model --int8 models/reviews-int8 --bf16
      python -m benchmarks serve runs/sts/model --infinity infinity/bin/infinity_emb -o serve.jsonl
    """
    from benchmarks import serve as program

    setup = program.Setup(
        str(model),
        program.path_of(model),
        seconds,
        rounds,
        steps,
        program.infinity_at(infinity),
        precision,
        str(int8) if int8 else None,
        bf16,
        overload,
    )
    lines = program.measure(setup)
    tell(lines, partial(_table, lines), output)


def _table(lines: list[dict[str, Any]]) -> "Table":
    from rich.table import Table

    from benchmarks.harness import around

    table = Table(title="one text per request, p99 of at most 100 ms")
    table.add_column("server")
    for column in ("requests/s", "p50 ms", "p99 ms", "one text ms", "memory", "cold start", "Bertie is faster by"):
        table.add_column(column, justify="right")
    for line in lines:
        table.add_row(
            line["server"],
            f"{line['requests_per_s']:,.0f} {around(line['spread'])}".strip(),
            f"{line['p50_ms']:.1f}",
            f"{line['p99_ms']:.1f}",
            f"{line['one_text_ms']:.1f}",
            f"{line['memory_bytes'] / 1e6:,.0f} MB",
            f"{line['cold_start_s']:.1f} s",
            f"{line['bertie_times']:.2f}" if line["bertie_times"] else "-",
        )
    table.caption = f"one text in the library: {lines[0]['library_ms']:.1f} ms"
    for line in lines:
        if found := line["overload"]:
            table.caption += f"\n{line['server']} at {found['requests_per_s']:,} requests/s: {found['failed']} failed"
            for name in ("answered", "refused"):
                if found[name]["count"]:
                    table.caption += f"; {found[name]['count']:,} {name}, p99 {found[name]['p99_ms']:,.0f} ms"
    return table
