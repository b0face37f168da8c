"""`python -m benchmarks plan`: forecasts next to real runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks.commands.app import Output, bench
from bertie.console import console
from bertie.errors import UsageError
from bertie.report.values import quantity

if TYPE_CHECKING:
    from rich.table import Table


@bench.command("plan")
def plan(
    files: Annotated[list[Path], typer.Argument(help="YAML files of settings, each of one run.")],
    trial: Annotated[float, typer.Option(min=0.1, help="Seconds of the trial before each run.")] = 30.0,
    clock: Annotated[str, typer.Option(help="wall, or cpu: processor time, on a machine that others use.")] = "wall",
    output: Output = None,
) -> None:
    """Compare the forecast of runs with the runs themselves.

    Each file is a pre-training or fine-tuning run. A trial gives its forecast, then it is run in a temporary folder.
    The table has time, peak memory, and the memory by the formula of `bertie plan`. Stop other programs first, or pass
    --clock cpu.

    \b
    Example:
      python -m benchmarks plan short.yaml long.yaml --trial 20 -o plan.jsonl
    """
    from benchmarks import harness
    from benchmarks import plan as program

    if clock not in program.CLOCKS:
        raise UsageError(f"--clock is {clock!r}; it must be wall or cpu.")
    rows = []
    for row in program.measure(files, trial=trial, clock=clock):
        rows.append(row)
        harness.write_lines(output, [row])
        if console.verbosity.json:
            console.emit(row)
    if not console.verbosity.json:
        console.show(_table(rows))


def _table(rows: list[dict[str, Any]]) -> "Table":
    from rich.table import Table

    table = Table("run", title="forecast, measured, and their difference")
    for column in ("time", "measured", "", "memory", "measured", "", "formula"):
        table.add_column(column, justify="right")
    for row in rows:
        forecast, usage = row["forecast"], row["usage"]
        table.add_row(
            row["run"],
            quantity(forecast["seconds"], "s"),
            quantity(row["measured_s"], "s"),
            f"{row['seconds_apart']:+.1%}",
            quantity(forecast["peak_bytes"], "bytes"),
            quantity(usage["peak_bytes"], "bytes"),
            f"{row['memory_apart']:+.1%}",
            f"{row['formula_apart']:+.1%}",
        )
    return table
