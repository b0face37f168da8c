"""`bertie index`, `bertie search` and `bertie negatives`: search in one's own documents."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertie import console
from bertie.cli import tables
from bertie.cli.app import Overwrite, app, emit
from bertie.cli.options import grouped
from bertie.errors import DataError, UsageError

if TYPE_CHECKING:
    from rich.text import Text

    from bertie.cli.groups import PredictorOptions
    from bertie.search.index import Changes
    from bertie.search.models import Embedder
    from bertie.search.searcher import Found, Hit, Searcher

IndexFolder = Annotated[Path, typer.Argument(help="Folder of an index, made by `bertie index`.")]
EmbedModel = Annotated[
    Path | None,
    typer.Option("--embed", help="Model of sentence embeddings, for search by meaning.", callback=tables.resolved),
]
RerankModel = Annotated[
    Path | None,
    typer.Option("--rerank", help="Model that re-ranks passages (task rank or choice).", callback=tables.resolved),
]
AnswerModel = Annotated[
    Path | None,
    typer.Option("--answer", help="Model that finds the answer (task span).", callback=tables.resolved),
]


@dataclass(frozen=True)
class StageOptions:
    """The stages of a search."""

    embed: EmbedModel = None
    rerank: RerankModel = None
    answer: AnswerModel = None
    no_embed: Annotated[bool, typer.Option("--no-embed", help="Search only by words.")] = False
    no_words: Annotated[bool, typer.Option("--no-words", help="Search only by vectors.")] = False
    fusion: Annotated[
        str, typer.Option(help="How words and vectors are joined: scores (the mean of both) or ranks (reciprocal).")
    ] = "scores"
    first: Annotated[int, typer.Option(min=1, help="Number of passages from words, and from vectors.")] = 100
    rerank_top: Annotated[int, typer.Option(min=1, help="Number of passages to re-rank.")] = 50
    read_top: Annotated[int, typer.Option(min=1, help="Number of passages in which to find an answer.")] = 3
    precision: tables.Precision = "fp32"
    engine: tables.Engine = "auto"
    device: tables.Device = "auto"

    def searcher(self, index: Path) -> "Searcher":
        """Returns the open index with its models. Its own model of vectors is used unless --no-embed is given."""
        from bertie.search.searcher import Depth, Searcher
        from bertie.search.store import Store

        store = Store(index)
        stored = store.get("embedder")
        if self.embed is not None and not stored:
            raise UsageError(f"{index} has no vectors. Make them: bertie index -o {index} --embed {self.embed}")
        embedder = None
        if stored and not self.no_embed:
            from bertie.search.index import checked

            folder = self.embed or Path(stored["folder"])
            if not folder.is_dir():
                raise DataError(
                    f"The model of the vectors of {index} was at {folder}. Pass where it is now (--embed MODEL), or "
                    "--no-embed."
                )
            chosen = checked(store, self._embedder(folder))
            embedder = chosen.load() if chosen else None
        store.close()
        return Searcher(
            index,
            embedder=embedder,
            ranker=self._opened(self.rerank) if self.rerank else None,
            reader=self._opened(self.answer) if self.answer else None,
            depth=Depth(self.first, self.rerank_top, self.read_top),
            words=not self.no_words,
            fusion=self.fusion,
        )

    def _embedder(self, folder: Path) -> "Embedder":
        return embedder_of(folder, self.precision, self.device, self.engine)

    def _opened(self, model: Path) -> Any:
        return tables.predictor(model, None, None, self.precision, self.device, self.engine)


def embedder_of(folder: Path, precision: str, device: str, engine: str) -> "Embedder":
    """Returns the model of vectors in a folder, which is loaded when it is needed."""
    from bertie.search.models import Embedder

    return Embedder.of(folder, lambda: tables.embedder(folder, precision, device, engine))


@app.command("index")
@grouped
def make_index(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT",
            help="Files, folders or globs of txt, md, html, pdf, jsonl, json (SQuAD), csv, tsv, parquet, xlsx or "
            "WikiExtractor output; python:PACKAGE,... is the documentation of installed packages.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", "--output", help="Index folder to write.")] = None,
    embed: EmbedModel = None,
    text: Annotated[str, typer.Option("--text", help="Column of the text. Default: recognized by name.")] = "",
    title: Annotated[str, typer.Option("--title", help="Column of the title. Default: title.")] = "",
    encoding: tables.Encoding = "utf-8",
    size: Annotated[int | None, typer.Option(min=16, help="Maximum words per passage. Default: 180.")] = None,
    english: Annotated[str, typer.Option(help="English terms: stems, or words (unchanged).")] = "stems",
    korean: Annotated[
        str,
        typer.Option(help=r"Korean terms: pairs (of syllables), kiwi (also morphemes; needs bertie\[ko]), or words."),
    ] = "pairs",
    remove: Annotated[bool, typer.Option("--remove", help="Remove the documents of these files.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Verify an index without changes.")] = False,
    precision: tables.Precision = "fp32",
    engine: tables.Engine = "auto",
    device: tables.Device = "auto",
    overwrite: Overwrite = False,
) -> None:
    """Index documents for search, or bring an index up to date.

    The same command again adds new files, replaces changed ones and skips the others. A killed command leaves the index
    as it was. Documents that cannot be read are counted, and `--check` lists them.

    [bold]Examples[/]

      bertie index docs/ notes.pdf -o index

      bertie index docs/ -o index --embed MODEL

      bertie index docs/old.md -o index --remove

      bertie index -o index --check
    """
    from bertie.search import index as making
    from bertie.search.index import IndexConfig
    from bertie.search.passages import SIZE
    from bertie.search.readers import Reading

    if out is None:
        raise UsageError("No folder of an index given. Pass -o INDEX.")
    if check:
        _check(out)
        return
    if not inputs:
        raise UsageError("No documents given. Pass files, folders, globs or python:PACKAGE.")
    if remove:
        _tell(making.remove(inputs, out), out)
        return
    asked = IndexConfig(_terms(english, korean), Reading(text, title, encoding), size or SIZE)
    default = IndexConfig()
    config: IndexConfig | None = None if asked == default and (out / "index.sqlite").exists() else asked
    embedder = embedder_of(embed, precision, device, engine) if embed else None
    _tell(making.index(inputs, out, config, embedder=embedder, overwrite=overwrite), out)


def _terms(english: str, korean: str) -> Any:
    from typing import get_args

    from bertie.errors import nearest
    from bertie.search.terms import English, Korean, Terms

    for name, value, choices in (("--english", english, get_args(English)), ("--korean", korean, get_args(Korean))):
        if value not in choices:
            raise UsageError(f"Unknown value {value!r} of {name}. {nearest(value, choices)}")
    return Terms(english, korean)  # type: ignore[arg-type]


def _tell(changes: "Changes", out: Path) -> None:
    if console.verbosity.json:
        emit({"folder": str(out), **changes.as_json()})
        return
    counts = {"added": changes.added, "replaced": changes.replaced, "unchanged": changes.unchanged}
    counts |= {"removed": changes.removed}
    done = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "nothing to do"
    vectors = f", {changes.vectors:,} vectors" if changes.vectors else ""
    console.show(f"{out}: files: {done}; {changes.documents:,} new documents, {changes.passages:,} passages{vectors}.")
    if changes.rejected:
        reasons = "; ".join(f"{reason}: {count:,}" for reason, count in changes.reasons.most_common(5))
        console.warn(f"{changes.rejected:,} records could not be read ({reasons}). bertie index -o {out} --check")
    if changes.passed_over:
        console.warn(f"Skipped {len(changes.passed_over):,} files of unknown format in the folders.")


def _check(folder: Path) -> None:
    from bertie.search.check import check

    found = check(folder)
    if console.verbosity.json:
        emit(found)
    else:
        console.show(
            f"{folder}: {found['documents']:,} documents, {found['passages']:,} passages, {found['vectors']:,} vectors"
        )
        for one in found["rejected"]:
            where = f"{one['source']}:{one['line']}" if one["line"] else one["source"]
            console.show(f"not read: {where}: {one['reason']}")
    if found["damage"]:
        raise DataError(f"{folder} is damaged: {found['damage'][0]} Make the index again with --overwrite.")
    if not console.verbosity.json:
        console.show("No damage found.")


@app.command()
@grouped
def search(
    index: IndexFolder,
    question: Annotated[str, typer.Argument(help="Question or words; - reads one question per line from stdin.")] = "-",
    stages: StageOptions = StageOptions(),
    top: Annotated[int, typer.Option("--top", "-n", min=1, help="Number of passages to print.")] = 5,
) -> None:
    """Search an index: ranked passages, with the answer or the words of the question marked.

    The stages are words, vectors (if the index has them), re-ranking and the answer. -v shows the time of each.

    [bold]Examples[/]

      bertie search index "how do I resume a run?"

      bertie search index "how do I resume a run?" --rerank runs/rank/model --answer runs/squad2/model

      bertie search index --json < questions.txt
    """
    searcher = stages.searcher(index)
    for line in _questions(question):
        found = searcher.search(line, top)
        if console.verbosity.json:
            emit(found.as_json())
        else:
            _show(found)


def _questions(question: str) -> Iterator[str]:
    if question != "-":
        yield question
        return
    yield from filter(None, (line.strip() for line in sys.stdin))


def _show(found: "Found") -> None:
    from rich.text import Text

    if found.read:
        answer = found.answer
        said = Text.assemble(("Answer: ", "bold"), (answer.text, "bold green")) if answer else Text("No answer here.")
        console.show(said)  # type: ignore[arg-type]
    if not found.hits:
        console.show("No passage contains a word of the question.")
    for number, hit in enumerate(found.hits, 1):
        title = f"  {hit.passage.title}" if hit.passage.title else ""
        console.show(Text.assemble(f"{number}. ", (hit.passage.place, "cyan"), title))  # type: ignore[arg-type]
        console.show(_marked(hit))  # type: ignore[arg-type]
    times = ", ".join(f"{name} {value * 1000:.1f} ms" for name, value in found.seconds.items())
    console.say(times, level=1)


def _marked(hit: "Hit") -> "Text":
    from rich.text import Text

    text, part = hit.passage.text, hit.snippet
    found = Text("   " + ("... " if part.start else ""))
    at, style = part.start, "bold green" if hit.answer else "bold"
    for start, stop in part.marks:
        found.append(" ".join(text[at:start].split("\n"))).append(text[start:stop], style)
        at = stop
    return found.append(" ".join(text[at : part.stop].split("\n")) + (" ..." if part.stop < len(text) else ""))


@app.command()
@grouped
def negatives(
    index: IndexFolder,
    questions: Annotated[
        Path, typer.Option("--questions", help="Questions with their documents (.json as SQuAD, or .jsonl).")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="JSON lines to write.")],
    qrels: Annotated[Path | None, typer.Option("--qrels", help="Table: question, document, grade.")] = None,
    form: Annotated[
        str, typer.Option("--form", help="lists, for --task choice; pairs, for --task rank and embed.")
    ] = "lists",
    count: Annotated[int, typer.Option("--count", min=1, help="Negatives for each question.")] = 3,
    stages: StageOptions = StageOptions(),
    seed: Annotated[int, typer.Option(help="Seed of the draw among the passages that are ranked highest.")] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Mine hard negatives: passages that a search ranks high and that do not answer.

    The rows train a model for --rerank, or vectors. Passages that contain a known answer are left out.

    [bold]Examples[/]

      bertie negatives index --questions train.json -o lists.jsonl

      bertie finetune MODEL --task choice --train lists.jsonl -o runs/rank max_length=256

      bertie negatives index --questions train.json --form pairs -o pairs.jsonl
    """
    from typing import cast, get_args

    from bertie.errors import nearest
    from bertie.files import atomic_write, check_new_file
    from bertie.search import negatives as mining
    from bertie.search import questions as asking

    if form not in get_args(mining.Form):
        raise UsageError(f"Unknown value {form!r} of --form. {nearest(form, get_args(mining.Form))}")
    check_new_file(output, overwrite=overwrite)
    asked, left, rows = asking.read(questions, qrels), mining.Left(), 0
    kind = cast("mining.Form", form)
    mined = mining.negatives(stages.searcher(index), asked, count=count, form=kind, seed=seed, left=left)
    with atomic_write(output) as file, console.progress("negatives", unit="rows") as advance:
        for row in mined:
            file.write((json.dumps(row, ensure_ascii=False) + "\n").encode())
            rows += 1
            advance()
        if not rows:
            raise DataError("No question has its document in this index and enough negatives.")
    facts = {"file": str(output), "rows": rows, "questions": len(asked), **vars(left)}
    if console.verbosity.json:
        emit(facts)
    else:
        console.show(f"{output}: {rows:,} rows of {len(asked):,} questions")
        if skipped := left.without_document + left.without_negatives:
            console.warn(
                f"{skipped:,} questions left out: {left.without_document:,} whose document is not in the index, "
                f"{left.without_negatives:,} with too few negatives"
            )


def evaluate_index(
    index: Path,
    file: Path,
    qrels: Path | None,
    sample: int | None,
    rerank: Path | None,
    answer: Path | None,
    reading: "PredictorOptions",
    output: Path | None,
    *,
    overwrite: bool,
) -> None:
    """`bertie evaluate INDEX --questions FILE`: the metrics of each stage."""
    from bertie.files import check_new_file, write_json
    from bertie.search import questions
    from bertie.search.evaluate import evaluate

    if output:
        check_new_file(output, overwrite=overwrite)
    asked = questions.read(file, qrels)
    stages = StageOptions(
        rerank=rerank, answer=answer, precision=reading.precision, engine=reading.engine, device=reading.device
    )
    found = evaluate(stages.searcher(index), asked, sample=sample)
    if output:
        write_json(output, found)
    if console.verbosity.json:
        emit(found)
        return
    if found["without_document"]:
        console.warn(f"{found['without_document']:,} questions have no document in the index, and are left out.")
    _show_stages(found)


def _show_stages(found: dict[str, Any]) -> None:
    from rich.table import Table

    from bertie.metrics.retrieval import NAMES

    table = Table("stage", title=f"{found['questions']:,} questions", box=None)
    first = next(iter(found["stages"]))
    for name in (*NAMES, f"mrr@10 above {first}", "ms", "p99 ms"):
        table.add_column(name, justify="right")
    for stage, row in found["stages"].items():
        times = found["seconds"].get({"reranked": "rerank"}.get(stage, stage))
        more = row.get(f"against_{first}", {}).get("mrr@10")
        table.add_row(
            stage,
            *(f"{row[name]:.3f}" for name in NAMES),
            f"{more['difference']:+.3f} ({more['low']:+.3f} to {more['high']:+.3f})" if more else "",
            *(f"{times[name] * 1000:.1f}" if times else "" for name in ("median", "p99")),
        )
    console.show(table)
    if row := found.get("answers"):
        console.show(", ".join(f"{name} {row[name]:.3f}" for name in ("exact_match", "f1", "answered")))
