"""`bertie debias` and `bertie counterfactual`: less of a concept in the vectors of a model, and in a corpus."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import bertie
from bertie import platform
from bertie.apps import audit as app
from bertie.apps.cli.options import grouped
from bertie.apps.cli.shared import option
from bertie.platform import console

if TYPE_CHECKING:
    from bertie.platform import SkipReport


TextsFile = Annotated[str, typer.Argument(help="Texts with words of the pairs: txt (one per line), csv, jsonl ...")]
PairsFile = Annotated[Path | None, typer.Option("--pairs", help="YAML file of own pairs of words.")]
PairsList = Annotated[str, typer.Option("--pair-list", help="Name of the list of pairs. Default: gender words.")]


@dataclass(frozen=True)
class PriceOptions:
    """What the removal is measured to cost."""

    finetune: Annotated[
        list[Path] | None,
        typer.Option(
            "--finetune", help="YAML file of a fine-tuning run: its dev score is part of the price. Repeatable."
        ),
    ] = None
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Number of seeds of each --finetune.")] = 3


PRICE = PriceOptions()


@grouped
def debias_command(
    model: Annotated[Path, option("model")],
    texts: TextsFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="Model folder to write.")],
    how: Annotated[str, typer.Option("--how", help="leace, inlp or sentence (SentenceDebias).")] = "leace",
    pairs: PairsFile = None,
    list_: PairsList = "",
    files: Annotated[
        list[Path] | None, typer.Option("--files", help="Sets to audit before and after; default: built-in ones.")
    ] = None,
    price: PriceOptions = PRICE,
    page: Annotated[Path | None, option("page", ".html", help="Page to write: FILE.html.")] = None,
    text: Annotated[list[str] | None, option("text")] = None,
    columns: Annotated[str, option("columns")] = "",
    encoding: Annotated[str, option("encoding")] = "utf-8",
    limit: Annotated[int, typer.Option("--limit", min=40, help="Maximum number of texts to read.")] = 20_000,
    seed: Annotated[int, typer.Option("--seed", help="Seed of held-out pairs and of the audits.")] = 0,
    overwrite: Annotated[bool, option("overwrite")] = False,
    device: Annotated[str, option("device")] = "auto",
) -> None:
    """Remove a concept, such as gender, from the vectors of a model.

    The words of each text are exchanged by pairs such as he and she. An affine map removes what tells both texts apart
    from the vectors. It becomes part of the weights that read them: the masked-LM head, the pooler, or a dense module
    for sentence vectors. The new folder opens anywhere. The figures of the audits are printed before and after.

    \b
    Examples:
      bertie debias models/bert sentences.txt -o models/bert-leace
      bertie debias models/bert sentences.txt --how sentence --files stereoset/ -o models/bert-sentence --json
      bertie debias models/bert sentences.txt --finetune sst2.yaml --page leace.html -o models/bert-leace
    """
    from rich.table import Table

    if page is not None:
        platform.File(page).check_new(overwrite=overwrite)
    swaps, skipped = app.debias.pairs_of(pairs, list_), platform.SkipReport()
    tuned = {path.stem: bertie.FinetuneConfig.read(path, model=str(model)) for path in price.finetune or ()}
    read = list(islice(_texts(texts, text, columns, encoding, skipped), limit))
    if skipped.total:
        console.warn(str(skipped))
    results = app.debias.write_debiased_model(
        model,
        read,
        output,
        how=how,
        swaps=swaps,
        request=app.run.Asked(tuple(files or ()), controls=False, seed=seed),
        tuned=tuned,
        seeds=price.seeds,
        overwrite=overwrite,
        device=device,
    )
    if page is not None:
        app.remedy_page.render_remedy_page(results).save(page)
    if console.verbosity.json:
        console.emit(results)
        return
    for one in results["removed"]:
        console.show(app.remedy_page.removal_sentence(app.remedy.Removed(**one)))
    table = Table("set", app.remedy_page.REMEDY_COLUMNS[0], box=None)
    for name in app.remedy_page.REMEDY_COLUMNS[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    for title, rows in [("price", app.remedy_page.price_rows(results)), *app.remedy_page.audit_rows(results)]:
        for row in rows:
            table.add_row(title, *row)
    console.show(table)
    console.say(f"Model: {output}. A lower figure does not show that the model is fair.")


def counterfactual_command(
    texts: TextsFile,
    output: Annotated[Path, option("output", ".jsonl", help="File to write: FILE.jsonl.")],
    pairs: PairsFile = None,
    list_: PairsList = "",
    text: Annotated[list[str] | None, option("text")] = None,
    columns: Annotated[str, option("columns")] = "",
    encoding: Annotated[str, option("encoding")] = "utf-8",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
) -> None:
    """Write texts together with their counterfactual forms, for continued pre-training.

    Words are exchanged by pairs such as he and she, in both directions. A text that changes is written in both forms,
    and every other text once. Build a corpus from the file and continue the pre-training of a model on it.

    \b
    Examples:
      bertie counterfactual articles.txt -o both.jsonl
      bertie counterfactual reviews.csv --pair-list "gender words" -o both.jsonl --json
    """

    swaps = app.debias.pairs_of(pairs, list_)
    platform.File(output).check_new(overwrite=overwrite)
    skipped, counts = platform.SkipReport(), {"texts": 0, "changed": 0, "words": 0, "exchanged": 0}
    with platform.File(output).write() as file:
        for one in _texts(texts, text, columns, encoding, skipped):
            forms = dict.fromkeys((one, swaps(one)))
            file.writelines(json.dumps({"text": form}, ensure_ascii=False).encode() + b"\n" for form in forms)
            counts["texts"] += 1
            counts["changed"] += len(forms) - 1
            counts["words"] += len(one.split())
            counts["exchanged"] += swaps.count(one)
        if not counts["texts"]:
            raise platform.DataError(f"{texts} has no text. {skipped if skipped.total else ''}".rstrip())
    if skipped.total:
        console.warn(str(skipped))
    if console.verbosity.json:
        console.emit(counts | {"skipped": skipped.counts})
        return
    per_thousand = 1000 * counts["exchanged"] / max(1, counts["words"])
    console.show(
        f"{counts['changed']:,} of {counts['texts']:,} texts have a second form. {counts['exchanged']:,} words were "
        f"exchanged, {per_thousand:.1f} of 1,000."
    )


def _texts(file: str, text: list[str] | None, columns: str, encoding: str, skipped: "SkipReport") -> Iterator[str]:
    """Yields the texts of a file, and counts the rows without one."""

    table = platform.SourceFile(file, encoding)
    for row in table.examples(table.text_format(text or (), columns)):
        skipped.count(row)
        if isinstance(row, platform.Example):
            yield " ".join(row.texts)
