"""`bertie index`: makes, changes and verifies an index of documents."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import bertie
from bertie.apps import search as app
from bertie.apps.cli.options import grouped
from bertie.apps.cli.shared import option
from bertie.apps.search.commands.search import EmbedModel, SearchStore, Url
from bertie.platform import DataError, SourceFiles, UsageError, console, quantity

if TYPE_CHECKING:
    from bertie.apps.search.index import Changes


@grouped
def index_command(
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
    text: Annotated[str | None, typer.Option("--text", help="Column of the text. Default: recognized by name.")] = None,
    title: Annotated[str | None, typer.Option("--title", help="Column of the title. Default: title.")] = None,
    encoding: Annotated[
        str | None, typer.Option("--encoding", help="Encoding of text files: cp949 ... Default: utf-8.")
    ] = None,
    passage_words: Annotated[int | None, typer.Option(min=16, help="Maximum words per passage. Default: 180.")] = None,
    english: Annotated[
        str | None, typer.Option(help="English terms: stems, or words (unchanged). Default: stems.")
    ] = None,
    korean: Annotated[
        str | None,
        typer.Option(
            help="Korean terms: pairs (of syllables), kiwi (also morphemes; needs bertie[ko]), or words. "
            "Default: pairs."
        ),
    ] = None,
    word_splitter: Annotated[
        str | None, typer.Option(help="Word splitter, such as one of a package, whose words are terms too.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the documents of these files.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Verify an index without changes.")] = False,
    vectors: Annotated[
        str,
        typer.Option(
            help="Search by vectors: exact; approximate (needs bertie[usearch]); auto: approximate from a million."
        ),
    ] = "auto",
    store: SearchStore = "sqlite",
    url: Url = "",
    precision: Annotated[str, option("precision")] = "fp32",
    engine: Annotated[str, option("engine")] = "auto",
    device: Annotated[str, option("device")] = "auto",
    overwrite: Annotated[bool, option("overwrite")] = False,
) -> None:
    """Index documents for search, or bring an index up to date.

    The same command again adds new files, replaces changed ones and skips the others. A killed command leaves the index
    as it was. Documents that cannot be read are counted, and `--check` lists them.

    \b
    Examples:
      bertie index docs/ notes.pdf -o index
      bertie index docs/ -o index --embed MODEL
      bertie index docs/old.md -o index --remove
      bertie index -o index --check
      bertie index docs/ -o index --store opensearch --url http://localhost:9200
    """

    if out is None:
        raise UsageError("No folder of an index given. Pass -o INDEX.")
    if check:
        _check(out)
        return
    if not inputs:
        raise UsageError("No documents given. Pass files, folders, globs or python:PACKAGE.")
    if remove:
        _tell(app.api.remove_documents(inputs, out, store, url), out)
        return
    with bertie.build_index(
        inputs,
        out,
        embed=embed,
        text=text,
        title=title,
        encoding=encoding,
        passage_words=passage_words,
        english=english,
        korean=korean,
        word_splitter=word_splitter,
        vectors=vectors,  # type: ignore[arg-type]  # the function says which there are
        store=store,
        url=url,
        overwrite=overwrite,
        precision=precision,
        engine=engine,
        device=device,
    ) as index:
        assert index.changes is not None
        _tell(index.changes, out)


def _tell(changes: "Changes", out: Path) -> None:
    if console.verbosity.json:
        console.emit({"folder": str(out), **changes.as_json()})
        return
    counts = {"added": changes.added, "replaced": changes.replaced, "unchanged": changes.unchanged}
    counts |= {"removed": changes.removed}
    done = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "nothing to do"
    vectors = f", {changes.vectors:,} vectors" if changes.vectors else ""
    console.show(f"{out}: files: {done}; {changes.documents:,} new documents, {changes.passages:,} passages{vectors}.")
    if copy := changes.copy:
        console.show(f"{copy['where']}: {copy['published']:,} passages added, {copy['removed']:,} removed.")
    if changes.rejected:
        reasons = "; ".join(f"{reason}: {count:,}" for reason, count in changes.reasons.most_common(5))
        console.warn(f"{changes.rejected:,} records could not be read ({reasons}). bertie index -o {out} --check")
    if changes.passed_over:
        console.warn(f"Skipped {len(changes.passed_over):,} files of unknown format in the folders.")
    if changes.unreadable:
        console.warn(SourceFiles([], [], changes.unreadable).unread)
    if changes.missing:
        some = f"{changes.missing[0]}{', ...' if len(changes.missing) > 1 else ''}"
        files = quantity(len(changes.missing), "deleted file")
        console.warn(f"The index still has {files} ({some}). To remove one: bertie index FILE -o {out} --remove")


def _check(folder: Path) -> None:
    report = app.check.verify_index(folder)
    if console.verbosity.json:
        console.emit(report)
    else:
        console.show(
            f"{folder}: {report['documents']:,} documents, {report['passages']:,} passages, "
            f"{report['vectors']:,} vectors"
        )
        for one in report["rejected"]:
            where = f"{one['source']}:{one['line']}" if one["line"] else one["source"]
            console.show(f"not read: {where}: {one['reason']}")
    if report["damage"]:
        raise DataError(f"{folder} is damaged: {report['damage'][0]} Make the index again with --overwrite.")
    if not console.verbosity.json:
        console.show("No damage found.")
