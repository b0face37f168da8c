"""`bertie vary`: changed copies of texts, for a teacher to answer."""

import json
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from bertie import platform
from bertie.apps import vary as app
from bertie.apps.cli.shared import option
from bertie.apps.cli.tables import comma_names
from bertie.platform import console


def vary_command(
    file: Annotated[str, typer.Argument(help="Texts, or pairs of texts: txt, csv, tsv, jsonl or parquet.")],
    output: Annotated[Path, option("output", ".jsonl", help="JSON lines to write: FILE.jsonl.")],
    copies: Annotated[int, typer.Option("--copies", min=0, help="Number of changed copies of each text.")] = 2,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the changes.")] = 0,
    text: Annotated[list[str] | None, option("text")] = None,
    columns: Annotated[str, option("columns")] = "",
    encoding: Annotated[str, option("encoding")] = "utf-8",
    format_: Annotated[str, option("format")] = "",
    overwrite: Annotated[bool, option("overwrite")] = False,
) -> None:
    """Augment a text file for distillation: each text plus noisy copies.

    In half of the copies, words become random words of the file. In the other half, the end is that of another text.
    The texts themselves are written first. A large model answers all of them, and a small one learns the answers.

    \b
    Examples:
      bertie vary train.csv --text review -o texts.jsonl
      bertie predict runs/large/model texts.jsonl --text review -o answers.jsonl
      bertie finetune starter-en --task soft --train answers.jsonl --text review --dev dev.csv -o runs/small
    """

    platform.File(output).check_new(overwrite=overwrite, inputs=[file])
    format = platform.TableFormat.of(tuple(text or ()), "", comma_names(columns), encoding, format_, labelled=False)
    names: list[str] = []
    examples, skipped = platform.SkipReport.collect(
        platform.SourceFile(file).examples(format, on_columns=lambda columns: names.extend(columns.text)), file
    )
    texts = [example.texts for example in examples]
    rows = (
        dict(zip(names, one, strict=True)) for one in chain(texts, app.vary.vary_texts(texts, copies=copies, seed=seed))
    )
    written = platform.File(output).write_lines(
        json.dumps(row, ensure_ascii=False) + "\n"
        for row in console.track(rows, "texts", total=len(texts) * (1 + copies))
    )
    if skipped.total:
        console.warn(str(skipped))
    if console.verbosity.json:
        console.emit({"file": str(output), "texts": len(texts), "rows": written, "skipped": skipped.total})
    else:
        console.show(f"{output}: {written:,} rows of {len(texts):,} texts")
