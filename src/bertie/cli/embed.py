"""`bertie embed`: sentence embeddings."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import IO, Annotated

import typer

from bertie import console
from bertie.cli import tables
from bertie.cli.app import Overwrite
from bertie.cli.groups import EmbeddingOptions
from bertie.cli.options import grouped
from bertie.errors import DataError, UsageError


@grouped
def embed(
    model: Annotated[
        Path,
        typer.Argument(
            help="Name or folder of a model (also of sentence-transformers), run or checkpoint.",
            callback=tables.resolved,
        ),
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
    from bertie.data.tables import Columns, InvalidRow, SkipReport
    from bertie.files import atomic_write, check_new_file
    from bertie.infer.embed import vectors, write_npy
    from bertie.infer.layer_files import WRITERS as TOKEN_WRITERS
    from bertie.infer.layers import layers_of, row_vectors
    from bertie.infer.pipeline import TextCount
    from bertie.infer.records import WRITERS

    if layers and not tokens:
        raise UsageError("--layers chooses vectors of tokens. Add --tokens, or omit --layers.")
    if tokens:
        _check_tokens(model, reading, output)
        reading = replace(reading, engine="torch")  # the one that has every layer
    kinds = TOKEN_WRITERS if tokens else (".npy", *(kind for kind in WRITERS if kind != ".json"))
    kind = tables.kind_of_output(output, kinds)
    form = replace(tables.form(kind, only_answers, excel, output_encoding), columns=("vector",))
    if output:
        check_new_file(output, overwrite=overwrite, inputs=[file])
    predictor = reading.predictor(model)
    chosen = layers_of(layers or "-1", predictor.engine.facts) if tokens else ()

    def check(found: Columns) -> None:
        if len(found.text) > 1:
            read = " + ".join(found.text)
            raise DataError(
                f"{file} looks like a table of text pairs ({read}). Choose the column to embed: --text COLUMN."
            )

    format = tables.unlabelled(
        file, text, columns, encoding, format_, keep=not only_answers and kind in WRITERS and not tokens
    )
    rows = predictor.task.rows(file, replace(format, on_header=form.starts_with), on_columns=check)
    skipped, long = SkipReport(), TextCount(predictor.too_long, predictor.max_length)

    def write_records(out: IO[bytes]) -> None:
        with WRITERS[kind](out, form) as write:
            for row, found in vectors(predictor, rows, skipped, long, eager=file == "-"):
                record = {"error": found.reason} if isinstance(found, InvalidRow) else {"vector": found.tolist()}
                write(row.source, tables.numbers(row, skipped.rows, only_answers), record)

    if output:
        with atomic_write(output) as raw:
            if tokens:
                TOKEN_WRITERS[kind](output, raw, row_vectors(predictor, rows, chosen, skipped, long))
            elif kind == ".npy":
                write_npy(predictor, rows, raw, skipped, long)
            else:
                write_records(raw)
        console.say(f"{skipped.rows - skipped.total:,} of {skipped.rows:,} texts: {output}")
    else:
        write_records(sys.stdout.buffer)
    if not skipped.rows:
        console.warn(f"{'Standard input' if file == '-' else file} has no rows, so there are no vectors.")
    for note in form.notes:
        console.warn(note)
    tables.warn_of(skipped, long)


def _check_tokens(model: Path, reading: EmbeddingOptions, output: Path | None) -> None:
    """Raises UsageError for a model without vectors of tokens, and for options that they do not have."""
    from bertie.infer.onnx_engine import graph_of

    if output is None:
        raise UsageError("--tokens writes a file. Pass -o FILE.npz, FILE.safetensors or FILE.parquet.")
    if reading.engine == "native":
        raise UsageError("The native engine has no vectors of layers. Omit --engine with --tokens.")
    if graph := graph_of(model):
        raise UsageError(f"{graph} has no vectors of layers. Pass the model folder that it was made from.")
    names = ("prompt", "prefix", "pooling", "truncate_dim", "normalize")
    if given := [f"--{name.replace('_', '-')}" for name in names if getattr(reading, name)]:
        raise UsageError(
            f"--tokens excludes {', '.join(given)}: vectors of tokens are not pooled. Pass one or the other."
        )
