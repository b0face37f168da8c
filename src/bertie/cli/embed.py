"""`bertie embed`: sentence embeddings."""

import sys
from pathlib import Path
from typing import Annotated

import typer

import bertie
from bertie.cli import tables
from bertie.cli.app import Overwrite
from bertie.cli.groups import EmbeddingOptions
from bertie.cli.options import grouped
from bertie.console import console


@grouped
def embed(
    model: Annotated[
        Path,
        typer.Argument(help="Name or folder of a model (also of sentence-transformers), run or checkpoint."),
    ],
    reading: EmbeddingOptions,
    file: tables.TextFile = "-",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File to write: .npy, .jsonl, .parquet, .csv, .tsv or .xlsx. Default: stdout."
        ),
    ] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Write the vector of each token: .npz, .safetensors or .parquet.")
    ] = False,
    layers: Annotated[
        str, typer.Option("--layers", help="With --tokens: all, or 0,6,-1 (0: embeddings). Default: the last layer.")
    ] = "",
    only_answers: tables.OnlyAnswers = False,
    excel: tables.Excel = False,
    output_encoding: tables.OutputEncoding = "utf-8",
    text: tables.TextColumns = None,
    columns: tables.ColumnNames = "",
    encoding: tables.Encoding = "utf-8",
    format_: tables.Format = "",
    overwrite: Overwrite = False,
) -> None:
    """Compute sentence embeddings.

    The vectors are in the order of the texts, and the input may be larger than memory. Each record has all columns of
    its row, the row number, the line number, and the vector. A .npy file has only the vectors. Rows that cannot be read
    are counted: their record has an "error", and a .npy file has a row of NaN.

    \b
    Examples:
      bertie embed runs/sts/model sentences.txt -o vectors.npy
      bertie embed runs/sts/model reviews.csv --text review -o reviews.parquet
      echo "the tide came in" | bertie embed runs/sts/model
      bertie embed multilingual-e5-small questions.txt --prefix "query: " -o questions.npy
      bertie embed models/bert sentences.txt --tokens --layers all -o tokens.npz
    """
    written = bertie.embed(
        model,
        file,
        output=output or sys.stdout.buffer,
        tokens=tokens,
        layers=layers,
        only_answers=only_answers,
        excel=excel,
        output_encoding=output_encoding,
        text=text or (),
        columns=tables.names(columns),
        encoding=encoding,
        format=format_,
        overwrite=overwrite,
        **reading.arguments(),
    )
    if output:
        console.say(f"{written.answers:,} of {written.rows:,} texts: {output}")
