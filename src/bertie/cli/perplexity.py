"""`bertie perplexity`: pseudo-perplexity of a masked language model."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from bertie import console
from bertie.cli import tables
from bertie.cli.app import emit
from bertie.errors import DataError


def perplexity(
    model: Annotated[
        Path,
        typer.Argument(help="Name or folder of a masked language model, run or checkpoint.", callback=tables.resolved),
    ],
    file: Annotated[
        str, typer.Argument(help="Texts: txt (one per line), csv, tsv, jsonl or parquet; - is stdin.")
    ] = "-",
    text: tables.TextColumns = None,
    columns: tables.ColumnNames = "",
    encoding: tables.Encoding = "utf-8",
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Maximum number of texts to read.")] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            "--max-length", min=3, help="Maximum tokens per text; longer texts are skipped. Default: that of the model."
        ),
    ] = None,
    precision: tables.Precision = "fp32",
    device: tables.Device = "auto",
) -> None:
    """Compute the pseudo-perplexity of a masked language model.

    Each token is masked in turn and predicted. Lower is better, and 1 means certainty. The model reads a text once per
    token, so a few hundred sentences are enough. Compare models with different vocabularies per word. A word that the
    vocabulary does not know costs 8 bits per byte. The file is streamed, and rows that cannot be read are counted.

    \b
    Examples:
      bertie perplexity runs/base/model sentences.txt
      bertie perplexity runs/medical/model notes.jsonl --text body --limit 500 --json
    """
    from itertools import islice

    from bertie.data.tables import Example, SkipReport, stream
    from bertie.infer.pseudo import pseudo_perplexity
    from bertie.runs.opening import open_model

    rows, skipped = stream(file, tables.unlabelled(file, text, columns, encoding)), SkipReport()

    def texts() -> Iterator[str]:
        with console.progress("perplexity", limit, unit="texts") as advance:
            for row in islice(rows, limit):
                skipped.rows += 1
                if isinstance(row, Example):
                    yield " ".join(row.texts)
                else:
                    skipped.add(row)
                advance(1)

    try:
        found = pseudo_perplexity(open_model(model, precision=precision, device=device), texts(), max_length=max_length)
    except DataError as error:
        raise DataError(f"{error} {skipped}." if skipped.total else str(error)) from None
    if skipped.total:
        console.warn(str(skipped))
    if found.unknown:
        console.warn(
            f"{found.unknown:,} of {found.tokens:,} tokens are not in the vocabulary. Each costs 8 bits per "
            "byte, so that models can be compared per word."
        )
    if found.left_out:
        console.warn(f"{found.left_out:,} texts skipped: no words, or too long for the model")
    if console.verbosity.json:
        emit(asdict(found) | {"skipped": skipped.counts})
        return
    counts = (("text", found.texts), ("word", found.words), ("token", found.tokens))
    console.show(", ".join(console.counted(number, noun) for noun, number in counts))
    console.show(f"pseudo-perplexity per word {found.per_word:.4g}, per token {found.per_token:.4g}")
