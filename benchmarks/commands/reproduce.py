"""`python -m benchmarks reproduce`: the result tables of the documentation."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.commands.app import bench
from bertie.apps.cli import tables
from bertie.apps.cli.app import Commands, ConfigFile, Overrides
from bertie.console import console
from bertie.errors import UsageError
from bertie.files import write_bytes

group = Commands(help="Reproduce the published result tables.", no_args_is_help=True)
bench.add_typer(group, name="reproduce")


@group.command("few-labels")
def few_labels(
    model: Annotated[str, typer.Option(help="Folder of a sentence model or a masked LM.")],
    data_dir: Annotated[Path, typer.Option(help="Folder that contains the folders glue, nsmc and squad.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the measurements. Those in it are reused.")
    ],
    only: Annotated[str, typer.Option(help="Sets, comma-separated: sst2, nsmc, topics. Default: all.")] = "",
    draws: Annotated[int, typer.Option(min=1, help="Number of draws of the training examples.")] = 10,
    to: Annotated[Path | None, typer.Option("--to", help="Page to write. Default: OUTPUT/few-labels.md.")] = None,
) -> None:
    """Measure classifiers trained on 8, 16 and 64 examples per label.

    Compares few-shot training with plain fine-tuning, with the vectors of the start model, and with tf-idf. A masked
    language model is trained with a pattern instead. The same command resumes an interrupted one.

    \b
    Example:
      python -m benchmarks reproduce few-labels --model minilm --data-dir data --only sst2 --draws 3 -o runs/few
    """
    from benchmarks import few_labels as program
    from benchmarks.cells import measuring_in

    with measuring_in(output):
        rows = program.reproduce(tables.comma_names(only), model, data_dir, output, draws=draws)
    command = "python -m benchmarks reproduce few-labels"
    command += f" --model {Path(model).absolute().name} --data-dir data --draws {draws}"
    page = program.page(rows, model=model, command=f"{command}{f' --only {only}' if only else ''} -o runs/few")
    _written(to or output / "few-labels.md", page, rows, program.pictures(rows))


def _written(to: Path, page: str, rows: Sequence[Mapping[str, Any]], pictures: Mapping[str, str]) -> None:
    """Writes a page and its pictures beside it, and prints the page, or its rows as JSON."""
    from benchmarks.cells import write_picture

    for name, svg in pictures.items():
        write_picture(to.with_name(f"{to.stem}-{name}.svg"), svg)
    page += "".join(f"\n![{name}]({to.stem}-{name}.svg)\n" for name in pictures)
    write_bytes(to, page.encode())
    if console.verbosity.json:
        for row in rows:
            console.emit(row)
    else:
        console.show(page)


@group.command("results")
def results(
    data_dir: Annotated[
        Path, typer.Option(help="Folder that contains the folders glue, tagging, squad, nsmc and korean.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the runs. Finished runs in it are reused.")
    ],
    model: Annotated[
        list[str] | None,
        typer.Option(help="Folder or name of a pre-trained English model. Can be given several times."),
    ] = None,
    korean_model: Annotated[
        list[str] | None,
        typer.Option(help="Folder or name of a Korean model, for the Korean sets. Can be given several times."),
    ] = None,
    only: Annotated[str, typer.Option(help="Rows, comma-separated. Default: rows with a model and files.")] = "",
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Runs of each row. Default: 5 under 10,000 training examples, otherwise 3."),
    ] = None,
    peer_seeds: Annotated[int, typer.Option(min=0, help="Runs of the transformers Trainer.")] = 1,
    train: Annotated[
        int | None, typer.Option(min=128, help="Maximum number of training examples. Default: all.")
    ] = None,
    to: Annotated[Path | None, typer.Option("--to", help="Page to write. Default: OUTPUT/results.md.")] = None,
) -> None:
    """Fine-tune on published data sets with Bertie and with the transformers Trainer.

    Writes the table of results over several seeds, beside published scores, after every row. The same command resumes
    an interrupted one. The Trainer needs the other libraries: pip install 'bertie[dev]'.

    \b
    Examples:
      python -m benchmarks reproduce results --model minilm-l6 --data-dir data --only rte,wnli --seeds 2 -o runs/results
      python -m benchmarks reproduce results --model minilm-l6 --model starter-en --data-dir data -o runs/all
      python -m benchmarks reproduce results --korean-model starter-ko --data-dir data --peer-seeds 0 -o runs/korean
    """
    from benchmarks import results as program
    from benchmarks.cells import measuring_in

    given = {program.ENGLISH: model, program.KOREAN: korean_model}
    models = {language: several for language, several in given.items() if several}
    if not models:
        raise UsageError(
            "No model given. Pass --model for the English sets, --korean-model for the Korean ones, or both."
        )
    names = tables.comma_names(only) or program.available(data_dir, models)
    options: list[tuple[str, Any]] = [("--model", one.name) for one in program.named(model or [])]
    options += [("--korean-model", one.name) for one in program.named(korean_model or [])]
    options += [("--data-dir", "data"), ("--seeds", seeds), ("--train", train)]
    options += [("--peer-seeds", None if peer_seeds == 1 else peer_seeds), ("--only", only)]
    command = "python -m benchmarks reproduce results"
    command += "".join(f" {option} {value}" for option, value in options if value not in (None, ""))

    def write(rows: list[dict[str, Any]]) -> None:
        page = program.page(rows, command=f"{command} -o runs/results")
        program.write_page(to or output / "results.md", page)

    with measuring_in(output):
        rows = program.reproduce(
            names, models, data_dir, output, seeds=seeds, peer_seeds=peer_seeds, train=train, done=write
        )
    if console.verbosity.json:
        for row in rows:
            console.emit(row)
    else:
        console.show((to or output / "results.md").read_text(encoding="utf-8"))


@group.command("ablations")
def ablations(
    corpus: Annotated[str, typer.Option(help="Folder of `bertie corpus`.")],
    tokenizer: Annotated[str, typer.Option(help="Folder of a tokenizer.")],
    data_dir: Annotated[Path, typer.Option(help="Folder that contains the folders glue, tagging and squad.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the runs and the page.")],
    overrides: Overrides = None,
    config: ConfigFile = None,
    only: Annotated[
        str,
        typer.Option(help="Tables, comma-separated: tasks, size, masks, steps, features, objectives. Default: all."),
    ] = "",
    tasks: Annotated[str, typer.Option(help="Tasks, comma-separated. Default: sst2,mrpc,wnut17.")] = "",
    train: Annotated[int | None, typer.Option(min=1, help="Maximum number of training examples of a task.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds of each row.")] = 3,
) -> None:
    """Repeat the ablations of the BERT paper on your corpus.

    Pre-trains a small model for each row, fine-tunes it, and compares each row with the first one of its table by seed.
    Writes ablations.html, ablations.md and a picture of each table and task after every seed. The same command resumes
    an interrupted one. Settings of pre-training are key=value; the recipe is pretrain-ten-minutes.

    \b
    Example:
      python -m benchmarks reproduce ablations --corpus corpora/mine --tokenizer tokenizers/mine --data-dir data \\
        -o runs/ablations
    """
    from benchmarks import ablations as program
    from benchmarks.cells import measuring_in, write_picture

    setup = program.Setup(
        corpus,
        tokenizer,
        data_dir,
        str(config or program.RECIPE),
        tuple(overrides or ()),
        tables.comma_names(tasks) or program.TASKS,
        train,
    )
    command = (
        f"python -m benchmarks reproduce ablations --corpus {Path(corpus).name} --tokenizer {Path(tokenizer).name}"
    )
    command += " --data-dir data"
    for option, value in (("--config", config), ("--only", only), ("--tasks", tasks), ("--train", train)):
        command += f" {option} {value}" if value else ""
    command = " ".join([command, "--seeds", str(seeds), "-o runs/ablations", *map(shlex.quote, setup.overrides)])

    def write(lines: list[dict[str, Any]]) -> None:
        charts = program.pictures(lines)
        program.report(lines, charts, command).save(output / "ablations.html")
        for name, svg in charts.items():
            write_picture(output / name, svg)
        write_bytes(output / "ablations.md", program.markdown(lines).encode())

    with measuring_in(output):
        lines = program.reproduce(
            tables.comma_names(only) or tuple(program.TABLES), setup, output, seeds=seeds, done=write
        )
    if console.verbosity.json:
        for line in lines:
            console.emit(line)
    else:
        console.show(program.markdown(lines))
