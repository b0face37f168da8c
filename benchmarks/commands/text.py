"""`corpus`, `tokenizer` and `instances`: everything between raw text and a training step."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks.commands.app import Output, bench, tell

if TYPE_CHECKING:
    from rich.table import Table

Input = Annotated[
    Path | None, typer.Option("--input", help="Files or a folder that bertie corpus reads. Default: generated text.")
]
Rounds = Annotated[int, typer.Option(min=1, help="Measured rounds per runner, after one warm-up round.")]


@bench.command("corpus")
def corpus(
    input: Input = None,
    megabytes: Annotated[float, typer.Option(min=0.1, help="Megabytes of text to read.")] = 64,
    workers: Annotated[str, typer.Option(help="Numbers of processes, comma-separated.")] = "1,2",
    rounds: Rounds = 5,
    output: Output = None,
) -> None:
    """Benchmark bertie corpus against datasets.map.

    Both programs do the same steps from raw text to token ids on disk and must produce the same ids. The table shows
    MB/s. Needs datasets: pip install 'bertie[dev]'.

    \b
    Examples:
      python -m benchmarks corpus
      python -m benchmarks corpus --input wiki/ --megabytes 100 -o bench.jsonl
    """
    from benchmarks import corpus as program
    from bertie.errors import UsageError

    numbers = [int(number) if number.strip().isdigit() else 0 for number in workers.split(",")]
    if not all(numbers):
        raise UsageError(f"--workers {workers!r} must be a list of numbers of processes, for example 1,2.")
    for about, documents in _texts(input, megabytes):
        _tell("corpus", program.measure(documents, about, workers=tuple(numbers), rounds=rounds), output)


@bench.command("tokenizer")
def tokenizer(
    input: Input = None,
    megabytes: Annotated[float, typer.Option(min=0.1, help="Megabytes of text to read.")] = 16,
    threads: Annotated[int, typer.Option(min=1, help="Threads per engine.")] = 1,
    rounds: Rounds = 5,
    output: Output = None,
) -> None:
    """Benchmark bulk tokenization against tokenizers and transformers.

    All engines turn sentences into ids and must produce the same ids. The table shows MB/s. Needs the other libraries:
    pip install 'bertie[dev]'. The fast engine needs pip install 'bertie[fast]'.

    \b
    Examples:
      python -m benchmarks tokenizer
      python -m benchmarks tokenizer --input wiki/ -o bench.jsonl
    """
    from benchmarks import tokenizer as program

    for about, documents in _texts(input, megabytes):
        _tell("tokenizer", program.measure(documents, about, threads=threads, rounds=rounds), output)


@bench.command("instances")
def instances(
    input: Input = None,
    megabytes: Annotated[float, typer.Option(min=0.1, help="Megabytes of text to read.")] = 8,
    length: Annotated[int, typer.Option(min=16, max=512, help="Tokens per instance.")] = 128,
    rounds: Rounds = 5,
    output: Output = None,
) -> None:
    """Benchmark the creation of training instances against BERT's data script.

    Both turn token ids into pairs of texts with masks.

    \b
    Examples:
      python -m benchmarks instances
      python -m benchmarks instances --input wiki/ --length 512 -o bench.jsonl
    """
    from benchmarks import instances as program

    for about, documents in _texts(input, megabytes):
        _tell("instances", program.measure(documents, about, length=length, rounds=rounds), output)


def _texts(path: Path | None, megabytes: float) -> Iterator[tuple[str, Iterator[str]]]:
    """Yields the texts to measure on, each with its name in the results."""
    from benchmarks import corpus as program

    if path is not None:
        yield str(path), program.documents_of(str(path), megabytes)
        return
    yield "made up, Latin", program.made_up(megabytes)
    yield "made up, Hangul", program.made_up(megabytes, hangul=True)


def _tell(name: str, lines: list[dict[str, Any]], output: Path | None) -> None:
    tell(lines, partial(_table, name, lines), output)


def _table(name: str, lines: list[dict[str, Any]]) -> "Table":
    from rich.table import Table

    from benchmarks.harness import around

    table = Table("runner", title=f"{name}: {lines[0]['text']}, median of {len(lines[0]['rates'])} rounds")
    rate, unit = ("instances_per_s", "instances/s") if name == "instances" else ("mb_per_s", "MB/s")
    for column in (unit, "spread", "speedup over"):
        table.add_column(column, justify="right")
    for line in lines:
        against = [
            f"{peer} {a['median']:.2f} ({a['low']:.2f}-{a['high']:.2f})"
            for peer, a in line["times_quicker_than"].items()
            if peer != line["runner"]
        ]
        table.add_row(
            line["runner"],
            f"{line[rate]:,.{0 if name == 'instances' else 2}f}",
            around(line["spread"]),
            "\n".join(against),
        )
    return table
