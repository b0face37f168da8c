"""`bertie bench`: the measuring programs behind every performance claim, peers side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertie import console
from bertie.cli.app import Json, Quiet, Verbose, app, emit

if TYPE_CHECKING:
    from rich.table import Table

bench = typer.Typer(help="Measure Bertie beside its peers on this machine.", no_args_is_help=True)
app.add_typer(bench, name="bench")


@bench.command("pretrain")
def pretrain(
    models: Annotated[str, typer.Option(help="Model sizes, comma-separated: tiny, mini, base.")] = "tiny,mini,base",
    rounds: Annotated[int, typer.Option(min=2, help="Measured rounds of every runner.")] = 5,
    batch_size: Annotated[int, typer.Option(min=1, help="Sequences per step.")] = 32,
    memory: Annotated[bool, typer.Option(help="Measure peak memory too, each runner in its own process.")] = True,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Append one JSON line per cell here.")] = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    r"""Masked-LM training: Bertie beside the transformers Trainer, interleaved; real tokens per second, peak memory.

    Needs the peers: pip install 'bertie\[dev]'.

    [bold]Examples[/]

      bertie bench pretrain

      bertie bench pretrain --models tiny --rounds 3 -o bench.jsonl
    """
    from bertie.bench import harness
    from bertie.bench import pretrain as program
    from bertie.errors import UsageError, nearest

    names = [name.strip() for name in models.split(",") if name.strip()]
    for name in names:
        if name not in program.SIZES:
            raise UsageError(f"Unknown model size {name!r}. {nearest(name, program.SIZES)}")
    for name in names:
        lines = program.measure(name, batch_size=batch_size, rounds=rounds, memory=memory)
        harness.write_lines(output, lines)
        if json:
            for line in lines:
                emit(line)
        else:
            console.show(_table(name, lines))


def _table(name: str, lines: list[dict[str, Any]]) -> "Table":
    from rich.table import Table

    peers = [line["runner"] for line in lines if line["runner"].startswith("transformers")]
    table = Table(title=f"{name}: masked-LM training, median of {len(lines[0]['rates'])} rounds")
    table.add_column("runner")
    for column in ("real tokens/s", "spread", "peak memory", *(f"times {peer}" for peer in peers)):
        table.add_column(column, justify="right")
    for line in lines:
        against = [line["times_quicker_than"][peer] for peer in peers]
        memory = line["peak_memory_bytes"]
        table.add_row(
            line["runner"],
            f"{line['tokens_per_s']:,.0f}",
            f"± {line['spread']:.0%}",
            "" if memory is None else f"{memory / 1e6:,.0f} MB",
            *(f"{a['median']:.2f} ({a['low']:.2f}-{a['high']:.2f})" for a in against),
        )
    return table
