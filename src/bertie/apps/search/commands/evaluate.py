"""`bertie evaluate-search`: the metrics of each stage of a search."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bertie import platform
from bertie.apps import search as app
from bertie.apps.cli.options import grouped
from bertie.apps.cli.shared import option
from bertie.apps.search.commands.search import IndexFolder, StageOptions
from bertie.platform import console, quantity


@grouped
def evaluate_search_command(
    index: IndexFolder,
    questions: Annotated[
        Path, typer.Argument(help="Questions with their documents: .json as SQuAD, or .jsonl.", show_default=False)
    ],
    qrels: Annotated[Path | None, typer.Option("--qrels", help="Table: question, document, grade.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Number of questions, drawn at random.")] = None,
    *,
    stages: StageOptions,
    output: Annotated[
        Path | None,
        option("output", ".json", help="JSON file of the metrics: FILE.json."),
    ] = None,
    overwrite: Annotated[bool, option("overwrite")] = False,
) -> None:
    """Evaluate a search on questions whose documents are known, stage by stage.

    Prints MRR, nDCG and recall of words, vectors, both and re-ranking, each against the first. Questions that have
    answers also measure --answer.

    \b
    Examples:
      bertie evaluate-search index dev-v1.1.json
      bertie evaluate-search index queries.jsonl --qrels qrels/test.tsv --rerank runs/rank/model --limit 300
    """

    if output:
        platform.File(output).check_new(overwrite=overwrite)
    labeled = app.questions.read_questions(questions, qrels)
    report = app.evaluate.evaluate_stages(stages.searcher(index), labeled, sample=limit)
    if output:
        platform.File(output).write_json(report)
    if console.verbosity.json:
        console.emit(report)
        return
    if report["without_document"]:
        console.warn(f"{report['without_document']:,} questions have no document in the index, and are left out.")
    if stages.answer and "answers" not in report:
        console.warn("No question has answers, so those of --answer are not measured.")
    _show_stages(report)


def _show_stages(report: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table("stage", title=quantity(report["questions"], "question"), box=None)
    first = next(iter(report["stages"]))
    for name in (*app.retrieval.RETRIEVAL_METRICS, f"mrr@10 above {first}", "ms", "p99 ms"):
        table.add_column(name, justify="right")
    for stage, row in report["stages"].items():
        times = report["seconds"].get({"reranked": "rerank"}.get(stage, stage))
        more = row.get(f"against_{first}", {}).get("mrr@10")
        table.add_row(
            stage,
            *(f"{row[name]:z.3f}" for name in app.retrieval.RETRIEVAL_METRICS),
            f"{more['difference']:+z.3f} ({more['low']:+z.3f} to {more['high']:+z.3f})" if more else "",
            *(f"{times[name] * 1000:.1f}" if times else "" for name in ("median", "p99")),
        )
    console.show(table)
    if row := report.get("answers"):
        scores = ", ".join(f"{name} {row[name]:z.3f}" for name in ("exact_match", "f1", "answered"))
        some = row["questions"] < report["questions"]
        have = "has" if row["questions"] == 1 else "have"
        console.show(scores + f" on {quantity(row['questions'], 'question')} that {have} answers" * some)
