"""`bertie search`: many fine-tuning runs, the best of them kept."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bertie import console
from bertie.cli import tables
from bertie.cli.app import ConfigFile, Json, Overrides, Overwrite, Quiet, Verbose, app, emit
from bertie.errors import UsageError


@app.command()
def search(
    model: Annotated[str | None, typer.Argument(help="Folder of a pre-trained model: RUN/model.")] = None,
    overrides: Overrides = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder of the search.")] = None,
    vary: Annotated[
        list[str] | None, typer.Option("--vary", help="KEY=A,B,C or KEY=LOW..HIGH; often. Left out: the paper's grid.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, help="Runs in all. Left out: the whole grid.")
    ] = None,
    hours: Annotated[float | None, typer.Option("--hours", min=0, help="After these no further run begins.")] = None,
    prune: Annotated[bool, typer.Option("--prune", help="Give up runs that lag behind the median of others.")] = False,
    train: Annotated[str | None, typer.Option("--train", help="Labelled examples: csv, tsv, jsonl, parquet.")] = None,
    dev: Annotated[str | None, typer.Option("--dev", help="Examples to measure on; else a tenth is held out.")] = None,
    task: Annotated[str | None, typer.Option("--task", help="What is learnt: sequence, tagging, span ...")] = None,
    data: Annotated[str | None, typer.Option("--data", help="A published set: sst2, nsmc ... (--data-dir).")] = None,
    data_dir: Annotated[str | None, typer.Option("--data-dir", help="Folder with the files of --data.")] = None,
    text: tables.TextColumns = None,
    label: Annotated[str | None, typer.Option("--label", help="Column of the label, if not recognised.")] = None,
    config: ConfigFile = None,
    overwrite: Overwrite = False,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    r"""Find the settings a set is learnt best with: BERT's published grid, or a space of your own.

    The grid is batch 16 and 32, rate 5e-5, 3e-5 and 2e-5, 2 to 4 epochs: 18 runs. The same command goes on where it was
    stopped, in the middle of a run too. Needs optuna: pip install 'bertie\[search]'.

    [bold]Examples[/]

      bertie search runs/tiny/model --data rte --data-dir glue -o runs/rte-grid --hours 2

      bertie search runs/tiny/model --train few.tsv --vary optim.lr=1e-5..1e-3 --vary epochs=3,5 --trials 20 -o runs/few
    """
    from bertie import config as configs
    from bertie.runs import search as run

    if model and "=" in model and not Path(model).exists():
        overrides, model = [model, *(overrides or [])], None
    settings = configs.load(
        configs.FinetuneConfig,
        config,
        overrides or (),
        model=model,
        train_file=train,
        dev_file=dev,
        task=task,
        data=data,
        data_dir=data_dir,
        text=text or None,
        label=label,
    )
    if output is None:
        raise UsageError("Where shall the search go? -o RUN")
    space = run.parse_space(vary or ())
    results = run.search(settings, output, space, trials=trials, hours=hours, prune=prune, overwrite=overwrite)
    if console.verbosity.json:
        emit(results)
    else:
        _show(results, output)


def _show(results: dict[str, Any], output: Path) -> None:
    from rich.table import Table

    metric, names = results["metric"], list(results["best"]["settings"])
    table = Table(title=f"{results['done']} runs done, {results['given up']} given up, {results['failed']} failed")
    for name in (*names, metric, "seconds"):
        table.add_column(name, justify="right")
    for row in results["trials"][:10]:
        value = row["state"] if row[metric] is None else f"{row[metric]:.4f}"
        table.add_row(*(str(row["settings"][name]) for name in names), value, f"{row['seconds']:,.0f}")
    console.show(table)
    console.show(f"best: {results['best']['folder']}, {metric} {results['best'][metric]:.4f} on dev")
    console.say(f"Its model is in {output / 'model'}; all trials are in {output / 'results.json'} and report.html.")
