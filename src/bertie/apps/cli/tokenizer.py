"""`bertie tokenizer train|report|encode`: trains a tokenizer, measures it, shows its tokens."""

from pathlib import Path
from typing import Annotated

import typer

import bertie
from bertie import platform
from bertie.apps.cli.app import Commands, Overwrite
from bertie.apps.cli.tables import EncodingOption
from bertie.platform import BadRecord, console

group = Commands(help="Train and inspect tokenizers.", no_args_is_help=True)

Sources = Annotated[
    list[Path], typer.Argument(help="A folder of `bertie corpus`, text files (also .gz, .xz, .zst, .bz2), or -.")
]
_FolderArgument = Annotated[Path, typer.Argument(help="Folder with tokenizer.json or vocab.txt.")]


@group.command()
def train(
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
    word_splitter: Annotated[
        str | None,
        typer.Option(
            help="Split words first: kiwi (Korean morphemes, slow), jieba (Chinese), mecab (Japanese), "
            "or one of a package. Default: none."
        ),
    ] = None,
    encoding: EncodingOption = "utf-8",
    overwrite: Overwrite = False,
) -> None:
    """Train a tokenizer on a corpus.

    Writes a folder with tokenizer.json and vocab.txt.

    \b
    Example:
      bertie tokenizer train corpora/wiki -o tokenizers/wiki --size 30522
    """
    tokenizer = bertie.train_tokenizer(
        sources,
        out,
        size=size,
        family=family,
        algorithm=algorithm,
        lowercase=lowercase,
        strip_accents=strip_accents,
        min_frequency=min_frequency,
        limit_alphabet=limit_alphabet,
        unused=unused,
        split_special_tokens=split_special_tokens,
        word_splitter=word_splitter,
        encoding=encoding,
        overwrite=overwrite,
    )
    facts = {"vocab_size": tokenizer.vocab_size, **tokenizer.settings["bertie"], "fingerprint": tokenizer.fingerprint}
    if console.verbosity.json:
        console.emit({"folder": str(out), **facts})
    else:
        console.show(f"{out}: {facts['vocab_size']:,} tokens; {facts['trained_by']}")


@group.command()
def report(
    folder: _FolderArgument,
    sources: Sources,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of lines to read.")] = 100_000,
    encoding: EncodingOption = "utf-8",
) -> None:
    """Measure a tokenizer on a text.

    Shows, by script: tokens per word (fertility), unknown words, character coverage, and the round-trip rate.

    \b
    Example:
      bertie tokenizer report tokenizers/wiki ratings.txt --json
    """
    measured = bertie.report_tokenizer(folder, sources, limit=limit, encoding=encoding)
    if console.verbosity.json:
        console.emit(measured.to_dict())
    else:
        console.show(measured.table())


@group.command()
def encode(
    folder: _FolderArgument,
    text: Annotated[str, typer.Argument(help="Text, or - for the lines of standard input.")] = "-",
    pair: Annotated[str | None, typer.Option(help="A second text.")] = None,
) -> None:
    """Show the tokens of a text, with their ids and characters.

    \b
    Example:
      bertie tokenizer encode tokenizers/wiki "Unbelievable!"
    """
    tokenizer = bertie.load_tokenizer(folder)
    lines = platform.SourceFile("-").numbered_lines() if text == "-" else [(1, text)]
    for number, line in lines:
        if isinstance(line, BadRecord):
            console.warn(f"line {number}: {line.reason}")
            continue
        encoding = tokenizer.encode(line, pair)
        parts = [(pair if sequence else line) or "" for sequence in encoding.sequence_ids]
        columns = zip(encoding.tokens, encoding.ids, encoding.offsets, parts, strict=True)
        rows = [(token, i, start, end, part[start:end]) for token, i, (start, end), part in columns]
        if console.verbosity.json:
            console.emit([dict(zip(("token", "id", "start", "end", "text"), row, strict=True)) for row in rows])
            continue
        from rich.table import Table
        from rich.text import Text

        table = Table("token", "id", "characters", "text")
        for token, i, start, end, written in rows:
            table.add_row(Text(token), str(i), f"{start}-{end}", Text(written))
        console.show(table)
