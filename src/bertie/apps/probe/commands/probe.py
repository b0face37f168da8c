"""`bertie probe`: what the layers of a model know."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from bertie import platform
from bertie.apps import probe as app
from bertie.apps.cli.shared import option
from bertie.apps.cli.tables import comma_names
from bertie.platform import console


def probe_command(
    model: Annotated[Path, option("model")],
    train: Annotated[
        list[str], typer.Option("--train", help="File to train probes on: .conllu, .conll, .txt ... Repeatable.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Run folder to write.")],
    test: Annotated[
        list[str] | None,
        typer.Option("--test", help="File to test on, one for each --train. Default: a third of --train."),
    ] = None,
    probes: Annotated[
        str,
        typer.Option(
            "--probes",
            help="pos, relation, distance, entity, order, length, by commas. Default: all that fit the files.",
        ),
    ] = "",
    format_: Annotated[
        list[str] | None,
        typer.Option(
            "--format", help="conllu, klue-dp, conll, klue, lines ..., one for each --train. Default: by name."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=10, help="Maximum number of sentences to train on; half as many for testing.")
    ] = 2000,
    pooling: Annotated[
        str, typer.Option("--pooling", help="Vector of a word from its tokens: mean or first.")
    ] = "mean",
    encoding: Annotated[str, option("encoding")] = "utf-8",
    precision: Annotated[str, option("precision")] = "fp32",
    device: Annotated[str, option("device")] = "auto",
    seed: Annotated[int, typer.Option("--seed", help="Seed of the sample, the controls and the random weights.")] = 0,
    card: Annotated[bool, option("card")] = False,
    overwrite: Annotated[bool, option("overwrite")] = False,
) -> None:
    """Measure what each layer knows: parts of speech, syntax, names, word order, sentence length.

    A linear probe is trained on the vectors of every layer. Beside it are the same probe on random weights, and on a
    control task with random labels for words. A .conllu file gives pos, relation and distance. Tagged names give
    entity, and any text gives order and length. A stopped run continues when the same command runs again.

    \b
    Examples:
      bertie probe models/bert --train ewt-train.conllu --test ewt-dev.conllu -o runs/probe
      bertie probe models/bert --train train.conllu --train names.conll --probes pos,entity -o runs/probe
      bertie probe models/bert --train texts.txt -o runs/probe --json
    """

    platform.ModelCard(model).check(card)
    result = app.api.probe(
        model,
        train,
        output=output,
        test=test or (),
        probes=comma_names(probes),
        format=format_ or (),
        limit=limit,
        pooling=pooling,
        encoding=encoding,
        precision=precision,
        device=device,
        seed=seed,
        overwrite=overwrite,
    )
    results: Mapping[str, Any] = result.results
    if card:
        platform.ModelCard(model).put("What the layers know", *app.page.render_probe_section(results))
    if console.verbosity.json:
        console.emit(result.to_dict())
        return
    for one in results["probes"]:
        best = one["layers"][one["best_layer"]]
        for figures in best["figures"]:
            low, high = figures["interval_95"]["model"]
            console.show(
                f"{one['probe']:8}  {figures['metric']:8}  layer {best['layer']:2}  {figures['model']:z.3f} "
                f"({low:z.3f} to {high:z.3f})  random weights {figures['random']:z.3f}  "
                f"control {figures['control']:z.3f}  "
                f"{one['baseline']['name']} {one['baseline'][figures['metric']]:z.3f}"
            )
    console.say(f"Every layer: {output / app.run.REPORT}")
