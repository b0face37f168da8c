"""Training and inference beside other libraries."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks.commands.app import Output, bench, tell, writable
from bertie.apps.cli import tables
from bertie.console import console, counted

if TYPE_CHECKING:
    from rich.table import Table


@bench.command("pretrain")
def pretrain(
    models: Annotated[
        str, typer.Option(help="Model sizes, comma-separated: tiny, mini, small, base, large.")
    ] = "tiny,mini,base",
    rounds: Annotated[int, typer.Option(min=2, help="Measured rounds of every runner.")] = 5,
    batch_size: Annotated[int, typer.Option(min=1, help="Sequences per step.")] = 32,
    length: Annotated[int, typer.Option(min=16, max=512, help="Tokens per packed row.")] = 128,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    memory: Annotated[bool, typer.Option(help="Also measure peak memory, each runner in its own process.")] = True,
    runners: Annotated[
        str, typer.Option(help="Runners to measure, comma-separated: bertie fp32, transformers best ... Default: all.")
    ] = "",
    output: Output = None,
) -> None:
    """Benchmark masked-LM training against the transformers Trainer.

    The runners alternate. The table shows tokens per second without padding, model FLOPs utilization and peak memory.
    The utilization is relative to matrix products measured in the same run. Needs the other libraries: pip install
    'bertie[dev]'.

    \b
    Examples:
      python -m benchmarks pretrain
      python -m benchmarks pretrain --models tiny --rounds 3 -o bench.jsonl
      python -m benchmarks pretrain --models small,base,large --device cuda --batch-size 256 --length 512
      python -m benchmarks pretrain --models base --device cuda --runners "bertie bf16,transformers best"
    """
    from benchmarks import pretrain as program
    from bertie.errors import UsageError, nearest

    names = tables.comma_names(models)
    for name in names:
        if name not in program.SIZES:
            raise UsageError(f"Unknown model size {name!r}. {nearest(name, program.SIZES)}")
    for name in names:
        setup = program.Setup(name, batch_size, length, device)
        lines = program.measure(setup, rounds=rounds, memory=memory, only=tables.comma_names(runners))
        title = f"{name}: masked-LM training, median of {len(lines[0]['rates'])} rounds"
        tell(lines, partial(_table, title, lines, "tokens_per_s"), output)


@bench.command("finetune")
def finetune(
    model: Annotated[str, typer.Option(help="Preset, or folder of a pre-trained model.")] = "bert-mini",
    data: tables.DataSet = "",
    data_dir: tables.DataDir = None,
    steps: Annotated[int, typer.Option(min=10, help="Optimizer steps of every run.")] = 60,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples per step.")] = 32,
    lr: Annotated[
        float | None, typer.Option(help="Learning rate. Default: 5e-4 for a preset, 5e-5 for a folder.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=2, help="Runs per runner, each with its own seed.")] = 3,
    memory: Annotated[bool, typer.Option(help="Also measure peak memory, each runner in its own process.")] = True,
    output: Output = None,
) -> None:
    """Benchmark fine-tuning against the transformers Trainer.

    The table shows examples per second, peak memory, and quality on dev. A preset has random weights and learns
    generated examples. A folder needs a published data set for classification or regression. Needs the other
    libraries: pip install 'bertie[dev]'.

    \b
    Examples:
      python -m benchmarks finetune
      python -m benchmarks finetune --model minilm --data rte --data-dir glue --steps 156 --rounds 5 -o bench.jsonl
    """
    from benchmarks import finetune as program
    from bertie.errors import UsageError
    from bertie.models import families

    preset = model in families.PRESETS
    if preset == bool(data):
        takes = (
            "generates its examples, so it cannot be combined with --data"
            if preset
            else "needs --data NAME and --data-dir DIR"
        )
        raise UsageError(f"--model {model} {takes}.")
    setup = program.Setup(model, data, str(data_dir or ""), steps, batch_size, lr or (5e-4 if preset else 5e-5))
    lines = program.measure(setup, rounds=rounds, memory=memory)
    first = lines[0]
    title = f"{first['data']}, {first['mean_tokens']:.0f} tokens per text: {steps} steps, {rounds} runs"
    tell(lines, partial(_table, title, lines, "examples_per_s", quality=True), output)


@bench.command("families")
def of_families(
    models: Annotated[
        str, typer.Option(help="Presets with a masked-LM head, comma-separated.")
    ] = "ModernBERT-base,deberta-v3-base,mpnet-base",
    layers: Annotated[int, typer.Option(min=1, help="Layers of each model. Speed per layer is what differs.")] = 4,
    rounds: Annotated[int, typer.Option(min=2, help="Measured rounds of every runner.")] = 3,
    output: Output = None,
) -> None:
    """Benchmark training steps and inference of model families against transformers.

    Both sides have the same weights and texts of uneven lengths. The runners alternate. Needs the other libraries: pip
    install 'bertie[dev]'.

    \b
    Example:
      python -m benchmarks families --models ModernBERT-base --layers 2
    """
    from benchmarks import family_speed as program
    from benchmarks.peers import require
    from bertie.errors import UsageError, nearest
    from bertie.models import families

    require()
    names = tables.comma_names(models)
    for name in names:
        if name not in families.PRESETS:
            raise UsageError(f"{name!r} is not a preset. {nearest(name, families.PRESETS)}")
    for name in names:
        lines = program.measure(name, layers=layers, rounds=rounds)
        tell(lines, partial(_families_table, lines), output)


def _families_table(lines: list[dict[str, Any]]) -> "Table":
    from rich.table import Table

    from benchmarks.harness import around

    peers = list(lines[0]["times_quicker_than"])
    table = Table("work", "runner", title=f"{lines[0]['model']}, {lines[0]['layers']} layers")
    for column in ("tokens/s", "spread", *(f"times {peer}" for peer in peers)):
        table.add_column(column, justify="right")
    for line in lines:
        against = [line["times_quicker_than"][peer] for peer in peers]
        told = [f"{a['median']:.2f} ({a['low']:.2f}-{a['high']:.2f})" for a in against]
        table.add_row(line["work"], line["runner"], f"{line['tokens_per_s']:,.0f}", around(line["spread"]), *told)
    return table


@bench.command("lengths")
def lengths(
    at: Annotated[str, typer.Option("--at", help="Lengths in tokens, comma-separated.")] = "512,1024,2048,4096",
    steps: Annotated[int, typer.Option(min=1, help="Measured steps per row.")] = 3,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Append one JSON line per row: FILE.jsonl. Rows in the file are not measured again.",
            callback=writable,
        ),
    ] = None,
) -> None:
    """Benchmark training steps on long texts.

    The table shows CPU time and peak memory by length, for full, windowed and block-sparse attention.

    \b
    Examples:
      python -m benchmarks lengths
      python -m benchmarks lengths --at 1024,4096 -o lengths.jsonl
    """
    from benchmarks import harness
    from benchmarks import lengths as program
    from bertie.errors import UsageError

    wanted = [int(name) if name.strip().isdigit() else 0 for name in at.split(",")]
    if not all(16 <= length <= program.LONGEST for length in wanted):
        raise UsageError(f"--at {at!r} must be a list of lengths from 16 to {program.LONGEST:,}, for example 512,4096.")
    known = harness.read_lines(output)
    done = [(str(row.get("attention")), int(row.get("length", 0))) for row in known]
    if skipped := [row for row in known if row.get("length") in wanted]:
        console.say(f"{output} has {len(skipped)} of these rows already. Only the others are measured.")
    todo = len(wanted) * len(program.KINDS) - len(skipped)
    with console.progress("measuring", total=todo, unit="rows") as advance:
        for row in program.measure(wanted, done, steps=steps):
            harness.write_lines(output, [row])
            advance(1, last=f"{row['attention']}, {row['length']:,} tokens")
            skipped.append(row)
    rows = sorted(skipped, key=lambda row: row["length"])
    tell(rows, partial(_lengths_table, rows))


@bench.command("infer")
def infer(
    model: Annotated[Path | None, typer.Option(help="Model folder. Default: the model of bertie[minilm].")] = None,
    input: Annotated[
        str,
        typer.Option(
            show_default=False,
            help="Source of the texts: files or a folder that bertie corpus reads. Default: the documentation of "
            "torch, numpy and sklearn.",
        ),
    ] = "python:torch,numpy,sklearn",
    texts: Annotated[int, typer.Option(min=20, help="Number of texts, each of 3 to 300 tokens.")] = 1000,
    threads: Annotated[int | None, typer.Option(min=1, help="Number of cores per runner. Default: all.")] = None,
    rounds: Annotated[int, typer.Option(min=2, help="Measured rounds of every runner.")] = 5,
    only: Annotated[str, typer.Option(help="Runners, comma-separated. Default: all that are installed.")] = "",
    memory: Annotated[bool, typer.Option(help="Also measure start-up and memory, each in its own process.")] = True,
    keep: Annotated[Path | None, typer.Option(help="Folder for converted models, which a second run reuses.")] = None,
    output: Output = None,
) -> None:
    """Benchmark text vectors on a CPU against other inference engines.

    The table compares Bertie's engines with CTranslate2, ONNX Runtime, OpenVINO and transformers. It shows tokens per
    second without padding, the cosine similarity to float32, milliseconds for one text, start-up time and peak memory.
    It also shows the share of texts with the same nearest other text as in float32. For a classifier, it shows the
    share of texts with the same label instead. Engines that are not installed are skipped. To install them:
    pip install 'bertie[peers]'.

    \b
    Examples:
      python -m benchmarks infer
      python -m benchmarks infer --input wiki/ --only "Bertie int8,CTranslate2 int8" -o bench.jsonl
    """
    import os
    import tempfile

    from benchmarks import corpus
    from benchmarks import infer as program
    from bertie.errors import DataError
    from bertie.text.tokenizer import Tokenizer

    folder = model or program.published()
    if not (folder / "config.json").is_file():
        raise DataError(f"{folder} is not a model folder: it has no config.json. Pass --model FOLDER.")
    tokenizer = Tokenizer.load(folder)
    names = program.runners(tables.comma_names(only))
    found = program.texts_of(corpus.documents_of(input, 64), lambda text: list(tokenizer.encode(text).ids), texts)
    cores = threads or len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as scratch:
        work = keep or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        lines = program.measure(folder, found, names, work, threads=cores, rounds=rounds, memory=memory)
    tell(lines, partial(_infer_table, lines), output)


def _infer_table(lines: list[dict[str, Any]]) -> "Table":
    from rich.table import Table

    from benchmarks.harness import around

    first = lines[0]
    table = Table(
        "runner",
        title=f"{first['model']}: {first['texts']:,} texts, {first['tokens']:,} tokens, "
        f"{counted(first['threads'], 'thread')}",
        show_lines=True,  # cells of several lines: 80 columns are enough
    )
    same = next(name for name in first["cosine"] if name.startswith("same_"))
    for column in ("tokens/s", "cosine", same.replace("_", " "), "one text", "start, memory"):
        table.add_column(column, justify="right")
    for line in lines:
        near, names = line["cosine"], {"worst": "min", "p1": "1%", "mean": "mean"}
        table.add_row(
            line["runner"],
            f"{line['tokens_per_s']:,}\n{around(line['spread'])}".strip(),
            "\n".join(f"{near[name]:z.4f} {shown}" for name, shown in names.items()),
            f"{near[same]:.1%}",
            f"{line['p50_ms']:.1f} ms p50\n{line['p99_ms']:.1f} ms p99",
            f"{line['start_s']:.1f} s\n{line['peak_memory_bytes'] / 1e6:,.0f} MB" if "start_s" in line else "",
        )
    return table


def _lengths_table(rows: list[dict[str, Any]]) -> "Table":
    from rich.table import Table

    table = Table("attention", title="a training step, one text")
    for column in ("length", "processor s", "peak MiB"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(row["attention"], f"{row['length']:,}", f"{row['cpu_s']:.2f}", f"{row['peak_mib']:,}")
    return table


def _table(title: str, lines: list[dict[str, Any]], rate: str, *, quality: bool = False) -> "Table":
    """Returns the table of runners and their speed; `rate` names the measured quantity per second."""
    from rich.table import Table

    from benchmarks.harness import around

    peers = [line["runner"] for line in lines if line["runner"].startswith("transformers")]
    shown = [lines[0]["metric"]] if quality else []
    table = Table(title=title)
    table.add_column("runner")
    used = ["FLOPs used"] if "utilisation" in lines[0] else []
    unit = {"tokens_per_s": "real tokens/s", "examples_per_s": "examples/s"}[rate]
    for column in (unit, "spread", *used, "peak memory", *shown, *(f"times {peer}" for peer in peers)):
        table.add_column(column, justify="right")
    for line in lines:
        against = [line["times_quicker_than"][peer] for peer in peers]
        memory = line["peak_memory_bytes"]
        table.add_row(
            line["runner"],
            f"{line[rate]:,.0f}" if line[rate] >= 100 else f"{line[rate]:.1f}",
            around(line["spread"]),
            *([f"{line['utilisation']:.0%}"] if used else []),
            "" if memory is None else f"{memory / 1e6:,.0f} MB",
            *([f"{line['quality']['mean']:z.3f} ± {line['quality']['sd']:z.3f}"] if quality else []),
            *(f"{a['median']:.2f} ({a['low']:.2f}-{a['high']:.2f})" for a in against),
        )
    return table
