"""`bertie.train_tokenizer` and `bertie.load_tokenizer`: from texts in any form, or from a folder, to a tokenizer."""

from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory

from bertie.api.corpus import tokenizer_of
from bertie.api.once import STDIN, paths_of, seal_of
from bertie.console import console, counted
from bertie.data import corpus
from bertie.errors import DataError, MissingFile, arguments
from bertie.files import JsonObject
from bertie.folders import made_once
from bertie.io.lines import BadRecord, open_file, text_lines
from bertie.io.memory import table_of
from bertie.io.sources import formats as formats_of_documents
from bertie.io.streams import format_by_name
from bertie.io.table_format import FileFormat
from bertie.models import families
from bertie.text import formats, vocabulary
from bertie.text.normalize import Normalizer
from bertie.text.tokenizer import Tokenizer


@arguments(vocab_size="size", files="texts", corpus="texts", do_lower_case="lowercase", out="output")
def train_tokenizer(
    texts: str | PathLike[str] | Iterable[object],
    output: str | Path | None = None,
    *,
    size: int = 30522,
    family: str = "bert",
    algorithm: str | None = None,
    lowercase: bool = False,
    strip_accents: bool | None = None,
    min_frequency: int = 2,
    limit_alphabet: int | None = None,
    unused: int = 0,
    split_special_tokens: bool = False,
    word_splitter: str | None = None,
    encoding: str = "utf-8",
    overwrite: bool = False,
) -> Tokenizer:
    """Trains a tokenizer.

    Args:
        texts: A corpus, its folder or files of text, one or a list; or texts in memory: an iterator of texts, a
            DataFrame, a data set, or dicts. "-" is standard input.
        output: Folder to write. Default: none.
        size: Vocabulary size, including special tokens.
        family: Family or preset whose special tokens, ids and template are used.
        algorithm: wordpiece, wordpiece-likelihood, bpe, character-bpe or unigram. Default: that of the family.
        lowercase: Whether to convert letters to lower case.
        strip_accents: Whether to remove accents. Default: with lowercase.
        min_frequency: Minimum frequency of a token.
        limit_alphabet: Maximum number of single characters in the vocabulary.
        unused: Number of unused tokens, reserved for words added later.
        split_special_tokens: Whether to read special tokens in a text as ordinary characters.
        word_splitter: Splitter of words before tokenization: kiwi (Korean morphemes, slow), jieba (Chinese), mecab
            (Japanese), or one of a package. Default: none.
        encoding: Text encoding of the files.
        overwrite: Whether to replace an earlier output of Bertie.

    Returns:
        The tokenizer.

    Raises:
        DataError: The texts cannot be read, or contain no words.
        UsageError: The family or the algorithm is unknown, or the folder contains other files.

    Example:
        >>> tokenizer = bertie.train_tokenizer("corpora/notes", size=120)
        >>> tokenizer.encode("It was written").tokens
        ['[CLS]', 'It', 'was', 'written', '[SEP]']
    """
    options = {name: value for name, value in locals().items() if name not in ("texts", "output", "overwrite")}
    model_type = family if family in families.VARIANTS else families.family(family).model_type
    format, normalized = formats.BY_FAMILY[model_type], lowercase or strip_accents is not None

    def write(folder: Path) -> JsonObject:
        vocabulary.check_algorithm(algorithm or format.algorithm)  # now, not after the words are counted
        lines = _progress(each_line(texts, encoding))
        words = vocabulary.count_words(lines, word_splitter=word_splitter)
        console.say(
            f"{counted(words.words, 'word')} on {counted(words.lines, 'line')}, {len(words.counts):,} different; "
            "training the tokenizer ..."
        )
        tokenizer = vocabulary.train_vocabulary(
            words,
            size=size,
            algorithm=algorithm,  # type: ignore[arg-type]  # train answers unknown names
            family=format,
            normalizer=Normalizer(lowercase=lowercase, strip_accents=strip_accents) if normalized else None,
            min_frequency=min_frequency,
            limit_alphabet=limit_alphabet,
            unused=unused,
            word_splitter=word_splitter,
        )
        if split_special_tokens:
            tokenizer.settings["split_special_tokens"] = True
        tokenizer.save(folder)
        return {}

    if output is None:
        with TemporaryDirectory(prefix="bertie-tokenizer-") as folder:
            write(Path(folder))
            return Tokenizer.load(folder)
    seal = seal_of("train_tokenizer", texts, **options)
    made_once(Path(output), vocabulary.TOKENIZER_FOLDER, seal, write, overwrite=overwrite)
    return Tokenizer.load(output)


@arguments()
def load_tokenizer(folder: str | Path) -> Tokenizer:
    """Opens a tokenizer: of a model by its name or folder, or of a folder of its own.

    Raises:
        DataError: Files are missing or damaged.

    Example:
        >>> bertie.load_tokenizer("starter-en").vocab_size
        12000
    """
    return tokenizer_of(folder)


def _progress(lines: Iterator[str]) -> Iterator[str]:
    with console.progress("counting words", unit="lines") as advance:
        for number, line in enumerate(lines, start=1):
            if not number % 1000:
                advance(1000)
            yield line


def each_line(texts: object, encoding: str = "utf-8") -> Iterator[str]:
    """Yields the sentences of corpora, the lines of files, or texts in memory. Undecodable lines are counted.

    Raises DataError for a path that is not there, and for a file of a table.
    """
    paths = paths_of(texts)
    if paths is None:
        rows = table_of(texts, labeled=False)
        yield from (str(row["text"] if "text" in row else next(iter(row.values()), "")) for row in rows)
        return
    for source in map(Path, paths):
        if source.is_dir():
            yield from corpus.texts(source)
            continue
        if str(source) != STDIN and not source.exists():
            raise MissingFile(f"{source} does not exist. Pass a corpus folder, a text file, or - for standard input.")
        check_lines(source)
        bad = 0
        with open_file(source) as file:
            for _, line in text_lines(file, str(source), FileFormat(encoding=encoding)):
                if isinstance(line, BadRecord):
                    bad += 1
                else:
                    yield line
        if bad:
            console.warn(f"{source}: skipped {counted(bad, 'line')} not in {encoding}.")


def check_lines(source: Path) -> None:
    """Raises DataError for a table, a dump or another file whose lines are not texts, by its name."""
    if (kind := format_by_name(source)) != "txt" and kind in formats_of_documents():
        raise DataError(
            f"{source} is a file of {kind}, not of lines of text. Build a corpus first, and pass its folder: "
            f"bertie corpus {source} -o corpora/mine"
        )
