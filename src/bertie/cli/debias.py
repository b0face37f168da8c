"""`bertie debias`: remove a concept from the vectors of a model."""

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from bertie import console
from bertie.cli import tables
from bertie.cli.app import Json, Overwrite, Quiet, Verbose, app, emit


@app.command()
def debias(
    model: Annotated[Path, typer.Argument(help="Folder of a model, run or checkpoint.", callback=tables.resolved)],
    texts: Annotated[str, typer.Argument(help="Texts with words of the pairs: txt (one per line), csv, jsonl ...")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model folder to write.")],
    how: Annotated[str, typer.Option("--how", help="leace, inlp or sentence (SentenceDebias).")] = "leace",
    pairs: Annotated[Path | None, typer.Option("--pairs", help="YAML file of own pairs of words.")] = None,
    list_: Annotated[str, typer.Option("--list", help="Name of the list of pairs. Default: gender words.")] = "",
    data: Annotated[
        list[Path] | None, typer.Option("--data", help="Sets to audit before and after; default: built-in ones.")
    ] = None,
    text: tables.TextColumns = None,
    columns: tables.ColumnNames = "",
    encoding: tables.Encoding = "utf-8",
    limit: Annotated[int, typer.Option("--limit", min=40, help="Maximum number of texts to read.")] = 20_000,
    seed: Annotated[int, typer.Option("--seed", help="Seed of held-out pairs and of the audits.")] = 0,
    overwrite: Overwrite = False,
    device: tables.Device = "auto",
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Remove a concept, such as gender, from the vectors of a model.

    The words of each text are exchanged by pairs such as he and she. An affine map removes what tells both texts apart
    from the vectors. It becomes part of the weights that read them: the masked-LM head, the pooler, or a dense module
    for sentence vectors. The new folder opens anywhere. The figures of the audits are printed before and after.

    [bold]Examples[/]

      bertie debias models/bert sentences.txt -o models/bert-leace

      bertie debias models/bert sentences.txt --how sentence --data stereoset/ -o models/bert-sentence --json
    """
    from rich.table import Table

    from bertie.audit.debias import debias as removed_from
    from bertie.audit.debias import pairs_of, sentence, told
    from bertie.audit.remedy import Removed
    from bertie.audit.run import Asked
    from bertie.data.tables import Example, SkipReport, stream

    swaps = pairs_of(pairs, list_)
    skipped, read = SkipReport(), list[str]()
    for row in islice(stream(texts, tables.unlabelled(texts, text, columns, encoding, "")), limit):
        skipped.rows += 1
        if isinstance(row, Example):
            read.append(" ".join(row.texts))
        else:
            skipped.add(row)
    if skipped.total:
        console.warn(str(skipped))
    asked = Asked(tuple(data or ()), controls=False, seed=seed)
    found = removed_from(model, read, output, how=how, swaps=swaps, asked=asked, overwrite=overwrite, device=device)
    if console.verbosity.json:
        emit(found)
        return
    for one in found["removed"]:
        console.show(sentence(Removed(**one)))
    table = Table("set", "figure", box=None)
    for name in ("before", "after"):
        table.add_column(name, justify="right")
    price = found["pseudo_perplexity"]
    if price["before"] is not None:
        table.add_row("", "pseudo-perplexity per word", *(f"{price[name]:.4g}" for name in ("before", "after")))
    for one in found["figures"]:
        if not one["detail"]:
            table.add_row(one["set"], one["name"], told(one["before"]), told(one["after"]))
    console.show(table)
    console.say(f"Model: {output}. A lower figure does not show that the model is fair.")
