"""One file of documents, whatever its format is."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from typing import IO, TypeAlias, TypeVar

from bertie.data import formats, isolated, pages, sources, streams
from bertie.data.lines import texts_of
from bertie.data.records import DroppedRecord, ReadOptions, file_size

T = TypeVar("T")


class SourceFile:
    """A file of text, or a page. encoding: of plain text.

    FAILURES: the errors that reading a damaged file raises, with `cause` for what to say of them.
    """

    FAILURES = streams.FAILURES
    Inputs: TypeAlias = sources.Inputs
    Dropped: TypeAlias = DroppedRecord

    def __init__(self, path: str, encoding: str = "utf-8") -> None:
        self.path = path
        known = self.suffix in sources.SUFFIXES
        self.options = ReadOptions("" if known else "txt", encoding=encoding, documents="file")

    @property
    def suffix(self) -> str:
        """The extension of the format: "jsonl" of a.jsonl.gz."""
        return streams.suffix_of(self.path)

    @property
    def size(self) -> int:
        """Bytes. Raises DataError where the file cannot be opened."""
        return file_size(self.path)

    @property
    def kind(self) -> str:
        """The format, by the extension and the first bytes: "txt", "wiki", "jsonl" ..."""
        return sources.kind_of(self.path, self.options)[0]

    def open(self, *, seekable: bool = False) -> AbstractContextManager[IO[bytes]]:
        """Opens the file for reading bytes, uncompressed."""
        return streams.opened(self.path, seekable=seekable)

    def documents(self) -> Iterator[tuple[str, str] | DroppedRecord]:
        """Yields the title, or "", and the text of each document: the articles of a wiki, else the file as a whole."""
        kind, about = sources.kind_of(self.path, self.options)
        items = [item for item, _ in sources.SOURCES[kind].plan(about, self.options)]
        if kind == "wiki":
            yield from chain.from_iterable(formats.articles(item, self.options, Counter()) for item in items)
            return
        for found in sources.read(sources.Unit(kind, items, 0), self.options, Counter()):
            yield found if isinstance(found, DroppedRecord) else ("", found)

    def main_text(self) -> tuple[str, str] | DroppedRecord:
        """Returns the title and the main text of a page of HTML, with its tables. Needs the extra [documents]."""
        pages.needed()
        content = pages.read_page(self.path)
        title, text = isolated.call(pages.main_text, content, prose=False, size=len(content))
        return (title, text) if text else DroppedRecord(pages.no_text(content), self.path)

    def isolated(self, read: Callable[..., Iterator[T]], *arguments: object) -> Iterator[T]:
        """Yields what `read` yields, in a process of its own, which may die of a damaged file."""
        return isolated.results(read, *arguments, size=self.size)

    @staticmethod
    def lines(path: Path | str) -> list[str]:
        """Returns the lines of a text file, or of standard input, without empty ones."""
        return texts_of(path)

    @staticmethod
    def cause(error: Exception) -> str:
        """Returns what to say of one of FAILURES."""
        return streams.cause(error)

    @staticmethod
    def expand(inputs: Iterable[str], format: str = "") -> sources.Inputs:
        """Returns every file of files, folders and globs. Raises DataError where one gives none."""
        return sources.expand(inputs, ReadOptions(format=format))
