"""`bertie predict`: answers for texts, streaming, in the order they came."""

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from bertie import console
from bertie.cli import tables
from bertie.cli.app import Json, Overwrite, Quiet, Verbose, app
from bertie.errors import UsageError


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a fine-tuned model: RUN/model.")],
    file: Annotated[str, typer.Argument(help="Texts: csv, tsv, jsonl, parquet, txt (one a line); - is stdin.")] = "-",
    output: Annotated[Path | None, typer.Option("--output", "-o", help=".jsonl, .csv or .tsv; else stdout.")] = None,
    text: tables.TextColumns = None,
    columns: tables.ColumnNames = "",
    encoding: tables.Encoding = "utf-8",
    format_: tables.Format = "",
    max_length: tables.MaxLength = None,
    too_long: tables.TooLong = None,
    precision: tables.Precision = "fp32",
    device: tables.Device = "auto",
    overwrite: Overwrite = False,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Answer texts from a file or standard input, one record per row, in order.

    A row that cannot be answered gets a record with an "error" in its place and is counted; the rest goes on. From
    standard input each line is answered as it comes; for a model of pairs a line is FIRST<TAB>SECOND.

    [bold]Examples[/]

      echo "a quiet, lovely film" | bertie predict runs/sst2/model

      bertie predict runs/sst2/model reviews.csv --text review -o labels.csv

      bertie predict runs/rte/model pairs.jsonl --text premise --text hypothesis
    """
    from bertie.data.rows import kind_of
    from bertie.data.tables import Bad, Skipped, TableFormat
    from bertie.evaluate.predict import TooLongCount
    from bertie.files import atomic_write, check_new_file

    predictor = tables.predictor(model, max_length, too_long, precision, device)
    kind = output.suffix.lower() if output else ".jsonl"
    if kind not in WRITERS:
        raise UsageError(f"{output}: predictions are written as {', '.join(WRITERS)}.")
    if output:
        check_new_file(output, overwrite=overwrite)
    names = tuple(text or ())
    format_ = format_ or kind_of(file)
    if format_ == "lines" and predictor.texts == 2 and not columns:
        columns = ",".join(names or ("text1", "text2"))
    format = TableFormat(names, "", tables.names(columns), encoding, format_, labelled=False)
    skipped, long = Skipped(), TooLongCount(predictor.too_long, predictor.max_length)
    rows = predictor.task.rows(file, format, on_columns=lambda found: tables.check_texts(predictor, found, file))

    def write_all(out: IO[str]) -> None:
        write = WRITERS[kind](out, predictor.task.csv_columns)
        with console.progress("predicting", unit="rows") as advance:
            for row, answer in predictor.stream(rows, eager=file == "-", long=long):
                skipped.rows += 1
                if isinstance(answer, Bad):
                    skipped.add(answer)
                    write({"line": row.line, "error": answer.reason})
                else:
                    write({"line": row.line, **answer.as_json()})
                advance(1)

    if output:
        with atomic_write(output) as raw:
            out = io.TextIOWrapper(raw, encoding="utf-8", newline="", write_through=True)
            write_all(out)
            out.detach()
        console.say(f"{skipped.rows - skipped.total:,} of {skipped.rows:,} rows labelled: {output}")
    else:
        write_all(sys.stdout)
    for note, count in ((skipped, skipped.total), (long, long.long)):
        if count:
            console.warn(str(note))


def _jsonl(out: IO[str], columns: tuple[str, ...]) -> Callable[[dict[str, Any]], None]:
    def write(record: dict[str, Any]) -> None:
        out.write(json.dumps(record, ensure_ascii=False) + "\n")
        out.flush()  # someone may be waiting at the other end of a pipe

    return write


def _separated(delimiter: str) -> Callable[[IO[str], tuple[str, ...]], Callable[[dict[str, Any]], None]]:
    def start(out: IO[str], columns: tuple[str, ...]) -> Callable[[dict[str, Any]], None]:
        writer = csv.DictWriter(
            out, ("line", *columns, "error"), delimiter=delimiter, extrasaction="ignore", lineterminator="\n"
        )
        writer.writeheader()
        return lambda record: writer.writerow({name: _cell(value) for name, value in record.items()})

    return start


def _cell(value: Any) -> Any:
    """Lists and objects as JSON: a cell holds one text."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, tuple, dict)) else value


WRITERS = {".jsonl": _jsonl, ".csv": _separated(","), ".tsv": _separated("\t")}
