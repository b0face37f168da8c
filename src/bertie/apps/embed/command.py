"""`bertie embed`: sentence embeddings."""

import sys
from pathlib import Path
from typing import Annotated

import typer

import bertie
from bertie.apps.cli.shared import option
from bertie.apps.cli.tables import comma_names
from bertie.platform import console


def embed_command(
    model: Annotated[
        Path,
        typer.Argument(help="Name or folder of a model (also of sentence-transformers), run or checkpoint."),
    ],
    prompt: Annotated[str | None, typer.Option("--prompt", help="Name of a prompt in the model folder.")] = None,
    prefix: Annotated[str | None, typer.Option("--prefix", help="Text to put before every input: 'query: '.")] = None,
    pooling: Annotated[
        str | None,
        typer.Option(
            "--pooling",
            help="mean, cls, max, mean_sqrt_len, weighted_mean, last, or several by commas. Default: as trained.",
        ),
    ] = None,
    truncate_dim: Annotated[
        int | None, typer.Option("--truncate-dim", min=1, help="Number of dimensions to keep, from the first.")
    ] = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Scale every vector to length 1.")] = False,
    max_length: Annotated[int | None, option("max-length")] = None,
    precision: Annotated[str, option("precision")] = "fp32",
    engine: Annotated[str, option("engine")] = "auto",
    device: Annotated[str, option("device")] = "auto",
    file: Annotated[str, option("file")] = "-",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File to write: .npy, .jsonl, .parquet, .csv, .tsv or .xlsx. Default: stdout."
        ),
    ] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Write the vector of each token: .npz, .safetensors or .parquet.")
    ] = False,
    from_layers: Annotated[
        str,
        typer.Option("--from-layers", help="With --tokens: all, or 0,6,-1 (0: embeddings). Default: the last layer."),
    ] = "",
    only_answers: Annotated[bool, option("only-answers")] = False,
    excel: Annotated[bool, option("excel")] = False,
    output_encoding: Annotated[str, option("output-encoding")] = "utf-8",
    text: Annotated[list[str] | None, option("text")] = None,
    columns: Annotated[str, option("columns")] = "",
    encoding: Annotated[str, option("encoding")] = "utf-8",
    format_: Annotated[str, option("format")] = "",
    overwrite: Annotated[bool, option("overwrite")] = False,
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
      bertie embed models/bert sentences.txt --tokens --from-layers all -o tokens.npz
    """
    ways = comma_names(pooling or "")
    written = bertie.embed(
        model,
        file,
        output=output or sys.stdout.buffer,
        tokens=tokens,
        from_layers=from_layers,
        only_answers=only_answers,
        excel=excel,
        output_encoding=output_encoding,
        text=text or (),
        columns=comma_names(columns),
        encoding=encoding,
        format=format_,
        overwrite=overwrite,
        prompt=prompt,
        prefix=prefix,
        pooling=None if pooling is None else ways[0] if len(ways) == 1 else ways,
        truncate_dim=truncate_dim,
        normalize=normalize,
        max_length=max_length,
        precision=precision,
        engine=engine,
        device=device,
    )
    if output:
        console.say(f"{written.answers:,} of {written.rows:,} texts: {output}")
