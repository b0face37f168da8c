"""`bertie evaluate`: the metrics of a model on labeled examples."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from bertie import console
from bertie.cli import tables
from bertie.cli.app import emit
from bertie.cli.groups import PredictorOptions, TableOptions
from bertie.cli.options import grouped
from bertie.errors import UsageError

TABLE = 50  # rows of the table of labels
RENAMED = 10  # labels that a message names


@grouped
def evaluate(
    model: Annotated[
        Path,
        typer.Argument(help="Name or folder of a fine-tuned model, run or checkpoint.", callback=tables.resolved),
    ],
    file: Annotated[str, typer.Argument(help="Labeled examples: csv, tsv, jsonl or parquet; - is stdin.")] = "",
    data: tables.DataSet = "",
    data_dir: tables.DataDir = None,
    split: Annotated[str, typer.Option("--split", help="Split of --data.")] = "dev",
    *,
    table: TableOptions,
    weight: tables.WeightColumn = "",
    positive: Annotated[
        str, typer.Option("--positive", help="Label of a classification whose F1 is the main metric.")
    ] = "",
    reading: PredictorOptions,
    against: Annotated[
        Path | None,
        typer.Option("--against", help="Folder of a second model: test whether the difference is significant."),
    ] = None,
    ensemble: tables.EnsembleModels = None,
    perturb: Annotated[
        list[str] | None,
        typer.Option(
            "--perturb",
            metavar="NAME",
            help="Also measure changed texts: typos, spacing, lowercase, uppercase, punctuation, contrast. Repeatable.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="JSON file of the metrics: FILE.json.", callback=tables.ending(".json")),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            help="HTML page: confusion matrix, subgroups, worst predictions.",
            callback=tables.ending(".html"),
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the files of --output and --report.")] = False,
) -> None:
    """Evaluate a model on labeled examples.

    Prints the metrics of the task, each with its 95% bootstrap interval. The file is streamed, so it may be larger than
    memory. Labels that the model does not know count as errors.

    \b
    Examples:
      bertie evaluate runs/sst2/model dev.tsv
      bertie evaluate runs/nsmc/model --data nsmc --data-dir nsmc/ --split test --json
      bertie evaluate sentiment-ko reviews.csv --label-names 0=negative,1=positive
      bertie evaluate runs/a/model dev.tsv --against runs/b/model
      bertie evaluate runs/sst2/model test.tsv --report test.html
      bertie evaluate runs/sst2/model test.tsv --perturb typos --perturb contrast
    """
    from dataclasses import replace

    from bertie.evaluation import compare
    from bertie.files import atomic_writes, check_new_file, json_bytes
    from bertie.infer.findings import Findings
    from bertie.metrics.base import baseline_notes, called, summary, undefined
    from bertie.metrics.confusion import leading
    from bertie.metrics.intervals import with_intervals
    from bertie.report import sections
    from bertie.runs.published import published, scored_as_published
    from bertie.tasks.sequence import with_positive

    if (against or perturb) and file == "-":
        option = "--against" if against else "--perturb"
        raise UsageError(f"With {option}, the examples cannot come from standard input. Pass a file.")
    if bool(file) == bool(data):
        raise UsageError("Pass either a FILE, or --data NAME with --data-dir DIR.")
    if data and data_dir is None:
        raise UsageError(f"--data {data} needs --data-dir: the folder with its files.")
    for wanted in filter(None, (output, report)):
        check_new_file(wanted, overwrite=overwrite)
    path: Path | str = file
    format = replace(table.format(), weight=weight)
    if data:
        path, format = published(data, split, data_dir, format)
    predictor = reading.predictor(model, ensemble or ())
    task = predictor.task
    metrics = task.metrics
    if data:
        task, metrics = scored_as_published(task, data)
    if positive:
        task = with_positive(task, positive)
        metrics = task.metrics
    predictor = predictor.replace(task_or_none=task)
    if against:  # what is wrong with the second is said before the first is measured
        other = reading.predictor(against)
        compare.check_comparable(predictor, other)
    if perturb:
        from bertie.evaluation import perturb as perturbing

        perturbing.chosen(predictor.task, perturb)  # say what is wrong with the names before the work
    findings = Findings(predictor.task, metrics[0]) if report else None
    found = predictor.score(
        path, format, on_columns=lambda read: tables.check_texts(predictor, read, str(path)), findings=findings
    )
    if against:
        differences, notes = compare.against(predictor, other, path, format)
        differences = {name: one for name, one in differences.items() if name not in found.get("undefined", ())}
        found["against"] = {name: difference.as_json() for name, difference in differences.items()}
        found["notes"] += notes
    if perturb:
        found["perturbed"] = perturbing.measure(predictor, path, format, perturb, without=found.get("undefined", ()))
    written = {output: json_bytes(found)} if output else {}
    if report and findings:
        what = "standard input" if file == "-" else Path(path).name
        notes = [*found["notes"], *undefined(found), *baseline_notes(found)]
        page = sections.page(
            f"Evaluation: {what}",
            f"{model} on {path}",
            with_intervals(found),
            findings.as_json(),
            leading(metrics, found),
            notes=notes,
            source=what,
        )
        written[report] = page.footer(docs="docs/reports.md").encode()
    with atomic_writes(written) as files:
        for out, content in zip(files, written.values(), strict=True):
            out.write(content)
    if report:
        console.say(f"Report: {report}")
    if console.verbosity.json:
        emit(found)
        return
    for note in found["notes"]:
        console.warn(note)
    metrics = leading(metrics, found)
    console.show(summary(found, metrics))
    show_details(found, metrics)
    for name in metrics if against else ():
        if name in differences:
            console.show(f"{called(name, found)} minus that of {against}: {differences[name]}")
    for line in perturbing.lines(found["perturbed"], metrics, found) if perturb else ():
        console.show(line)


def show_details(report: dict[str, Any], metrics: Sequence[str] = ()) -> None:
    """Prints a table of the metrics per label, where there are labels, and warnings about unusual results."""
    from rich.table import Table

    from bertie.metrics.base import called, undefined, verdict
    from bertie.metrics.tags import split_tag
    from bertie.report.sections import unknown_labels

    unknown = report.get("undefined", {})
    for name, figures in report.get("parts", {}).items():
        of_parts = {key: called(f"{name}/{key}", report).removeprefix(f"{name}/") for key in figures}
        told = [f"{of_parts[key]} {value:z.3f}" for key, value in figures.items() if f"{name}/{key}" not in unknown]
        console.show(f"{name}: {', '.join(told) or 'nothing is defined'}")
    known = [name for name in report if name in metrics or not metrics]
    known = [name for name in known if name not in unknown]
    for baseline in report.get("baselines", ()):
        if told := [
            f"{called(name, report)} {value:z.3f}" for name, value in baseline["figures"].items() if name in known
        ]:
            console.show(f"{baseline['name']}: {', '.join(told)}")
    per_label = report.get("per_label", {})
    if occur := {label: row for label, row in per_label.items() if row["examples"]}:
        table = Table("label", box=None)
        for name in ("precision", "recall", "f1", "examples"):
            table.add_column(name, justify="right")
        most = set(sorted(occur, key=lambda label: -occur[label]["examples"])[:TABLE])
        for label, row in ((label, row) for label, row in occur.items() if label in most):
            table.add_row(
                label, *(f"{row[name]:z.3f}" for name in ("precision", "recall", "f1")), f"{row['examples']:,}"
            )
        console.show(table)
        if len(occur) > TABLE:
            console.show(f"labels with fewer examples: {len(occur) - TABLE:,} (--json has all)")
        if len(occur) < len(per_label):
            console.show(f"labels without an example: {len(per_label) - len(occur):,}")
    if "ece" in report:
        console.show(f"ECE {report['ece']:z.3f}")
    if report.get("unknown_labels"):
        console.warn(unknown_labels(report)[0])
        if occur and occur.keys() <= {name for tag in report["unknown_labels"] for name in (tag, split_tag(tag)[1])}:
            renamed = ",".join(f"{label}=NAME" for label in islice(occur, RENAMED)) + ",..." * (len(occur) > RENAMED)
            console.warn(
                f"no label is one of the model's, which `bertie info` prints. To rename those of the file: "
                f"--label-names {renamed}"
            )
    for line in undefined(report):
        console.warn(line)
    sentence, beats = verdict(report, metrics[0] if metrics else "")
    if sentence:
        (console.show if beats else console.warn)(sentence)
    if report.get("all_given"):
        console.warn(f"the model predicts {report['all_given']!r} for every example")
