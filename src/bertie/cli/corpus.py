"""`bertie corpus`: builds a corpus from files, encodes it and shows it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertie import console
from bertie.cli.app import ConfigFile, DryRun, Overwrite, emit
from bertie.cli.options import Flag, OptionValues, configured
from bertie.files import some_of

if TYPE_CHECKING:
    from bertie.data.corpus import CorpusConfig


@configured(
    "bertie.runs.corpora:CorpusRecipe",
    format="format",
    text="text",
    encoding="encoding",
    documents="documents",
    splitter="splitter",
    repair="repair",
    dedup="dedup",
    near_threshold="near_threshold",
    min_chars="min_chars",
    language=Flag("language", metavar="CODE"),
    quality=Flag("quality", metavar="RULE"),
    decontaminate=Flag("decontaminate", metavar="SET_OR_FILE"),
    data_dir="data_dirs",
)
def corpus(
    given: OptionValues,
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT",
            help="Files, folders or globs of txt, jsonl, csv, tsv, parquet, html, epub, warc, wet, Wikipedia dumps "
            "(.xml) or WikiExtractor output. Files may be compressed (.gz .zst .xz .bz2); - is standard input; "
            "python:PACKAGE,... is the documentation of installed packages.",
        ),
    ],
    out: Annotated[Path | None, typer.Option("-o", "--output", help="Corpus folder to write.")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="Tokenizer folder: also encode the corpus.")] = None,
    config: ConfigFile = None,
    workers: Annotated[
        int, typer.Option(min=0, help="Number of processes; 0 is one per core. Does not affect the output.")
    ] = 0,
    engine: Annotated[
        str, typer.Option(help="processes, or ray (a cluster). Does not affect the output.")
    ] = "processes",
    show: Annotated[
        bool, typer.Option("--show", help="Print the card of a corpus folder and a few documents.")
    ] = False,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
) -> None:
    """Build a training corpus: clean, split and deduplicate text files.

    Writes shards with checksums, a card, and a list of the unreadable records. The same command resumes an interrupted
    build.

    \b
    Examples:
      bertie corpus articles/ extra.jsonl.zst -o corpora/mine
      bertie corpus 'wiki/**/wiki_*' -o corpora/wiki --tokenizer tokenizers/wiki
      bertie corpus enwiki-pages-articles-multistream.xml.bz2 -o corpora/wiki
      bertie corpus python:numpy,scipy -o corpora/docs
      bertie corpus articles/ -o corpora/clean --decontaminate sst2 --decontaminate questions.tsv --data-dir glue
      bertie corpus corpora/wiki --show
    """
    from bertie.data import card
    from bertie.data import corpus as making
    from bertie.data.executors import cores
    from bertie.errors import UsageError
    from bertie.runs.corpora import CorpusRecipe
    from bertie.settings import load

    if show:
        for folder in inputs:
            _show(Path(folder))
        return
    if out is None:
        raise UsageError(
            "No output folder given. Pass -o FOLDER to build a corpus, or --show to inspect an existing one."
        )
    recipe = load(CorpusRecipe, config, **given)
    if dry_run:
        _plan(inputs, recipe.corpus)
        return
    opened = None
    if tokenizer is not None:
        from bertie.runs.models import model_folder
        from bertie.text.tokenizer import Tokenizer

        opened = Tokenizer.load(model_folder(tokenizer))  # before the long work, in case it cannot be
    shards = making.build(
        inputs,
        out,
        recipe.corpus,
        evaluation=recipe.evaluation(),
        workers=workers or cores(),
        engine=engine,
        overwrite=overwrite,
    )
    facts = card.load(out)
    if opened is not None:
        tokens = making.encode(out, opened, workers=workers or cores(), engine=engine)
        facts["tokens"] = {
            "folder": str(tokens.folder),
            "tokens": tokens.num_values,
            "unknown": tokens.manifest["unknown"],
            "per_word": round(tokens.num_values / max(facts["words"], 1), 3),
        }
    if console.verbosity.json:
        emit({"folder": str(out), **facts})
        return
    console.show(
        f"{out}: documents {shards.num_documents:,}, sentences {shards.num_sentences:,}, words {facts['words']:,}. "
        f"The card: {out / 'card.md'}"
    )
    records = facts["records"]
    if records["dropped"]:
        reasons = "; ".join(f"{reason}: {count:,}" for reason, count in records["dropped"].items())
        console.say(f"Dropped {records['in'] - records['kept']:,} of {records['in']:,} records ({reasons}).")
    if (out / "quarantine.jsonl").stat().st_size:
        console.warn(f"Unreadable records are listed in {out / 'quarantine.jsonl'}.")
    if facts["inputs"]["passed_over"]:
        skipped = console.counted(facts["inputs"]["passed_over"], "file")
        console.warn(f"Skipped {skipped} of unknown format in the folders.")
    cut = any(what.startswith("documents cut") for what in facts["inside_documents"])
    if cut or (shards.num_documents == 1 and "txt" in _kinds(inputs, recipe.corpus)):
        console.warn(
            "The text has few blank lines between documents. If every line is a document, pass --documents line."
        )
    if opened is not None:
        found = facts["tokens"]
        console.show(
            f"{found['folder']}: {found['tokens']:,} tokens, {found['per_word']:.2f} per word, "
            f"{found['unknown'] / max(found['tokens'], 1):.3%} unknown"
        )


def _kinds(inputs: list[str], config: "CorpusConfig") -> set[str]:
    """Returns the formats of the files of a build."""
    from bertie.data import sources

    found = sources.expand([name for name in inputs if name != "-"], config.reading)
    return {sources.kind_of(name, config.reading)[0] for name in found.names} | {
        "txt" for name in inputs if name == "-"
    }


def _plan(inputs: list[str], config: "CorpusConfig") -> None:
    """Prints the files that a build would read."""
    from bertie.data import sources

    units, found = sources.plan([name for name in inputs if name != "-"], config.reading)
    files = {(unit.source, str(item[0])) for unit in units for item in unit.items}
    kinds = {kind: sum(source == kind for source, _ in files) for kind, _ in sorted(files)}
    megabytes = sum(unit.size for unit in units) / 1e6
    if console.verbosity.json:
        emit(
            {
                "files": kinds,
                "units": len(units),
                "megabytes": megabytes,
                "passed_over": found.passed_over,
                "unreadable": found.unreadable,
            }
        )
        return
    shown = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items()) or "standard input"
    console.show(
        f"Would read {shown} in {console.counted(len(units), 'unit')} of work, and skip "
        f"{console.counted(len(found.passed_over), 'file')}."
    )
    if found.unreadable:
        console.warn(f"What cannot be read would be skipped: {some_of(found.unreadable)}.")


def _show(folder: Path, documents: int = 3, sentences: int = 5) -> None:
    """Prints the card of a corpus and the beginning of its first documents."""
    from itertools import islice

    from rich.markdown import Markdown

    from bertie.data import card
    from bertie.data import corpus as reading
    from bertie.data.shards import Shards

    Shards.open(folder)  # checks the hashes of all files
    facts = card.load(folder)
    first = [document[:sentences] for document in islice(reading.documents(folder), documents)]
    if console.verbosity.json:
        emit({**facts, "first_documents": first})
        return
    console.show(Markdown(card.render(facts)))  # type: ignore[arg-type]  # anything rich renders
    for number, document in enumerate(first, 1):
        console.show(f"\ndocument {number}")
        for sentence in document:
            console.show(f"  {sentence}")
