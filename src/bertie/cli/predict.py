"""`bertie predict`: answers for texts, streaming, in the order they came."""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
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
    file: tables.TextFile = "-",
    output: Annotated[Path | None, typer.Option("--output", "-o", help=".jsonl, .csv, .tsv; .json: by id.")] = None,
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
    standard input each line is answered as it comes; for a model of pairs a line is FIRST<TAB>SECOND. A .json file is
    one object of answers by id, as the official scripts of SQuAD, KorQuAD and KLUE read them.

    [bold]Examples[/]

      echo "a quiet, lovely film" | bertie predict runs/sst2/model

      bertie predict runs/sst2/model reviews.csv --text review -o labels.csv

      bertie predict runs/rte/model pairs.jsonl --text premise --text hypothesis

      bertie predict runs/squad/model dev-v2.0.json -o predictions.json
    """
    from bertie.data.tables import Bad, Example, Skipped
    from bertie.files import atomic_write, check_new_file
    from bertie.infer.predict import TooLongCount

    predictor = tables.predictor(model, max_length, too_long, precision, device)
    kind = output.suffix.lower() if output else ".jsonl"
    if kind not in WRITERS:
        raise UsageError(f"{output}: predictions are written as {', '.join(WRITERS)}.")
    parts = predictor.task.by_id() if kind == ".json" else {"": ""}
    files = {output.with_stem(output.stem + end): key for end, key in parts.items()} if output else {}
    for path in files:
        check_new_file(path, overwrite=overwrite)
    format = tables.unlabelled(file, text, columns, encoding, format_)
    if format.kind == "lines" and predictor.texts == 2 and not format.columns:
        format = replace(format, columns=format.text or ("text1", "text2"))
    skipped, long = Skipped(), TooLongCount(predictor.too_long, predictor.max_length)
    rows = predictor.task.rows(file, format, on_columns=lambda found: tables.check_texts(predictor, found, file))

    def write_all(*outs: tuple[IO[str], str]) -> None:
        with ExitStack() as stack, console.progress("predicting", unit="rows") as advance:
            writers = [stack.enter_context(WRITERS[kind](out, predictor.task.csv_columns, key)) for out, key in outs]
            for row, answer in predictor.stream(rows, eager=file == "-", long=long):
                skipped.rows += 1
                named = {"line": row.line, **({"id": row.id} if isinstance(row, Example) and row.id else {})}
                if isinstance(answer, Bad):
                    skipped.add(answer)
                record = {"error": answer.reason} if isinstance(answer, Bad) else answer.as_json()
                for write in writers:
                    write({**named, **record})
                advance(1)

    if output:
        with ExitStack() as stack:
            raws = {path: stack.enter_context(atomic_write(path)) for path in files}
            outs = {
                path: io.TextIOWrapper(raw, encoding="utf-8", newline="", write_through=True)
                for path, raw in raws.items()
            }
            write_all(*((outs[path], key) for path, key in files.items()))
            for out in outs.values():
                out.detach()
        written = " and ".join(map(str, files))
        console.say(f"{skipped.rows - skipped.total:,} of {skipped.rows:,} rows labelled: {written}")
    else:
        write_all((sys.stdout, ""))
    tables.warn_of(skipped, long)


Write = Callable[[dict[str, Any]], None]


@contextmanager
def _jsonl(out: IO[str], columns: tuple[str, ...], key: str) -> Iterator[Write]:
    def write(record: dict[str, Any]) -> None:
        out.write(json.dumps(record, ensure_ascii=False) + "\n")
        out.flush()  # someone may be waiting at the other end of a pipe

    yield write


@contextmanager
def _by_id(out: IO[str], columns: tuple[str, ...], key: str) -> Iterator[Write]:
    """One object: what `key` of a record holds by the record's id, or by its line. A row without an answer has none."""
    before = "{"

    def write(record: dict[str, Any]) -> None:
        nonlocal before
        if "error" not in record:
            name = json.dumps(str(record.get("id", record["line"])), ensure_ascii=False)
            out.write(f"{before}\n{name}: {json.dumps(record[key], ensure_ascii=False)}")
            before = ","

    yield write
    out.write("\n}\n" if before == "," else "{}\n")


def _separated(delimiter: str) -> "Writer":
    @contextmanager
    def start(out: IO[str], columns: tuple[str, ...], key: str) -> Iterator[Write]:
        writer = csv.DictWriter(
            out, ("line", *columns, "error"), delimiter=delimiter, extrasaction="ignore", lineterminator="\n"
        )
        writer.writeheader()
        yield lambda record: writer.writerow({name: _cell(value) for name, value in record.items()})

    return start


def _cell(value: Any) -> Any:
    """Lists and objects as JSON: a cell holds one text."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, tuple, dict)) else value


Writer = Callable[[IO[str], tuple[str, ...], str], AbstractContextManager[Write]]
WRITERS: dict[str, Writer] = {".jsonl": _jsonl, ".csv": _separated(","), ".tsv": _separated("\t"), ".json": _by_id}
"""How a file's name ends -> what writes records into it. key: which of their keys a file of answers by id holds."""
