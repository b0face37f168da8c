"""`bertie finetune`: a model for one task, from labeled examples and a pre-trained model."""

from pathlib import Path
from typing import Annotated

import typer

import bertie
from bertie.apps.cli import tables
from bertie.apps.cli.app import ConfigFile, DryRun, OutputOption, Overrides, Overwrite, Resume, TrialOption
from bertie.apps.cli.options import Flag, OptionValues, configured
from bertie.apps.cli.runs import show_tables
from bertie.platform import NAMED_SETTINGS, UsageError, console

# What a run reads and learns: `bertie tune` takes the same.
SETTINGS: dict[str, str | Flag] = {
    "train": "train_file",
    "dev": "dev_file",
    **NAMED_SETTINGS["finetune"],
    "lr": Flag("optim.lr", default="by the model's width"),
    "label_names": Flag("label_names", read=tables.parse_pairs, metavar="0=NAME,1=NAME"),
    "positive": "positive",
    "tabular": Flag("tabular", read=tables.comma_names, metavar="A,B,C"),
    "class_weights": Flag("class_weights", read=tables.class_weights, metavar="balanced|NAME=X,..."),
    "costs": Flag("costs", read=tables.costs, metavar="TRUE:PREDICTED=X,..."),
    "columns": Flag("columns", read=tables.comma_names, metavar="A,B,C"),
    "encoding": "encoding",
    "format": "format",
    "label_separator": "label_separator",
    "features": "features.column",
}
FewShot = Annotated[
    bool,
    typer.Option(
        "--few-shot",
        help="Train on pairs of texts, for 2 to 64 examples per label: the settings of -c finetune-few-shot.",
        rich_help_panel="Training",
    ),
]
StartModel = Annotated[str | None, typer.Argument(help="Name or folder of a pre-trained model, run or checkpoint.")]


@configured("finetune", **SETTINGS)
def finetune_command(
    values: OptionValues,
    model: StartModel = None,
    overrides: Overrides = None,
    output: OutputOption = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            min=1,
            help="Number of runs with different seeds, from --seed up. Default: 5 on small --data, otherwise 1.",
            rich_help_panel="Training",
        ),
    ] = None,
    keep_best: Annotated[
        bool,
        typer.Option(
            "--keep-best",
            help="Make RUN/model the model of the seed with the best score on dev.",
            rich_help_panel="Training",
        ),
    ] = False,
    folds: Annotated[
        int | None,
        typer.Option(
            "--folds",
            min=2,
            help="Cross-validate with this number of folds, and train the model on all rows.",
            rich_help_panel="Training",
        ),
    ] = None,
    few_shot: FewShot = False,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            help="A second start model: fine-tune both alike, and compare them.",
            rich_help_panel="Training",
        ),
    ] = None,
    config: ConfigFile = None,
    resume: Resume = "auto",
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
    trial: TrialOption = None,
) -> None:
    """Fine-tune a pre-trained model for a task.

    The default task classifies texts or pairs of texts. The same command resumes an interrupted run. RUN/run.yaml lists
    all settings; each can be given as an option, or as key=value: --optim.eps 1e-8 is optim.eps=1e-8.

    \b
    Examples:
      bertie finetune starter-en --train reviews.csv -o runs/reviews
      bertie finetune starter-en --data sst2 --data-dir glue -o runs/sst2 --epochs 2
      bertie finetune starter-en --train few.tsv --dev dev.tsv --seeds 5 -o runs/few
      bertie finetune starter-en --train reviews.csv --folds 5 --group author -o runs/folds
      bertie finetune models/minilm --few-shot --train forty.csv -o runs/forty
      bertie finetune models/base --against runs/domain --train reviews.csv --seeds 5 -o runs/worth
    """
    start, texts = start_of(model, overrides)
    settings: OptionValues = {"settings": values, "overrides": texts, "config": config, "few_shot": few_shot}
    if folds and (dry_run or against):
        raise UsageError(f"--folds does not work with {'--dry-run' if dry_run else '--against'}. Omit one of them.")
    if dry_run:
        plan = bertie.plan_finetune(start, against=against, seeds=seeds, keep_best=keep_best, trial=trial, **settings)
        console.emit(plan.to_dict()) if console.verbosity.json else console.show(str(plan))
        return
    if output is None:
        raise UsageError("No output folder given. Pass `-o RUN`.")
    if against is not None:
        if keep_best:
            raise UsageError("--keep-best chooses among several seeds. Pass --seeds 5, without --against.")
        comparison = bertie.finetune_against(
            start, against, output=output, seeds=seeds, resume=resume, overwrite=overwrite, **settings
        )
        if console.verbosity.json:
            console.emit(comparison.to_dict())
            return
        show_tables(comparison.tables())
        console.say(f"Report: {output / 'compare.html'}")
        return
    run = bertie.finetune(
        start,
        output=output,
        folds=folds,
        seeds=seeds,
        keep_best=keep_best,
        resume=resume,
        overwrite=overwrite,
        **settings,
    )
    console.emit(dict(run.results)) if console.verbosity.json else _show(run, output)


def start_of(model: str | None, overrides: list[str] | None) -> tuple[str | None, list[str]]:
    """Returns the start model and the settings key=value: `bertie finetune -c run.yaml epochs=5` has no model."""
    if model and "=" in model and not Path(model).exists():
        return None, [model, *(overrides or [])]
    return model, overrides or []


def _show(run: "bertie.Run", output: Path) -> None:
    """Prints the scores of a run, and what comes next."""
    for line in run.lines():
        console.show(line)
    for warning in run.warnings:
        console.warn(warning)
    where = "Models" if run.seeds else "Model"
    console.say(f"{where}: {run.places}. Metrics: {output / 'results.json'}. Next steps:")
    for line in run.next_commands():
        console.say(f"  {line}")
