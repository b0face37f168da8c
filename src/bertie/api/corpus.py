"""`bertie.build_corpus`: from files or documents in memory to a corpus folder, for pre-training and tokenizers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

from bertie.api.once import STDIN, paths_of
from bertie.console import counted
from bertie.data import card
from bertie.data import corpus as corpora
from bertie.data.executors import cores
from bertie.data.plans import choose_held_out
from bertie.data.shards import Shards
from bertie.errors import arguments
from bertie.files import some_of
from bertie.io import sources
from bertie.io.memory import table_of
from bertie.runs.corpora import CorpusRecipe
from bertie.runs.models import model_folder
from bertie.settings import load_config
from bertie.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class CorpusTokens:
    """A corpus as token ids of a tokenizer.

    Attributes:
        folder: Folder of the ids.
        tokens: Number of tokens.
        unknown: Number of unknown tokens.
        per_word: Tokens per word.
    """

    folder: Path
    tokens: int
    unknown: int
    per_word: float


@dataclass(frozen=True)
class Corpus:
    """A corpus folder. It is a path: what takes the folder of a corpus takes this value too.

    Attributes:
        folder: The folder.
        documents: Number of documents.
        sentences: Number of sentences.
        words: Number of words.
        card: The contents of card.json.
        tokens: The token ids, with `tokenizer`.
        notes: What is unusual.

    Example:
        >>> corpus = bertie.Corpus.open("corpora/notes")
        >>> corpus.documents, corpus.sentences
        (40, 80)
        >>> next(iter(corpus))
        ['Note 0 is short.', 'It was written in the rain.']
    """

    folder: Path
    documents: int
    sentences: int
    words: int
    card: Mapping[str, object] = field(repr=False)
    tokens: CorpusTokens | None = None
    notes: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> "Corpus":
        """Opens a corpus folder, and checks the hashes of its files. Raises DataError for a damaged one."""
        shards = Shards.open(Path(folder))
        facts = card.load_card(Path(folder))
        return cls(Path(folder), shards.num_documents, shards.num_sentences, facts["words"], facts)

    @cached_property
    def shards(self) -> Shards:
        """The sentences by their numbers, and where documents begin."""
        return Shards.open(self.folder)

    @staticmethod
    def plan(
        inputs: str | PathLike[str] | Iterable[object],
        *,
        format: str | None = None,
        text: str | None = None,
        encoding: str | None = None,
        config: str | Path | None = None,
    ) -> "CorpusPlan":
        """Returns what `build_corpus` would read, with the same arguments. Nothing is written."""
        return plan_corpus(inputs, format=format, text=text, encoding=encoding, config=config)

    def split(self, tokenizer: str | Path | Tokenizer) -> tuple[list[list[str]], list[list[str]]]:
        """Returns the documents that pre-training with a tokenizer learns from, and those that it holds out."""
        ids = corpora.encode_corpus(self.folder, tokenizer_of(tokenizer))
        parts: tuple[list[list[str]], list[list[str]]] = ([], [])
        for document, out in zip(
            self, choose_held_out(ids.sentence_lengths(), ids.document_bounds()).tolist(), strict=True
        ):
            parts[out].append(document)
        return parts

    def __fspath__(self) -> str:
        return str(self.folder)

    def __iter__(self) -> Iterator[list[str]]:
        """Yields the documents, each as a list of sentences."""
        return corpora.documents(self.folder)

    def __len__(self) -> int:
        return self.documents

    def text(self) -> str:
        """Returns the card as Markdown."""
        return card.render({**self.card})

    def to_dict(self) -> dict[str, object]:
        """Returns the card and the tokens as JSON values."""
        tokens = {} if self.tokens is None else {"tokens": {**vars(self.tokens), "folder": str(self.tokens.folder)}}
        return {"folder": str(self.folder), **self.card, **tokens}

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.text())}</pre>"


@dataclass(frozen=True)
class CorpusPlan:
    """What `build_corpus` would read.

    Attributes:
        files: Format -> number of files.
        units: Number of units of work.
        megabytes: Size of the files.
        passed_over: Files of unknown format.
        unreadable: Files that cannot be read, each with the reason.
    """

    files: Mapping[str, int]
    units: int
    megabytes: float
    passed_over: Sequence[str]
    unreadable: Sequence[str]

    def __str__(self) -> str:
        files = ", ".join(f"{count:,} {kind}" for kind, count in self.files.items()) or "standard input"
        skipped = counted(len(self.passed_over), "file")
        return f"Would read {files} in {counted(self.units, 'unit')} of work, and skip {skipped}."

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a build would lose."""
        return (f"What cannot be read would be skipped: {some_of(self.unreadable)}.",) if self.unreadable else ()


@arguments(input="inputs", files="inputs", folder="output", out="output")
def build_corpus(
    inputs: str | PathLike[str] | Iterable[object],
    output: str | Path,
    *,
    tokenizer: str | Path | Tokenizer | None = None,
    format: str | None = None,
    text: str | None = None,
    encoding: str | None = None,
    documents: str | None = None,
    splitter: str | None = None,
    repair: bool | None = None,
    dedup: str | None = None,
    near_threshold: float | None = None,
    min_chars: int | None = None,
    language: str | Sequence[str] | None = None,
    quality: str | Sequence[str] | None = None,
    decontaminate: str | Sequence[str] | None = None,
    data_dir: str | Path | Sequence[str] | None = None,
    config: str | Path | None = None,
    workers: int = 0,
    on: str = "here",
    overwrite: bool = False,
) -> Corpus:
    """Builds a corpus: cleans, splits and deduplicates texts. The same call resumes an interrupted build.

    Args:
        inputs: Files, folders or globs, one or a list; or documents in memory: an iterator of texts, a DataFrame, a
            data set, or dicts. "-" is standard input; "python:PACKAGE" is the documentation of a package.
        output: Corpus folder to write.
        tokenizer: A tokenizer, or its name or folder: also encodes the corpus.
        format: Format of all files. Default: by the name and the first bytes of each file.
        text: Field or column of the text.
        encoding: Text encoding of all files.
        documents: End of a document in plain text: blank (a blank line), line or file.
        splitter: Sentence splitter: rules, sentencex, kiwi or lines.
        repair: Whether to repair UTF-8 that was decoded as Latin-1.
        dedup: documents, paragraphs, near or none.
        near_threshold: Estimated similarity at which documents count as near duplicates.
        min_chars: Minimum number of characters of a document.
        language: Languages to keep: en, ko ...
        quality: Quality rules: gopher, gopher-korean, repetition, c4, or a measure with a range.
        decontaminate: Evaluation sets whose text is removed: names of published sets, or files.
        data_dir: Folders with the files of these sets.
        config: YAML file of settings, or the name of a recipe. The arguments override it.
        workers: Number of processes; 0 is one per core. It does not change the output.
        on: here, or ray (a cluster).
        overwrite: Whether to replace an earlier output of Bertie.

    Returns:
        The corpus.

    Raises:
        DataError: An input is missing, or contains no usable text.
        UsageError: The folder contains another corpus or other files.
        Stopped: The disk is full. The same call resumes the build.

    Example:
        >>> corpus = bertie.build_corpus("notes.txt", "out/corpus", min_chars=20)
        >>> corpus = bertie.build_corpus((f"Text {i} is a document." for i in range(9)), "out/texts", dedup="none")
        >>> corpus.documents
        9
    """
    recipe = _recipe(config, {name: value for name, value in locals().items() if name in _SETTINGS})
    own = None if tokenizer is None else tokenizer_of(tokenizer)  # before the long work, in case it cannot be opened
    paths, lines = _sources(inputs)
    processes = workers or cores()
    shards = corpora.build_shards(
        paths,
        output,
        recipe.corpus,
        lines=lines,
        evaluation=recipe.evaluation(),
        workers=processes,
        on=on,
        overwrite=overwrite,
    )
    facts, tokens = card.load_card(Path(output)), None
    if own is not None:
        ids = corpora.encode_corpus(output, own, workers=processes, on=on)
        per_word = round(ids.num_values / max(facts["words"], 1), 3)
        tokens = CorpusTokens(ids.folder, ids.num_values, ids.manifest["unknown"], per_word)
    notes = tuple(_notes(Path(output), facts, shards, paths, recipe))
    return Corpus(Path(output), shards.num_documents, shards.num_sentences, facts["words"], facts, tokens, notes)


_SETTINGS = {  # argument -> setting of a recipe
    **{name: name for name in ("format", "text", "encoding", "documents", "splitter", "repair", "dedup")},
    **{name: name for name in ("near_threshold", "min_chars", "language", "quality", "decontaminate")},
    "data_dir": "data_dirs",
}
_SHARED_SETTINGS = ("language", "quality", "decontaminate", "data_dir")


@arguments(input="inputs", files="inputs")
def plan_corpus(
    inputs: str | PathLike[str] | Iterable[object],
    *,
    format: str | None = None,
    text: str | None = None,
    encoding: str | None = None,
    config: str | Path | None = None,
) -> CorpusPlan:
    """Returns what `build_corpus` would read, with the same arguments. Nothing is written.

    Args:
        inputs: Files, folders or globs, one or a list.
        format: Format of all files.
        text: Field or column of the text.
        encoding: Text encoding of all files.
        config: YAML file of settings, or the name of a recipe.
    """
    reading = _recipe(config, {"format": format, "text": text, "encoding": encoding}).corpus.reading
    units, files = sources.plan_units([name for name in map(str, _sources(inputs)[0]) if name != STDIN], reading)
    kinds = {(unit.source, str(item[0])) for unit in units for item in unit.items}
    counts = {kind: sum(source == kind for source, _ in kinds) for kind, _ in sorted(kinds)}
    megabytes = sum(unit.size for unit in units) / 1e6
    return CorpusPlan(counts, len(units), megabytes, files.passed_over, files.unreadable)


def _recipe(config: str | Path | None, values: Mapping[str, Any]) -> CorpusRecipe:
    chosen = {_SETTINGS[name]: value for name, value in values.items() if value is not None}
    for name in map(_SETTINGS.get, _SHARED_SETTINGS):
        if name in chosen:
            one = isinstance(chosen[name], str | Path)
            chosen[name] = [str(chosen[name])] if one else [*map(str, chosen[name])]
    return load_config(CorpusRecipe, config, **chosen)


def tokenizer_of(tokenizer: str | Path | Tokenizer) -> Tokenizer:
    """Returns a tokenizer, or opens one by its name or folder."""
    return tokenizer if isinstance(tokenizer, Tokenizer) else Tokenizer.load(model_folder(tokenizer))


def _sources(inputs: object) -> tuple[Sequence[str | Path], Iterator[bytes] | None]:
    """Returns the inputs as paths, and the lines of documents in memory, for which "-" stands."""
    paths = paths_of(inputs)
    return ([STDIN], table_of(inputs, labeled=False).lines()) if paths is None else ([*map(str, paths)], None)


def _notes(
    folder: Path, facts: Mapping[str, Any], shards: Shards, paths: Sequence[str | Path], recipe: CorpusRecipe
) -> Iterator[str]:
    """Yields what is unusual, in sentences."""
    if (folder / "quarantine.jsonl").stat().st_size:
        yield f"Unreadable records are listed in {folder / 'quarantine.jsonl'}."
    if skipped := facts["inputs"]["passed_over"]:
        yield f"Skipped {counted(skipped, 'file')} of unknown format in the folders."
    cut = any(what.startswith("documents cut") for what in facts["inside_documents"])
    if cut or (shards.num_documents == 1 and "txt" in _kinds(paths, recipe)):
        yield "The text has few blank lines between documents. If every line is a document, pass `documents=line`."


def _kinds(paths: Sequence[str | Path], recipe: CorpusRecipe) -> set[str]:
    """Returns the formats of the files of a build."""
    reading = recipe.corpus.reading
    files = sources.SourceFiles.of([str(path) for path in paths if str(path) != STDIN], sources.formats(reading))
    kinds = {sources.source_kind(name, reading)[0] for name in files.names}
    return kinds | {"txt" for path in paths if str(path) == STDIN}
