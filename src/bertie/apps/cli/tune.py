"""`bertie tune`: hyperparameter search over fine-tuning runs."""

from typing import Annotated

import typer

import bertie
from bertie.apps.cli.app import ConfigFile, OutputOption, Overrides, Overwrite
from bertie.apps.cli.finetune import SETTINGS, FewShot, StartModel, start_of
from bertie.apps.cli.options import OptionValues, configured
from bertie.platform import UsageError, console


@configured("finetune", **SETTINGS)
def tune_command(
    values: OptionValues,
    model: StartModel = None,
    overrides: Overrides = None,
    output: OutputOption = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            help="KEY=A,B,C or KEY=LOW..HIGH; repeatable. Default: the paper's grid.",
            rich_help_panel="Training",
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option("--trials", min=1, help="Number of runs. Default: the whole grid.", rich_help_panel="Run"),
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option("--hours", min=0, help="Hours after which no further run starts.", rich_help_panel="Run"),
    ] = None,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune", help="Stop runs whose dev score is below the median of earlier runs.", rich_help_panel="Training"
        ),
    ] = False,
    confirm: Annotated[
        int | None,
        typer.Option(
            "--confirm",
            min=0,
            help="New seeds that compare the best settings with yours; 0: none. Default: 3, or none with --folds.",
            rich_help_panel="Training",
        ),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            "--folds",
            min=2,
            help="Nested cross-validation instead: repeat the search in each fold.",
            rich_help_panel="Training",
        ),
    ] = None,
    few_shot: FewShot = False,
    config: ConfigFile = None,
    overwrite: Overwrite = False,
) -> None:
    """Search fine-tuning hyperparameters.

    The default is the grid of BERT's paper (A.3): batch size 16 and 32, learning rate 5e-5, 3e-5 and 2e-5, 2 to 4
    epochs, in total 18 runs. For models other than BERT-base, the rates are multiplied to suit the model. --vary
    defines another search space. The same command resumes an interrupted search, also in the middle of a run. Needs
    optuna: pip install 'bertie[tune]'.

    \b
    Examples:
      bertie tune starter-en --data rte --data-dir glue -o runs/rte-grid --hours 2
      bertie tune starter-en --train few.tsv --vary optim.lr=1e-5..1e-3 --vary epochs=3,5 --trials 20 -o runs/few
    """
    start, texts = start_of(model, overrides)
    if output is None:
        raise UsageError("No output folder given. Pass `-o RUN`.")
    search = bertie.tune(
        start,
        output=output,
        vary=vary or (),
        trials=trials,
        hours=hours,
        prune=prune,
        confirm=confirm,
        folds=folds,
        overwrite=overwrite,
        settings=values,
        overrides=texts,
        few_shot=few_shot,
        config=config,
    )
    if console.verbosity.json:
        console.emit(search.to_dict())
        return
    from rich.table import Table

    rows = [*search.rows()]
    table = Table(title=search.title)
    for name in rows[0] if rows else ():
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row.values())
    console.show(table)
    console.show(search.summary)
    console.say(f"Model: {output / 'model'}. All trials: {output / 'results.json'} and report.html.")
