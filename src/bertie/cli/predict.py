"""`bertie predict`: predictions for a stream of texts, in the order of the input."""

import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from bertie import console
from bertie.cli import tables
from bertie.cli.app import Overwrite
from bertie.cli.groups import PredictorOptions
from bertie.cli.options import grouped
from bertie.errors import UsageError

if TYPE_CHECKING:
    from bertie.infer.records import Form


@grouped
def predict(
    model: Annotated[
        Path, typer.Argument(help="Name or folder of a fine-tuned model, run or checkpoint.", callback=tables.resolved)
    ],
    file: tables.TextFile = "-",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="File to write: .jsonl, .csv, .tsv, .xlsx or "
            ".parquet; .json is an object of answers by id. "
            "Default: stdout.",
        ),
    ] = None,
    only_answers: tables.OnlyAnswers = False,
    excel: tables.Excel = False,
    output_encoding: tables.OutputEncoding = "utf-8",
    text: tables.TextColumns = None,
    columns: tables.ColumnNames = "",
    encoding: tables.Encoding = "utf-8",
    format_: tables.Format = "",
    *,
    reading: PredictorOptions,
    candidates: Annotated[
        str | None, typer.Option("--candidates", help="Comma-separated labels for zero-shot classification.")
    ] = None,
    hypothesis: Annotated[
        str | None, typer.Option("--hypothesis", help="Hypothesis for a candidate: 'This text is about {}.'")
    ] = None,
    multi: Annotated[
        bool, typer.Option("--multi", help="Judge each candidate separately, so that several can apply.")
    ] = False,
    ensemble: tables.EnsembleModels = None,
    overwrite: Overwrite = False,
) -> None:
    """Predict labels for texts from a file or standard input.

    Writes one record per row, in order. Each record has all columns of its row, the row number, the line number, and
    the prediction. A row without a prediction gets an "error" instead and is counted. Lines of standard input are
    processed one by one; for a model of pairs, a line is FIRST<TAB>SECOND. A .json file is one object of answers by id,
    as the official scripts of SQuAD, KorQuAD and KLUE read it.

    \b
    Examples:
      echo "a quiet, lovely film" | bertie predict runs/sst2/model
      bertie predict runs/sst2/model reviews.csv --text review -o labels.csv
      bertie predict runs/sst2/model reviews.xlsx -o labels.xlsx
      bertie predict runs/nsmc/model export.csv --encoding cp949 -o labels.csv --excel
      bertie predict runs/a/model reviews.csv --ensemble runs/b/model --ensemble runs/c/model -o labels.csv
      bertie predict runs/rte/model pairs.jsonl --text premise --text hypothesis
      bertie predict runs/squad/model dev-v2.0.json -o predictions.json
      bertie predict models/xnli mails.csv --candidates refund,delivery,praise -o labels.csv
      bertie predict models/base reviews.csv --pattern "It was [MASK]." --words good=great,bad=terrible
    """
    from bertie.data.tables import Columns, InvalidRow, SkipReport
    from bertie.files import atomic_writes, check_new_file
    from bertie.infer.candidates import choose_from
    from bertie.infer.pipeline import TextCount
    from bertie.infer.records import WRITERS
    from bertie.runs.opening import open_engine
    from bertie.tasks.capabilities import Embeds

    kind = tables.kind_of_output(output, WRITERS)
    form = tables.form(kind, only_answers, excel, output_encoding)
    if candidates is None and (hypothesis is not None or multi):
        raise UsageError("--hypothesis and --multi need --candidates.")
    if candidates is not None:
        if reading.too_long:
            raise UsageError("--too-long has no effect with --candidates, which truncates long texts. Omit --too-long.")
        for name, given in (("ensemble", ensemble), ("pattern", reading.pattern), ("head", reading.head)):
            if given:
                raise UsageError(f"--{name} does not work with --candidates. Omit one of them.")
        runner, tokenizer = open_engine(
            model, precision=reading.precision, device=reading.device, engine=reading.engine
        )
        labels = tables.names(candidates)
        predictor = choose_from(
            runner, labels, tokenizer, hypothesis=hypothesis, multi=multi, max_length=reading.max_length
        )
    else:
        predictor = reading.predictor(model, ensemble or ())
    parts = predictor.task.by_id() if kind == ".json" else {"": ""}
    files = {output.with_stem(output.stem + end): key for end, key in parts.items()} if output else {}
    for path in files:
        check_new_file(path, overwrite=overwrite, inputs=[file])
    format = tables.unlabelled(file, text, columns, encoding, format_, keep=not only_answers)
    if format.kind == "lines" and predictor.pipeline.texts == 2 and not format.columns:
        format = replace(format, columns=format.text or ("text1", "text2"))
    skipped, long = SkipReport(), TextCount(predictor.too_long, predictor.max_length)
    forms = {
        path: replace(form, columns=predictor.task.table_columns, key=key, notes=[]) for path, key in files.items()
    }

    def head(names: tuple[str, ...]) -> None:
        for one in (form, *forms.values()):
            one.starts_with(names)

    format = replace(predictor.pipeline.reading(format), on_header=head)

    def check(found: Columns) -> None:
        tables.check_texts(predictor, found, file)
        if isinstance(predictor.task, Embeds) and not predictor.task.labels and len(found.text) == 1:
            console.say(
                "This model has no labels: the label of a text is its vector. `bertie embed` writes vectors; "
                "--candidates classifies."
            )

    rows = predictor.task.rows(file, format, on_columns=check)

    def write_all(*outs: tuple[IO[bytes], "Form"]) -> None:
        with ExitStack() as stack, console.progress("predicting", unit="rows") as advance:
            writers = [stack.enter_context(WRITERS[kind](out, form)) for out, form in outs]
            for row, answer in predictor.stream(rows, eager=file == "-", count=long):
                skipped.rows += 1
                if isinstance(answer, InvalidRow):
                    skipped.add(answer)
                record = {"error": answer.reason} if isinstance(answer, InvalidRow) else answer.as_json()
                for write in writers:
                    write(row.source, tables.numbers(row, skipped.rows, only_answers), record)
                advance(1)

    if files:
        with atomic_writes(files) as outs:
            write_all(*zip(outs, (forms[path] for path in files), strict=True))
        written = " and ".join(map(str, files))
        console.say(f"{skipped.rows - skipped.total:,} of {skipped.rows:,} rows labeled: {written}")
    else:
        write_all((sys.stdout.buffer, form))
    if not skipped.rows:
        console.warn(f"{'Standard input' if file == '-' else file} has no rows, so there are no predictions.")
    for note in dict.fromkeys(note for one in (form, *forms.values()) for note in one.notes):
        console.warn(note)
    tables.warn_of(skipped, long)
