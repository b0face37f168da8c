"""`bertie audit`: what a model prefers between groups of people, on published sets and on own texts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from bertie import platform
from bertie.apps import audit as app
from bertie.apps.cli.groups import TableOptions
from bertie.apps.cli.options import grouped
from bertie.apps.cli.shared import option
from bertie.apps.cli.tables import comma_names
from bertie.platform import console


@dataclass(frozen=True)
class MachineOptions:
    """Where the model runs."""

    precision: Annotated[str, option("precision")] = "fp32"
    engine: Annotated[str, option("engine")] = "auto"
    device: Annotated[str, option("device")] = "auto"


@grouped
def audit_command(
    model: Annotated[Path, option("model")],
    files: Annotated[
        list[Path] | None, typer.Option("--files", help="File or folder of published or own sets; can be repeated.")
    ] = None,
    sets: Annotated[str, typer.Option("--sets", help="Sets to measure, comma-separated. Default: all possible.")] = "",
    group_table: Annotated[
        Path | None, typer.Option("--table", help="Labeled texts with a column of groups, for a classifier.")
    ] = None,
    group: Annotated[str, typer.Option("--group", help="Column of the group in the table.")] = "",
    *,
    table: TableOptions,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Maximum number of items of each set, drawn at random.")
    ] = None,
    controls: Annotated[
        bool, typer.Option("--controls/--no-controls", help="Also score a model with random weights. Default: yes.")
    ] = True,
    card: Annotated[bool, option("card")] = False,
    seed: Annotated[int, typer.Option("--seed", help="Seed of samples, shuffles and random weights.")] = 0,
    machine: MachineOptions,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder to write: report.html, audit.json, scores.")
    ] = None,
    overwrite: Annotated[bool, option("overwrite")] = False,
) -> None:
    """Audit a model for preferences between groups of people.

    Masked models: CrowS-Pairs, StereoSet and templates. Vectors: WEAT and SEAT. Models that answer questions: BBQ and
    KoBBQ. Classifiers: rates and errors by group, and predictions that change when words or names are swapped. Every
    figure has an interval, the same for random weights, and a shuffled control. With -o, the same command resumes.

    \b
    Examples:
      bertie audit models/bert --files crows_pairs_anonymized.csv -o audit
      bertie audit runs/base/model --files stereoset/ --limit 200 --json
      bertie audit runs/reviews/model --table reviews.csv --group author -o audit
    """

    platform.ModelCard(model).check(card)
    if group and group_table is None:
        raise platform.UsageError("--group names a column of a table. Pass the table too: --table FILE.")
    request = app.run.Asked(
        tuple(files or ()), comma_names(sets), group_table, group, table.format(), limit, controls, seed
    )
    results = app.run.audit(
        model,
        request,
        out=output,
        overwrite=overwrite,
        device=machine.device,
        precision=machine.precision,
        engine=machine.engine,
    )
    if card:
        app.page.add_audit_to_card(model, results)
    if console.verbosity.json:
        console.emit(results)
        return
    _show(results)
    if output is not None:
        console.say(f"Page: {output / 'report.html'}")


def _show(results: dict[str, Any]) -> None:
    """Prints a table of the main figures of each set, with the criticism of the set."""
    from rich.table import Table

    for (title, figures), one in zip(app.page.list_main_figures(results), results["sets"], strict=True):
        table = Table(f"{title} ({one['scale']})", box=None)
        for name in ("value", "95% interval", "items", "random", "shuffled"):
            table.add_column(name, justify="right", no_wrap=True)
        for figure in figures:
            unit = figure.unit
            random = "" if figure.random is None else app.page.format_figure(figure.random.value, unit)
            shuffled = "" if figure.shuffled is None else app.page.between(figure.shuffled, unit)
            cells = (
                app.page.format_figure(figure.value, unit),
                app.page.between(figure, unit),
                f"{figure.items:,}",
                random,
                shuffled,
            )
            table.add_row(figure.name, *cells)
        console.show(table)
        for note in (*one["notes"], one["criticism"]):
            console.show(note)
        console.show("")
