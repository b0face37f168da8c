"""`bertie evaluate`: the metrics of a model on labeled examples."""

from pathlib import Path
from typing import Annotated

import typer

import bertie
from bertie.apps.cli import tables
from bertie.apps.cli.groups import PredictorOptions, TableOptions
from bertie.apps.cli.options import grouped
from bertie.platform import console


@grouped
def evaluate_command(
    model: Annotated[
        Path,
        typer.Argument(help="Name or folder of a fine-tuned model, run or checkpoint."),
    ],
    file: Annotated[str, typer.Argument(help="Labeled examples: csv, tsv, jsonl or parquet; - is stdin.")] = "",
    data: tables.DataSet = "",
    data_dir: tables.DataDir = None,
    split: Annotated[str, typer.Option("--split", help="Split of --data.")] = "dev",
    *,
    table: TableOptions,
    weight: tables.WeightColumn = "",
    positive: Annotated[
        str, typer.Option("--positive", help="Label of a classification whose F1 is the main metric.")
    ] = "",
    reading: PredictorOptions,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            help="Folder of a second model: test whether the difference is significant.",
            rich_help_panel="Model",
        ),
    ] = None,
    ensemble: tables.EnsembleModels = None,
    perturb: Annotated[
        list[str] | None,
        typer.Option(
            "--perturb",
            metavar="NAME",
            help="Also measure changed texts: typos, spacing, lowercase, uppercase, punctuation, contrast. Repeatable.",
            rich_help_panel="Model",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="JSON file of the metrics: FILE.json.", callback=tables.ending(".json")),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            help="HTML page: confusion matrix, subgroups, worst predictions.",
            callback=tables.ending(".html"),
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the files of --output and --report.")] = False,
) -> None:
    """Evaluate a model on labeled examples.

    Prints the metrics of the task, each with its 95% bootstrap interval. The file is streamed, so it may be larger than
    memory. Labels that the model does not know count as errors.

    \b
    Examples:
      bertie evaluate runs/sst2/model dev.tsv
      bertie evaluate runs/nsmc/model --data nsmc --data-dir nsmc/ --split test --json
      bertie evaluate sentiment-ko reviews.csv --label-names 0=negative,1=positive
      bertie evaluate runs/a/model dev.tsv --against runs/b/model
      bertie evaluate runs/sst2/model test.tsv --report test.html
      bertie evaluate runs/sst2/model test.tsv --perturb typos --perturb contrast
    """
    scores = bertie.evaluate(
        model,
        file,
        data=data,
        data_dir=data_dir,
        split=split,
        weight=weight,
        positive=positive,
        against=against,
        ensemble=ensemble or (),
        perturb=perturb or (),
        output=output,
        report=report,
        overwrite=overwrite,
        **table.arguments(),
        **reading.arguments(),
    )
    if report:
        console.say(f"Report: {report}")
    if console.verbosity.json:
        console.emit(scores.to_dict())
        return
    for note in scores.notes:
        console.warn(note)
    show_scores(scores)


def show_scores(scores: "bertie.Scores", before: str = "") -> None:
    """Prints scores, and warnings about what is unusual. before: the beginning of the first line."""
    console.show(before + scores.summary)
    for line in scores.lines():
        console.show(line)
    for warning in scores.warnings:
        console.warn(warning)
