"""`bertie perplexity`: perplexity of a language model."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import bertie
from bertie.apps.cli.shared import option
from bertie.apps.cli.tables import comma_names
from bertie.platform import console, quantity


def perplexity_command(
    model: Annotated[
        Path,
        typer.Argument(help="Name or folder of a pre-trained model, run or checkpoint."),
    ],
    file: Annotated[
        str, typer.Argument(help="Texts: txt (one per line), csv, tsv, jsonl or parquet; - is stdin.")
    ] = "-",
    text: Annotated[list[str] | None, option("text")] = None,
    columns: Annotated[str, option("columns")] = "",
    encoding: Annotated[str, option("encoding")] = "utf-8",
    format_: Annotated[str, option("format")] = "",
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Maximum number of texts to read.")] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            "--max-length", min=3, help="Maximum tokens per text; longer texts are skipped. Default: that of the model."
        ),
    ] = None,
    engine: Annotated[str, option("engine")] = "auto",
    precision: Annotated[str, option("precision")] = "fp32",
    device: Annotated[str, option("device")] = "auto",
) -> None:
    """Compute the perplexity of a language model on texts.

    Lower is better, and 1 means certainty. GPT predicts each token from those before it, and ELMo from either side: the
    mean of both. BERT and XLNet predict each token from all others, which is easier: their pseudo-perplexity compares
    with one another alone. They read a text once per token, so a few hundred sentences are enough. Compare models with
    different vocabularies per word. A word that the vocabulary does not know costs 8 bits per byte. The file is
    streamed, and rows that cannot be read are counted.

    \b
    Examples:
      bertie perplexity runs/base/model sentences.txt
      bertie perplexity runs/medical/model notes.jsonl --text body --limit 500 --json
      bertie perplexity runs/gpt/model sentences.txt
    """
    scores = bertie.perplexity(
        model,
        Path(file),
        text=text or (),
        columns=comma_names(columns),
        encoding=encoding,
        format=format_,
        limit=limit,
        max_length=max_length,
        precision=precision,
        engine=engine,
        device=device,
    )
    if scores.unknown:
        console.warn(
            f"{scores.unknown:,} of {scores.tokens:,} tokens are not in the vocabulary. Each costs 8 bits per "
            "byte, so that models can be compared per word."
        )
    if scores.left_out:
        console.warn(f"{scores.left_out:,} texts skipped: no words to predict, or too long for the model")
    if console.verbosity.json:
        console.emit(asdict(scores))
        return
    counts = (("text", scores.texts), ("word", scores.words), ("token", scores.tokens))
    console.show(", ".join(quantity(number, noun) for noun, number in counts))
    console.show(f"{scores.name} per word {scores.per_word:.4g}, per token {scores.per_token:.4g}")
