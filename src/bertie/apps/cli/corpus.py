"""`bertie corpus`: builds a corpus from files, encodes it and shows it."""

from collections.abc import Mapping
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

import bertie
from bertie.apps.cli.app import ConfigFile, DryRun, Overwrite, in_options
from bertie.apps.cli.options import Flag, OptionValues, configured
from bertie.platform import UsageError, console

_READING_SETTINGS = ("format", "text", "encoding")  # settings that change which files are read


@configured(
    "corpus",
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
def corpus_command(
    values: OptionValues,
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
    on: Annotated[
        str, typer.Option("--on", help="Where work is done: here, or ray (a Ray cluster). Does not affect the output.")
    ] = "here",
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
    if show:
        for folder in inputs:
            _show(Path(folder))
        return
    if out is None and not dry_run:
        raise UsageError(
            "No output folder given. Pass -o FOLDER to build a corpus, or --show to inspect an existing one."
        )
    settings = {"data_dir" if key == "data_dirs" else key: value for key, value in values.items()}
    if dry_run or out is None:
        plan = bertie.Corpus.plan(inputs, config=config, **{key: settings.get(key) for key in _READING_SETTINGS})
        if console.verbosity.json:
            console.emit(asdict(plan))
            return
        console.show(str(plan))
        for warning in plan.warnings:
            console.warn(warning)
        return
    built = bertie.build_corpus(
        inputs, out, tokenizer=tokenizer, config=config, workers=workers, on=on, overwrite=overwrite, **settings
    )
    if console.verbosity.json:
        console.emit(built.to_dict())
        return
    console.show(
        f"{out}: documents {built.documents:,}, sentences {built.sentences:,}, words {built.words:,}. "
        f"The card: {out / 'card.md'}"
    )
    card: Mapping[str, Any] = built.card
    records = card["records"]
    if records["dropped"]:
        reasons = "; ".join(f"{reason}: {count:,}" for reason, count in records["dropped"].items())
        console.say(f"Dropped {records['in'] - records['kept']:,} of {records['in']:,} records ({reasons}).")
    for note in built.notes:
        console.warn(in_options(note, corpus_command))
    if tokens := built.tokens:
        console.show(
            f"{tokens.folder}: {tokens.tokens:,} tokens, {tokens.per_word:.2f} per word, "
            f"{tokens.unknown / max(tokens.tokens, 1):.3%} unknown"
        )


def _show(folder: Path, documents: int = 3, sentences: int = 5) -> None:
    """Prints the card of a corpus and the beginning of its first documents."""
    handle = bertie.Corpus.open(folder)
    from rich.markdown import Markdown

    first = [document[:sentences] for document in islice(handle, documents)]
    if console.verbosity.json:
        console.emit({**handle.card, "first_documents": first})
        return
    console.show(Markdown(handle.text()))
    for number, document in enumerate(first, 1):
        console.show(f"\ndocument {number}")
        for sentence in document:
            console.show(f"  {sentence}")
