"""`bertie tokenizer train|report|encode`: trains a tokenizer, measures it, shows its tokens."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from bertie import console
from bertie.cli.app import STDIN, Commands, Overwrite, asked, emit
from bertie.cli.tables import Encoding
from bertie.console import counted

group = Commands(help="Train and inspect tokenizers.", no_args_is_help=True)

Sources = Annotated[
    list[Path], typer.Argument(help="A folder of `bertie corpus`, text files (also .gz, .xz, .zst, .bz2), or -.")
]
Folder = Annotated[Path, typer.Argument(help="Folder with tokenizer.json or vocab.txt.")]


@group.command()
def train(
    ctx: typer.Context,
    sources: Sources,
    out: Annotated[Path, typer.Option("-o", "--output", help="Folder to write.")],
    size: Annotated[int, typer.Option(min=16, help="Vocabulary size, including special tokens.")] = 30522,
    family: Annotated[
        str, typer.Option("--for", help="Family or preset whose special tokens, ids and template are used.")
    ] = "bert",
    algorithm: Annotated[
        str | None,
        typer.Option(
            help="wordpiece, wordpiece-likelihood, bpe (byte-level), character-bpe or unigram. Default: that of the "
            "family."
        ),
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase/--cased", help="Convert letters to lower case.")] = False,
    strip_accents: Annotated[
        bool | None, typer.Option(help="Remove accents. Hangul is never changed. Default: with --lowercase.")
    ] = None,
    min_frequency: Annotated[int, typer.Option(min=1, help="Minimum frequency of a token.")] = 2,
    limit_alphabet: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Maximum number of single characters in the vocabulary. Default: those of 99.98% of the text, at most "
            "a quarter of --size; for unigram, all of them.",
        ),
    ] = None,
    unused: Annotated[
        int, typer.Option(min=0, help="Number of unused tokens ([unused1] ...), reserved for words added later.")
    ] = 0,
    split_special_tokens: Annotated[
        bool,
        typer.Option("--split-special-tokens", help="Read special tokens that occur in a text as ordinary characters."),
    ] = False,
    morphemes: Annotated[
        bool, typer.Option("--morphemes", help="First split Korean into morphemes (Kiwi, slow).")
    ] = False,
    encoding: Encoding = "utf-8",
    overwrite: Overwrite = False,
) -> None:
    """Train a tokenizer on a corpus.

    Writes a folder with tokenizer.json and vocab.txt.

    \b
    Example:
      bertie tokenizer train corpora/wiki -o tokenizers/wiki --size 30522
    """
    from bertie import families
    from bertie.folders import made_once
    from bertie.text import formats, vocabulary
    from bertie.text.normalize import Normalizer

    model_type = family if family in families.VARIANTS else families.family(family).model_type
    format, normalized = formats.of(model_type), lowercase or strip_accents is not None

    def write(made: Path) -> dict[str, Any]:
        vocabulary.check_algorithm(algorithm or format.algorithm)  # now, not after the words are counted
        words = vocabulary.count_words(_progress(_lines(sources, encoding), "counting words"), morphemes=morphemes)
        different = len(words.counts)
        console.say(
            f"{counted(words.words, 'word')} on {counted(words.lines, 'line')}, {different:,} different; training the "
            "tokenizer ..."
        )
        tokenizer = vocabulary.train(
            words,
            size=size,
            algorithm=algorithm,  # type: ignore[arg-type]  # train answers unknown names
            family=format,
            normalizer=Normalizer(lowercase=lowercase, strip_accents=strip_accents) if normalized else None,
            min_frequency=min_frequency,
            limit_alphabet=limit_alphabet,
            unused=unused,
            morphemes=morphemes,
        )
        if split_special_tokens:
            tokenizer.settings["split_special_tokens"] = True
        tokenizer.save(made)
        facts = {"vocab_size": tokenizer.vocab_size, **tokenizer.settings["bertie"]}
        return {**facts, "fingerprint": tokenizer.fingerprint}

    facts = made_once(out, vocabulary.TOKENIZER_FOLDER, asked(ctx), write, overwrite=overwrite)
    if console.verbosity.json:
        emit({"folder": str(out), **facts})
    else:
        console.show(f"{out}: {facts['vocab_size']:,} tokens; {facts['trained_by']}")


@group.command()
def report(
    folder: Folder,
    sources: Sources,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of lines to read.")] = 100_000,
    encoding: Encoding = "utf-8",
) -> None:
    """Measure a tokenizer on a text.

    Shows, by script: tokens per word (fertility), unknown words, character coverage, and the round-trip rate.

    \b
    Example:
      bertie tokenizer report tokenizers/wiki ratings.txt --json
    """
    from itertools import islice

    from bertie.errors import DataError
    from bertie.runs.models import model_folder
    from bertie.text.report import report as judge
    from bertie.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(model_folder(folder))
    found = judge(tokenizer, _progress(islice(_lines(sources, encoding), limit), "reading"))
    if not found.scripts:
        raise DataError(f"{', '.join(map(str, sources))} contains no words.")
    if console.verbosity.json:
        emit(found.to_dict())
    else:
        console.show(found.table())


@group.command()
def encode(
    folder: Folder,
    text: Annotated[str, typer.Argument(help="Text, or - for the lines of standard input.")] = "-",
    pair: Annotated[str | None, typer.Option(help="A second text.")] = None,
) -> None:
    """Show the tokens of a text, with their ids and characters.

    \b
    Example:
      bertie tokenizer encode tokenizers/wiki "Unbelievable!"
    """
    from bertie.data.lines import InvalidRow, decoded
    from bertie.runs.models import model_folder
    from bertie.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(model_folder(folder))
    given = decoded(sys.stdin.buffer, "utf-8", "standard input") if text == "-" else [(1, text)]
    for number, line in given:
        if isinstance(line, InvalidRow):
            console.warn(f"line {number}: {line.reason}")
            continue
        encoding = tokenizer.encode(line, pair)
        parts = [(pair if sequence else line) or "" for sequence in encoding.sequence_ids]
        columns = zip(encoding.tokens, encoding.ids, encoding.offsets, parts, strict=True)
        rows = [(token, i, start, end, part[start:end]) for token, i, (start, end), part in columns]
        if console.verbosity.json:
            emit([dict(zip(("token", "id", "start", "end", "text"), row, strict=True)) for row in rows])
            continue
        from rich.table import Table
        from rich.text import Text

        table = Table("token", "id", "characters", "text")
        for token, i, start, end, written in rows:
            table.add_row(Text(token), str(i), f"{start}-{end}", Text(written))
        console.show(table)


def _progress(lines: Iterator[str], what: str) -> Iterator[str]:
    with console.progress(what, unit="lines") as advance:
        for number, line in enumerate(lines, start=1):
            if not number % 1000:
                advance(1000)
            yield line


def _lines(sources: list[Path], encoding: str) -> Iterator[str]:
    """Yields the sentences of corpus folders and the lines of files. Undecodable lines are counted and skipped."""
    from bertie.data.lines import InvalidRow, decoded, opened
    from bertie.errors import DataError

    for source in sources:
        if source.is_dir():
            from bertie.data import corpus

            yield from corpus.texts(source)
            continue
        if source != STDIN and not source.exists():
            raise DataError(f"{source} does not exist. Pass a corpus folder, a text file, or - for standard input.")
        check_lines(source)
        bad = 0
        with opened(source) as file:
            for _, line in decoded(file, encoding, str(source)):
                if isinstance(line, InvalidRow):
                    bad += 1
                else:
                    yield line
        if bad:
            console.warn(f"{source}: skipped {counted(bad, 'line')} not in {encoding}.")


def check_lines(source: Path) -> None:
    """Raises DataError for a table, a dump or another file whose lines are not texts, by its name."""
    from bertie.data.sources import SUFFIXES
    from bertie.data.streams import suffix_of
    from bertie.errors import DataError

    if (kind := SUFFIXES.get(suffix_of(source), "txt")) != "txt":
        raise DataError(
            f"{source} is a file of {kind}, not of lines of text. Build a corpus first, and pass its folder: "
            f"bertie corpus {source} -o corpora/mine"
        )
