"""`bertie embed`: vectors of texts."""

import sys
from pathlib import Path
from typing import IO, Annotated

import typer

from bertie import console
from bertie.cli import tables
from bertie.cli.app import Json, Overwrite, Quiet, Verbose, app
from bertie.errors import DataError, UsageError


@app.command()
def embed(
    model: Annotated[Path, typer.Argument(help="Model folder; one of sentence-transformers too.")],
    file: tables.TextFile = "-",
    output: Annotated[Path | None, typer.Option("--output", "-o", help=".npy or .jsonl; else jsonl on stdout.")] = None,
    text: tables.TextColumns = None,
    columns: tables.ColumnNames = "",
    encoding: tables.Encoding = "utf-8",
    format_: tables.Format = "",
    pooling: Annotated[str | None, typer.Option("--pooling", help="mean, cls or max. Left out: as trained.")] = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Make every vector of length one.")] = False,
    max_length: tables.MaxLength = None,
    precision: tables.Precision = "fp32",
    device: tables.Device = "auto",
    overwrite: Overwrite = False,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Write a vector for every text, in order; texts may be more than fit into memory.

    A row that cannot be read is counted; in jsonl it has an error in its place, in npy a row of NaN.

    [bold]Examples[/]

      bertie embed runs/sts/model sentences.txt -o vectors.npy

      echo "the tide came in" | bertie embed runs/sts/model
    """
    from bertie.data.tables import Columns, Skipped
    from bertie.files import atomic_write, check_new_file
    from bertie.infer.embed import write_jsonl, write_npy
    from bertie.infer.predict import TooLongCount

    kind = output.suffix.lower() if output else ".jsonl"
    if kind not in (".npy", ".jsonl"):
        raise UsageError(f"{output}: vectors are written as .npy or .jsonl.")
    if output:
        check_new_file(output, overwrite=overwrite)
    predictor = tables.embedder(model, pooling, normalize, max_length, precision, device)

    def check(found: Columns) -> None:
        if len(found.text) > 1:
            read = " + ".join(found.text)
            raise DataError(f"{file}: {read} would be read, but a vector is that of one text. Name its column: --text.")

    format = tables.unlabelled(file, text, columns, encoding, format_)
    rows = predictor.task.rows(file, format, on_columns=check)
    skipped, long = Skipped(), TooLongCount(predictor.too_long, predictor.max_length)
    if output:
        with atomic_write(output) as raw:
            (write_npy if kind == ".npy" else write_jsonl)(predictor, rows, raw, skipped, long)
        console.say(f"{skipped.rows - skipped.total:,} of {skipped.rows:,} texts: {output}")
    else:
        out: IO[bytes] = sys.stdout.buffer
        write_jsonl(predictor, rows, out, skipped, long, eager=file == "-")
    tables.warn_of(skipped, long)
