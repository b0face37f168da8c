"""`bertie reproduce`: the tables of the documentation, made again."""

from pathlib import Path
from typing import Annotated

import typer

from bertie import console
from bertie.cli import tables
from bertie.cli.app import Json, Quiet, Verbose, app, emit

group = typer.Typer(help="Make the tables of the documentation again.", no_args_is_help=True)
app.add_typer(group, name="reproduce")


@group.command("results")
def results(
    model: Annotated[str, typer.Option(help="Folder of the pre-trained English model.")],
    data_dir: Annotated[Path, typer.Option(help="Folder that has the sets' folders: glue, tagging, squad, nsmc.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the runs, from which it goes on.")],
    korean_model: Annotated[str, typer.Option(help="Folder of a pre-trained Korean model, for NSMC.")] = "",
    only: Annotated[str, typer.Option(help="Rows, comma-separated. Left out: all there are models for.")] = "",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each side, at most; some rows have fewer.")] = 5,
    to: Annotated[Path | None, typer.Option("--to", help="Write the page here; left out: OUTPUT/results.md.")] = None,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    r"""Fine-tune on published sets over several seeds, by Bertie and by the transformers Trainer: the table of results.

    The same command goes on where it was stopped. Needs the peers: pip install 'bertie\[dev]'.

    [bold]Example[/]

      bertie reproduce results --model minilm --data-dir data --only rte,wnli --seeds 2 -o runs/results
    """
    from bertie.bench import results as program

    models = {program.ENGLISH: model} | ({program.KOREAN: korean_model} if korean_model else {})
    names = tables.names(only) or tuple(name for name, row in program.ROWS.items() if row.model in models)
    rows = program.reproduce(names, models, data_dir, output, seeds=seeds)
    command = f"bertie reproduce results --model {Path(model).absolute().name} --data-dir data --seeds {seeds}"
    command += f" --korean-model {Path(korean_model).absolute().name}" if korean_model else ""
    command += f" --only {only}" if only else ""
    page = program.page(rows, models=models, command=f"{command} -o runs/results")
    program.write_page(to or output / "results.md", page)
    if console.verbosity.json:
        for row in rows:
            emit(row)
    else:
        console.show(page)
