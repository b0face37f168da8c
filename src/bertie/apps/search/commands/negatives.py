"""`bertie negatives`: training data for a re-ranker or for vectors, mined from an index."""

import json
from pathlib import Path
from typing import Annotated

import typer

from bertie import platform
from bertie.apps import search as app
from bertie.apps.cli.options import grouped
from bertie.apps.cli.shared import option
from bertie.apps.search.commands.search import IndexFolder, StageOptions
from bertie.platform import UsageError, console


@grouped
def negatives_command(
    index: IndexFolder,
    questions: Annotated[
        Path, typer.Option("--questions", help="Questions with their documents (.json as SQuAD, or .jsonl).")
    ],
    output: Annotated[Path, option("output", ".jsonl", help="JSON lines to write: FILE.jsonl.")],
    qrels: Annotated[Path | None, typer.Option("--qrels", help="Table: question, document, grade.")] = None,
    form: Annotated[
        str, typer.Option("--form", help="lists for --task choice, pairs for rank, triples for embed.")
    ] = "lists",
    count: Annotated[int, typer.Option("--count", min=1, help="Negatives for each question.")] = 3,
    *,
    stages: StageOptions,
    seed: Annotated[int, typer.Option(help="Seed of the draw among the passages that are ranked highest.")] = 0,
    overwrite: Annotated[bool, option("overwrite")] = False,
) -> None:
    """Mine hard negatives: passages that a search ranks high and that do not answer.

    The rows train a model for --rerank, or vectors. Passages that contain a known answer are left out.

    \b
    Examples:
      bertie negatives index --questions train.json -o lists.jsonl
      bertie finetune MODEL --task choice --train lists.jsonl -o runs/rank max_length=256
      bertie negatives index --questions train.json --form triples -o triples.jsonl
    """
    from typing import cast, get_args

    if form not in get_args(app.negatives.NegativesForm):
        raise UsageError(
            f"Unknown value {form!r} of --form. {platform.nearest(form, get_args(app.negatives.NegativesForm))}"
        )
    if stages.answer is not None:
        raise UsageError("--answer changes no ranking, and so no negatives. Omit it.")
    platform.File(output).check_new(overwrite=overwrite, inputs=[questions])
    questions_read, left = app.questions.read_questions(questions, qrels), app.negatives.Left()
    kind = cast("app.negatives.NegativesForm", form)
    mined = app.negatives.mine_negatives(
        stages.searcher(index), questions_read, count=count, form=kind, seed=seed, left=left
    )
    rows = platform.File(output).write_lines(
        (json.dumps(row, ensure_ascii=False) + "\n" for row in console.track(mined, "negatives")), empty=left.why_none
    )
    facts = {"file": str(output), "rows": rows, "questions": len(questions_read), **vars(left)}
    if console.verbosity.json:
        console.emit(facts)
    else:
        console.show(f"{output}: {rows:,} rows of {len(questions_read):,} questions")
        if skipped := left.without_document + left.without_negatives:
            console.warn(
                f"{skipped:,} questions left out: {left.without_document:,} whose document is not in the index, "
                f"{left.without_negatives:,} with too few negatives"
            )
