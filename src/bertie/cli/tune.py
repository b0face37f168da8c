"""`bertie tune`: hyperparameter search over fine-tuning runs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bertie import console
from bertie.cli.app import ConfigFile, Output, Overrides, Overwrite, emit
from bertie.cli.finetune import SETTINGS, StartModel, settings_of
from bertie.cli.options import OptionValues, configured
from bertie.errors import UsageError


@configured("bertie.runs.config:FinetuneConfig", **SETTINGS)
def tune(
    given: OptionValues,
    model: StartModel = None,
    overrides: Overrides = None,
    output: Output = None,
    vary: Annotated[
        list[str] | None,
        typer.Option("--vary", help="KEY=A,B,C or KEY=LOW..HIGH; repeatable. Default: the paper's grid."),
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, help="Number of runs. Default: the whole grid.")
    ] = None,
    hours: Annotated[
        float | None, typer.Option("--hours", min=0, help="Hours after which no further run starts.")
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Stop runs whose dev score is below the median of earlier runs.")
    ] = False,
    config: ConfigFile = None,
    overwrite: Overwrite = False,
) -> None:
    """Search fine-tuning hyperparameters.

    The default is the grid of BERT's paper (A.3): batch size 16 and 32, learning rate 5e-5, 3e-5 and 2e-5, 2 to 4
    epochs, in total 18 runs. --vary defines another search space. The same command resumes an interrupted search, also
    in the middle of a run. Needs optuna: pip install 'bertie[tune]'.

    \b
    Examples:
      bertie tune starter-en --data rte --data-dir glue -o runs/rte-grid --hours 2
      bertie tune starter-en --train few.tsv --vary optim.lr=1e-5..1e-3 --vary epochs=3,5 --trials 20 -o runs/few
    """
    from bertie.runs import tune as run
    from bertie.runs.space import parse_space

    settings = settings_of(model, overrides, config, given)
    if output is None:
        raise UsageError("No output folder given. Pass `-o RUN`.")
    space = parse_space(vary or ())
    if both := [key for key in given if key in space]:
        raise UsageError(
            f"The search varies {both[0]}, so it has no value of its own. Omit it, or vary others: --vary."
        )
    results = run.tune(settings, output, space, trials=trials, hours=hours, prune=prune, overwrite=overwrite)
    if console.verbosity.json:
        emit(results)
    else:
        _show(results, output)


def _show(results: dict[str, Any], output: Path) -> None:
    from rich.table import Table

    from bertie.metrics.base import called

    metric, names = results["metric"], list(results["best"]["settings"])
    shown = called(metric, results)
    table = Table(title=f"{results['done']} runs finished, {results['given up']} pruned, {results['failed']} failed")
    for name in (*names, shown, "seconds"):
        table.add_column(name, justify="right")
    for row in results["trials"][:10]:
        value = row["state"] if row[metric] is None else f"{row[metric]:z.4f}"
        table.add_row(*(str(row["settings"][name]) for name in names), value, f"{row['seconds']:,.0f}")
    console.show(table)
    console.show(f"best: {results['best']['folder']}, {shown} {results['best'][metric]:z.4f} on dev")
    console.say(f"Model: {output / 'model'}. All trials: {output / 'results.json'} and report.html.")
