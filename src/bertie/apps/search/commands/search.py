"""`bertie search`, and the options of the stages of a search."""

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import bertie
from bertie import platform
from bertie.apps.cli.options import grouped
from bertie.apps.cli.shared import option
from bertie.platform import console

if TYPE_CHECKING:
    from rich.text import Text

    from bertie.apps.search.searcher import Found, Hit, Searcher


def _place(model: Path | None) -> Path | None:
    """Returns the folder of a model, which may be that of a run or a checkpoint."""
    return model and platform.ModelFolder(model).path


IndexFolder = Annotated[
    Path, typer.Argument(help="Folder of an index, made by `bertie index`; or its name on a server.")
]
SearchStore = Annotated[
    str, typer.Option("--store", help="What keeps the index: sqlite (its folder), opensearch or qdrant (with --url).")
]
Url = Annotated[str, typer.Option("--url", help="Address of the search engine: http://localhost:9200.")]
EmbedModel = Annotated[
    Path | None,
    typer.Option("--embed", help="Model of sentence embeddings, for search by meaning.", callback=_place),
]
RerankModel = Annotated[
    Path | None,
    typer.Option("--rerank", help="Model that re-ranks passages (task rank or choice).", callback=_place),
]
AnswerModel = Annotated[
    Path | None,
    typer.Option("--answer", help="Model that finds the answer (task span).", callback=_place),
]

NoEmbed = Annotated[bool, typer.Option("--no-embed", help="Search only by words.")]


@dataclass(frozen=True)
class StageOptions:
    """The stages of a search."""

    embed: EmbedModel = None
    rerank: RerankModel = None
    answer: AnswerModel = None
    no_embed: NoEmbed = False
    no_words: Annotated[bool, typer.Option("--no-words", help="Search only by vectors.")] = False
    fusion: Annotated[
        str, typer.Option(help="How words and vectors are joined: scores (the mean of both) or ranks (reciprocal).")
    ] = "scores"
    first: Annotated[
        int | None,
        typer.Option(min=1, help="Number of passages from words, and from vectors. Default: 100, or --top if higher."),
    ] = None
    rerank_top: Annotated[int, typer.Option(min=1, help="Number of passages to re-rank.")] = 50
    rerank_alone: Annotated[
        bool, typer.Option("--rerank-alone", help="Ignore the order before; default: the mean of both scores.")
    ] = False
    read_top: Annotated[int, typer.Option(min=1, help="Number of passages in which to find an answer.")] = 3
    store: SearchStore = "sqlite"
    url: Url = ""
    precision: Annotated[str, option("precision")] = "fp32"
    engine: Annotated[str, option("engine")] = "auto"
    device: Annotated[str, option("device")] = "auto"

    def searcher(self, index: Path) -> "Searcher":
        """Returns the open index with its models."""
        return bertie.open_index(index, **{one.name: getattr(self, one.name) for one in fields(self)})


@grouped
def search_command(
    index: IndexFolder,
    question: Annotated[str, typer.Argument(help="Question or words; - reads one question per line from stdin.")] = "-",
    stages: StageOptions = StageOptions(),
    top: Annotated[int, typer.Option("--top", "-n", min=1, help="Number of passages to print.")] = 5,
) -> None:
    """Search an index: ranked passages, with the answer or the words of the question marked.

    The stages are words, vectors (if the index has them), re-ranking and the answer. -v shows the time of each.

    \b
    Examples:
      bertie search index "how do I resume a run?"
      bertie search index "how do I resume a run?" --rerank runs/rank/model --answer runs/squad2/model
      bertie search index --json < questions.txt
    """
    from rich.text import Text

    searcher = stages.searcher(index)
    several = question == "-"
    for line in filter(None, map(str.strip, sys.stdin)) if several else [question]:
        result = searcher.search(line, top)
        if console.verbosity.json:
            console.emit(result.as_json())
        else:
            if several:
                console.show(Text(line, "bold"))
            _show(result)


def _show(result: "Found") -> None:
    from rich.text import Text

    if result.read:
        answer = result.answer
        said = Text.assemble(("Answer: ", "bold"), (answer.text, "bold green")) if answer else Text("No answer here.")
        console.show(said)
    if not result.hits:
        console.show("No passage matches the question.")
    for number, hit in enumerate(result.hits, 1):
        title = f"  {hit.passage.title}" if hit.passage.title else ""
        console.show(Text.assemble(f"{number}. ", (hit.passage.place, "cyan"), title))
        console.show(_marked(hit))
    times = ", ".join(f"{name} {value * 1000:.1f} ms" for name, value in result.seconds.items())
    console.say(times, level=1)


def _marked(hit: "Hit") -> "Text":
    from rich.text import Text

    text, part = hit.passage.text, hit.snippet
    line = Text("   " + ("... " if part.start else ""))
    at, style = part.start, "bold green" if hit.answer else "bold"
    for start, stop in part.marks:
        line.append(" ".join(text[at:start].split("\n"))).append(text[start:stop], style)
        at = stop
    return line.append(" ".join(text[at : part.stop].split("\n")) + (" ..." if part.stop < len(text) else ""))
