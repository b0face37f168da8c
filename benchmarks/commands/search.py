"""`python -m benchmarks search`: an index beside bm25s and sentence-transformers."""

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks.commands.app import Output, bench, tell
from benchmarks.commands.text import Input
from bertie.apps.search.api import WhereModels, embedder_of
from bertie.apps.search.commands.search import EmbedModel

if TYPE_CHECKING:
    from rich.table import Table


@bench.command("search")
def search(
    input: Input = None,
    passages: Annotated[int, typer.Option(min=100, help="Number of passages: sentences of the input.")] = 10_000,
    questions: Annotated[int, typer.Option(min=10, help="Number of questions.")] = 300,
    embed: EmbedModel = None,
    output: Output = None,
) -> None:
    """Benchmark search against bm25s and sentence-transformers.

    All runners answer the same questions one at a time, in turns. The table has the time to build an index, its size,
    queries per second, and the time of a query. Needs the other libraries: pip install bm25s sentence-transformers.

    \b
    Examples:
      python -m benchmarks search --passages 100000
      python -m benchmarks search --input wiki/ --embed MODEL -o bench.jsonl
    """
    from benchmarks import search as program

    texts = program.sentences(str(input or ""), passages)
    with tempfile.TemporaryDirectory() as work:
        embedder = embedder_of(embed, WhereModels("auto")) if embed else None
        rows = program.measure(texts, program.questions(texts, questions), Path(work), embedder)
    tell(rows, partial(_table, rows), output)


def _table(rows: list[dict[str, Any]]) -> "Table":
    from rich.table import Table

    table = Table("runner", title=f"{rows[0]['passages']:,} passages")
    for name in ("build s", "MB", "queries/s", "median ms", "p99 ms"):
        table.add_column(name, justify="right")
    for row in rows:
        figures = (row["build_s"], row["index_bytes"] / 1e6, row["queries_per_s"], row["median_ms"], row["p99_ms"])
        table.add_row(row["runner"], *(f"{value:,.1f}" for value in figures))
    return table
