"""`bertie sample`: small generated tables of examples to try the commands with."""

import csv
import io
from pathlib import Path
from typing import Annotated

import typer

from bertie import console
from bertie.cli.app import Json, Overwrite, Quiet, Verbose, app, emit
from bertie.errors import UsageError, nearest


@app.command()
def sample(
    name: Annotated[str, typer.Argument(help="Name of the table: reviews.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="CSV file to write. Default: standard output.")
    ] = None,
    language: Annotated[str, typer.Option("--language", help="Language of the texts: en or ko.")] = "en",
    overwrite: Overwrite = False,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Write a small table of generated examples.

    `reviews` has 120 short reviews with the labels positive and negative. A template grammar generates them, so they
    are the same on every machine.

    [bold]Examples[/]

      bertie sample reviews -o reviews.csv

      bertie sample reviews --language ko -o reviews-ko.csv
    """
    from bertie.data import sample as tables
    from bertie.files import check_new_file, write_bytes

    if name != "reviews":
        raise UsageError(f"Unknown table {name!r}. {nearest(name, ['reviews'])}")
    if output is not None:
        if output.suffix not in ("", ".csv"):
            raise UsageError(f"{output} does not end in .csv. The table is written as CSV: pass -o reviews.csv")
        check_new_file(output, overwrite=overwrite)
    rows = tables.reviews(language)
    if console.verbosity.json:
        for text, label in rows:
            emit({"text": text, "label": label})
    if output is None:
        if not console.verbosity.json:
            print(_table(rows), end="")
        return
    write_bytes(output, _table(rows).encode())
    console.say(f"{output}: {len(rows)} reviews, columns text and label")


def _table(rows: list[tuple[str, str]]) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([("text", "label"), *rows])
    return written.getvalue()
