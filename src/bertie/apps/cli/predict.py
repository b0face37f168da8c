"""`bertie predict`: predictions for a stream of texts, in the order of the input."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import bertie
from bertie.apps.cli import tables
from bertie.apps.cli.app import Overwrite
from bertie.apps.cli.groups import PredictorOptions
from bertie.apps.cli.options import grouped
from bertie.platform import console

if TYPE_CHECKING:
    from bertie.platform import Prediction

SURE, UNSURE = 0.8, 0.5  # probabilities from which on one is green, or below which it is red
LABEL_WIDTH = 12
LINE_ENDS = re.compile(r"[\r\n]+")


def for_people() -> bool:
    """Returns whether a person reads standard output."""
    return sys.stdout.isatty() and not console.verbosity.json


def show_prediction(texts: Sequence[str], prediction: "Prediction") -> None:
    """Prints the label, its probability and the text on one line, with entities and answers marked in the text."""
    from rich.text import Text

    if prediction.error:
        console.show(Text.assemble((f"no answer: {prediction.error}", "red"), f"  {' | '.join(texts)}".rstrip()))
        return
    shown = prediction.render(texts)
    line = Text()
    if shown.answer:
        line.append(f"{shown.answer:<{LABEL_WIDTH}} ", "bold")
    if shown.probability is not None:
        color = "green" if shown.probability >= SURE else "red" if shown.probability < UNSURE else "yellow"
        line.append(f"{shown.probability:z5.3f}  ", color)
    for number, text in enumerate(shown.short_texts):
        line.append(" | " if number else "", "dim")
        for part in text:
            line.append(LINE_ENDS.sub(" ", part.text), "bold reverse" if part.kind else "")
            if part.note:
                line.append(f" [{part.note}]", "bold cyan")
    line.append(f"  ({shown.note})" if shown.note else "", "dim")
    console.show(line)


@grouped
def predict_command(
    model: Annotated[Path, typer.Argument(help="Name or folder of a fine-tuned model, run or checkpoint.")],
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
    encoding: tables.EncodingOption = "utf-8",
    format_: tables.FormatOption = "",
    *,
    reading: PredictorOptions,
    candidates: Annotated[
        str | None,
        typer.Option(
            "--candidates", help="Comma-separated labels for zero-shot classification.", rich_help_panel="Model"
        ),
    ] = None,
    hypothesis: Annotated[
        str | None,
        typer.Option(
            "--hypothesis", help="Hypothesis for a candidate: 'This text is about {}.'", rich_help_panel="Model"
        ),
    ] = None,
    multi: Annotated[
        bool,
        typer.Option(
            "--multi", help="Judge each candidate separately, so that several can apply.", rich_help_panel="Model"
        ),
    ] = False,
    ensemble: tables.EnsembleModels = None,
    log: tables.TrafficLog = None,
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
      bertie predict runs/sst2/model reviews.csv -o labels.csv --log traffic.json
      bertie predict runs/a/model reviews.csv --ensemble runs/b/model --ensemble runs/c/model -o labels.csv
      bertie predict runs/rte/model pairs.jsonl --text premise --text hypothesis
      bertie predict runs/squad/model dev-v2.0.json -o predictions.json
      bertie predict models/xnli mails.csv --candidates refund,delivery,praise -o labels.csv
      bertie predict models/base reviews.csv --pattern "It was [MASK]." --words good=great,bad=terrible
      bertie predict models/gpt reviews.csv --pattern "It was [MASK]" --words a=good,b=bad --demonstrations few.csv
    """
    records = only_answers or excel or output_encoding != "utf-8"
    stdout = show_prediction if for_people() and not records else sys.stdout.buffer
    written = bertie.predict(
        model,
        file,
        output=output or stdout,
        only_answers=only_answers,
        excel=excel,
        output_encoding=output_encoding,
        text=text or (),
        columns=tables.comma_names(columns),
        encoding=encoding,
        format=format_,
        candidates=None if candidates is None else tables.comma_names(candidates),
        hypothesis=hypothesis,
        multi=multi,
        ensemble=ensemble or (),
        log=log,
        overwrite=overwrite,
        **reading.arguments(),
    )
    if output:
        files = " and ".join(map(str, written.files))
        console.say(f"{written.answers:,} of {written.rows:,} rows labeled: {files}")
