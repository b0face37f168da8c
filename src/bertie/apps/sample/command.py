"""`bertie sample`: small generated tables of examples to try the commands with."""

from pathlib import Path
from typing import Annotated

import typer

from bertie import platform
from bertie.apps import sample as app
from bertie.apps.cli.shared import option
from bertie.platform import UsageError, console


def sample_command(
    name: Annotated[
        str,
        typer.Argument(
            help="Name of the table: reviews, names, questions, pairs, directions, notes, pictures, simple-pictures, "
            "picture-questions, scenes, simple-scenes."
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write. Default: standard output.")
    ] = None,
    language: Annotated[
        str, typer.Option("--language", help="Language of the texts: en, or ko (reviews, names, questions, pairs).")
    ] = "en",
    rows: Annotated[
        int | None, typer.Option("--rows", min=1, help="Number of rows. Default: 120 to 600, by table.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the rows.")] = 0,
    overwrite: Annotated[bool, option("overwrite")] = False,
) -> None:
    """Write a small table of generated examples.

    A template grammar generates the texts, so they are the same on every machine. `reviews`: short reviews with the
    labels positive and negative (CSV). `names`: sentences whose names are tagged (CoNLL; Korean: JSON lines).
    `questions`: questions about a context (JSON lines). `pairs`: pairs of sentences with a score of similarity
    (CSV). `notes`: notes of a veterinary clinic with the labels urgent and routine (CSV). `directions`: questions
    with two passages that a preposition tells apart (JSON lines). `pictures`: drawings of two shapes, each with a
    sentence about it (JSON lines). `simple-pictures`: such drawings, each with a sentence about one shape (JSON
    lines). `picture-questions`: such drawings, each with a question and its answer (JSON lines). `scenes`:
    statements about three boxes of items, true or false (JSON lines). `simple-scenes`: the same with simple
    statements.

    \b
    Examples:
      bertie sample reviews -o reviews.csv
      bertie sample reviews --language ko -o reviews-ko.csv
      bertie sample names -o train.conll
      bertie sample names --rows 100 --seed 1 -o test.conll
    """

    kind = app.SAMPLE_TABLES[name]
    suffix = kind.suffix_of(language)
    if output is not None:
        if output.suffix not in ("", suffix):
            raise UsageError(f"{output} does not end in {suffix}. Pass -o {name}{suffix}")
        platform.File(output).check_new(overwrite=overwrite)
    table = app.table(name, language, rows, seed)
    if console.verbosity.json:
        for row in table:
            console.emit(row)
    if output is not None:
        with platform.File(output).write() as file:
            file.write(app.table_text(table, suffix).encode())
        console.say(f"{output}: {len(table)} {kind.title}")
    elif not console.verbosity.json:
        print(app.table_text(table, suffix), end="")
