"""`bertie drift`: what a model reads and answers in use, compared with its training."""

import sys
from pathlib import Path
from typing import Annotated

import typer

import bertie
from bertie.apps.cli.options import grouped
from bertie.apps.cli.shared import option
from bertie.apps.cli.tables import comma_names
from bertie.apps.drift.api import Drift
from bertie.platform import BertieError, console

SHOWN_BINS = 3  # of a quantity


@grouped
def drift_command(
    model: Annotated[Path, option("model")],
    data: Annotated[str, typer.Argument(help="Log of predict --log or serve --log, or a table of texts.")],
    reference: Annotated[
        str | None, typer.Option("--reference", help="Log or table to compare with. Default: the training's dev set.")
    ] = None,
    level: Annotated[float, typer.Option("--level", help="Probability of a false alarm, over all quantities.")] = 0.05,
    top: Annotated[int, typer.Option("--top", min=0, help="Number of the rows least like the reference.")] = 10,
    fail_on_drift: Annotated[
        bool, typer.Option("--fail-on-drift", help="Exit with status 1 if anything differs.")
    ] = False,
    text: Annotated[list[str] | None, option("text")] = None,
    columns: Annotated[str, option("columns")] = "",
    encoding: Annotated[str, option("encoding")] = "utf-8",
    format_: Annotated[str, option("format")] = "",
    precision: Annotated[str, option("precision")] = "fp32",
    device: Annotated[str, option("device")] = "auto",
    engine: Annotated[str, option("engine")] = "auto",
) -> None:
    """Compare a model's texts and answers in use with its training.

    Compares labels, confidence, length, unknown tokens, scripts and vectors, each with a permutation test. The level
    holds for all of them together. Of a table, prints the rows least like the training.

    \b
    Examples:
      bertie drift runs/reviews traffic.json
      bertie drift runs/reviews november.csv --top 20
      bertie drift runs/reviews november.csv --reference october.csv --fail-on-drift
    """
    result = bertie.drift(
        model,
        data,
        reference=reference,
        level=level,
        top=top,
        text=text or (),
        columns=comma_names(columns),
        encoding=encoding,
        format=format_,
        device=device,
        precision=precision,
        engine=engine,
    )
    if console.verbosity.json or not sys.stdout.isatty():
        facts = result.to_dict()
        for name in ("differences", "unlike"):
            for one in facts.pop(name):  # type: ignore[attr-defined]  # a list
                console.emit(one)
        console.emit(facts)
    else:
        show_drift(result)
    if fail_on_drift and result.drifted:
        raise BertieError(result.summary)


def show_drift(result: Drift) -> None:
    """Prints the quantities, what changed of those that differ, and the rows least like the reference."""
    from rich.table import Table

    table = Table("quantity", "index", "by chance", "p", "largest changes", box=None)
    for one in result.differences:
        changes = [f"{change.bin}: {change.reference:.0%} -> {change.share:.0%}" for change in one.changes[:SHOWN_BINS]]
        if one.separability is not None:
            low, high = one.interval
            changes = [f"told apart with probability {one.separability:.2f} ({low:.2f} to {high:.2f})"]
        table.add_row(
            one.quantity,
            f"{one.index:z.3f}",
            f"{one.by_chance:z.3f}",
            f"{one.adjusted_p:z.4f}",
            ", ".join(changes),
            style="bold yellow" if one.differs else None,
        )
    console.show(table)
    for row in result.unlike:
        console.show(f"row {row.row:,}  distance {row.distance:.2f} (farther: {row.farther:.1%})  {row.text}")
    console.show(result.summary)
