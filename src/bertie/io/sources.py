"""Sources of documents: files of all formats, and others such as the documentation of packages.

    inputs -> items, of about UNIT bytes -> units of work -> documents (str), or BadRecord with its reason

The units depend only on the inputs, never on the workers. Everything is streamed, and a damaged record never stops the
reader. A new kind of source is one row of SOURCES.
"""

import codecs
import glob
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple, Self, TypeVar

from bertie.errors import DataError, Stopped, UnknownName, UsageError, nearest
from bertie.files import atomic_write, files_in, some_of
from bertie.io import documents, isolated, pages, rows
from bertie.io.blocks import LINE, READ_BYTES, UNIT, Item, ReadOptions, SourceKind, block_spans, file_size
from bertie.io.fields import Fields, source_of
from bertie.io.lines import BadRecord, check_encoding, nonempty_lines, text_lines, where_of
from bertie.io.questions import questions
from bertie.io.streams import COMPRESSIONS, FAILURES, cause, endings_of, format_by_name, open_bytes, suffix_of
from bertie.io.table_format import RECOGNISED, Columns, TableFormat
from bertie.io.tables import Example, stream_examples
from bertie.io.tagged import AnnotatedFile
from bertie.registry import Later, Registry
from bertie.settings import read_yaml

_T = TypeVar("_T")


class Unit(NamedTuple):
    """Work for one process: items of one source, in order, and their size in bytes."""

    source: str
    items: list[Item]
    size: int


class SourceFiles(NamedTuple):
    """The files (or "name:...") of the inputs, each once, and what was skipped in folders.

    passed_over: files of unknown format. unreadable: files and folders that cannot be read, "PATH (reason)".
    """

    names: list[str]
    passed_over: list[str]
    unreadable: list[str]

    @classmethod
    def of(cls, inputs: Iterable[str], known: Collection[str] = ()) -> Self:
        """Returns every file (or "name:...") of files, folders and globs, each once and in order.

        known: the formats of the files of a folder that are read; none: all. Raises DataError for an input without a
        file.
        """
        names: dict[str, None] = {}
        passed_over, unreadable = list[str](), list[str]()
        for one in inputs:
            scheme, name = one.partition(":")[0], one and os.path.normpath(one)  # ./a.txt is a.txt
            if _is_scheme(scheme):
                names[one] = None
            elif Path(name).is_dir():
                visible, hidden = files_in(Path(name))
                unreadable += hidden
                readable = {p: None for p in visible if not known or format_by_name(p) in known}
                if not readable:
                    reason = f" Some of it cannot be read: {some_of(hidden)}." if hidden else ""
                    endings = ", ".join(endings_of(known))
                    raise DataError(f"The folder {name} contains no file of a known format ({endings}).{reason}")
                names.update(dict.fromkeys(map(str, readable)))
                passed_over += [str(p) for p in visible if p not in readable]
            elif Path(name).is_file():
                names[name] = None
            else:
                matches = sorted(p for p in glob.glob(name, recursive=True) if Path(p).is_file())
                closed = _closed(name)
                if not matches:
                    raise DataError(_none(name, closed))
                names.update(dict.fromkeys(matches))
                unreadable += closed
        return cls(list(names), passed_over, unreadable)

    @classmethod
    def inside(cls, folder: Path) -> Self:
        """Returns every file of a folder and of those inside it, also those whose names begin with a dot."""
        files, unreadable = files_in(folder, hidden=True)
        return cls([str(file) for file in files], [], unreadable)

    @property
    def unread(self) -> str:
        """What cannot be read, in a sentence; "" where there is nothing."""
        return f"Skipped what cannot be read: {some_of(self.unreadable)}." if self.unreadable else ""


def plan_units(inputs: Iterable[str], reading: ReadOptions) -> tuple[list[Unit], SourceFiles]:
    """Returns the units of all inputs (files, folders, globs, "name:..."), in order, and the inputs as files.

    Raises DataError for missing or empty inputs, UsageError for an unknown format or encoding.
    """
    if reading.format and reading.format not in (known := (*SOURCES, *rows.FORMATS)):
        raise UnknownName(f"Unknown format {reading.format!r}. {nearest(reading.format, known)}")
    check_encoding(reading.encoding)
    units: list[Unit] = []
    size = 0  # of the last unit
    files = SourceFiles.of(inputs, formats(reading))
    for name in files.names:
        kind, about = source_kind(name, reading)
        for item, bytes_ in _source(kind).plan(about, reading):
            if not units or units[-1].source != kind or size >= UNIT:
                units.append(Unit(kind, [], 0))
                size = 0
            units[-1].items.append(item)
            size += bytes_
            units[-1] = units[-1]._replace(size=size)
    return units, files


def read_unit(unit: Unit, reading: ReadOptions, counts: Counter[str]) -> Iterator[str | BadRecord]:
    """Yields the documents of a unit. The rest of a damaged item is reported as dropped."""
    source = _source(unit.source)
    for item in unit.items:
        try:
            for document in source.read(item, reading, counts):
                yield replace(document, start=item[1]) if source.spans and isinstance(document, BadRecord) else document
        except FAILURES as error:
            if isinstance(error, OSError) and (full := Stopped.for_full_disk(error, Path(tempfile.gettempdir()))):
                raise full from None
            yield BadRecord(0, cause(error), where=str(item[0]))
        except DataError as error:
            yield BadRecord(0, str(error), where=str(item[0]))


SOURCES: Registry[SourceKind] = Registry(
    "format",
    [
        ("txt", SourceKind(documents.text_spans, documents.read_plain_text, spans=True)),
        ("wiki", SourceKind(lambda path, reading: block_spans(path, documents.WIKI_END), documents.wiki, spans=True)),
        ("jsonl", SourceKind(lambda path, reading: block_spans(path, LINE), documents.jsonl, spans=True)),
        ("json", SourceKind(lambda path, reading: block_spans(path, LINE), documents.jsonl, spans=True)),
        ("parquet", SourceKind(documents.row_groups, documents.parquet)),
        ("mediawiki", Later("bertie.io.dumps", "MEDIAWIKI")),
        ("warc", Later("bertie.io.warc", "WARC")),
        ("html", Later("bertie.io.pages", "HTML")),
        ("epub", Later("bertie.io.books", "EPUB")),
        ("python", SourceKind(documents.package_items, documents.read_documentation, scheme=True)),
    ],
    group="bertie.sources",
)


def _source(kind: str) -> SourceKind:
    """Returns how a format is read: as documents, or else as the rows of a table."""
    if kind in SOURCES:
        return SOURCES[kind]
    return SourceKind(partial(documents.table_file, kind), partial(documents.read_table_texts, kind))


# From inputs to files ------------------------------------------------------------------------------------------------


def formats(reading: ReadOptions | None = None) -> list[str]:
    """Returns the formats of documents, and of tables with a column of texts; none: files of any name are read."""
    if reading and reading.format:
        return []
    return [name for name in dict.fromkeys((*SOURCES, *rows.FORMATS)) if not _is_scheme(name)]


def _is_scheme(name: str) -> bool:
    return name in SOURCES and SOURCES[name].scheme


def _closed(pattern: str) -> list[str]:
    """Returns the folders that a pattern leads through and that cannot be read, which `glob` skips."""
    parents = [str(parent) for parent in Path(pattern).parents]
    folders = {path for parent in parents for path in glob.glob(parent, recursive=True) if os.path.isdir(path)}
    closed = []
    for path in sorted(folders):
        try:
            os.stat(os.path.join(path, "."))
            os.scandir(path).close()
        except OSError as error:
            closed.append(f"{path} ({error.strerror})")
    return closed


def _none(name: str, closed: list[str]) -> str:
    """Returns the error about a name or pattern that leads to no file."""
    if closed:
        return f"{name} cannot be read: {some_of(closed)}."
    if Path(name).exists():
        return (
            f"{name} is a pipe or a device, which cannot be read twice. Save its content as a file, or pass it on "
            f"standard input: - < {name}"
        )
    return f"{name} does not exist{_hint(name)}"


def source_kind(name: str, reading: ReadOptions) -> tuple[str, str]:
    """Returns the row of SOURCES that reads `name`, and its argument. Raises UsageError for an unknown format."""
    scheme, colon, rest = name.partition(":")
    if colon and _is_scheme(scheme):
        return scheme, rest
    if reading.format:
        return reading.format, name
    kind, known = format_by_name(name), formats()
    if kind not in known:
        endings = [*endings_of(known), *(f"each also .{c}" for c in COMPRESSIONS)]
        raise UsageError(
            f"{name}: the extension .{suffix_of(name)} is unknown. Known: {', '.join(endings)}. Otherwise pass the "
            "format: --format txt."
        )
    if kind != "txt":
        return kind, name
    try:
        with open_bytes(name) as stream:
            head = stream.read(64).removeprefix(codecs.BOM_UTF8).lstrip()
    except FAILURES:
        head = b""  # reading it will say what is wrong
    if head.startswith(b"<doc "):
        return "wiki", name
    return ("jsonl" if suffix_of(name) == "" and head.startswith(b'{"') else "txt"), name


def _hint(name: str) -> str:
    parent = Path(name).parent
    names = [p.name for p in parent.iterdir()] if parent.is_dir() and not glob.has_magic(name) else []
    close = nearest(Path(name).name, names).partition(" Choices:")[0] if names else ""
    return f". {close.rstrip(' ?')}?" if close.startswith("Did") else "."


def spool(folder: Path, lines: Iterable[bytes] | None = None) -> Path:
    """Copies standard input, or lines, to a file in `folder`, so that it can be split into units."""
    path = folder / "standard-input"
    with atomic_write(path) as file:
        for piece in iter(lambda: sys.stdin.buffer.read(READ_BYTES), b"") if lines is None else lines:
            file.write(piece)
    return path


# One file ------------------------------------------------------------------------------------------------------------


class SourceFile:
    """A file of text or of rows, or a page. encoding: of plain text."""

    def __init__(self, path: str | Path, encoding: str = "utf-8") -> None:
        self.path = str(path)
        known = format_by_name(self.path) in formats()
        self.options = ReadOptions("" if known else "txt", encoding=encoding, documents="file")

    @property
    def format(self) -> str:
        """The format by the extension: "jsonl" of a.ndjson.gz, "txt" without one."""
        return format_by_name(self.path)

    @property
    def size(self) -> int:
        """Bytes. Raises DataError where the file cannot be opened."""
        return file_size(self.path)

    @property
    def kind(self) -> str:
        """The format, by the extension and the first bytes: "txt", "wiki", "jsonl" ..."""
        return source_kind(self.path, self.options)[0]

    @property
    def table_kind(self) -> str:
        """The format of a table, by the extension or the first line: "csv", "lines" ..."""
        return rows.table_kind(self.path)

    def rows(self, format: TableFormat = RECOGNISED) -> Iterator[tuple[int, Fields | BadRecord]]:
        """Yields (line, fields by column name) of every row of a table."""
        return rows.records(self.path, format)

    def open(self, *, seekable: bool = False) -> AbstractContextManager[IO[bytes]]:
        """Opens the file for reading bytes, uncompressed."""
        return open_bytes(self.path, seekable=seekable)

    def documents(self) -> Iterator[tuple[str, str] | BadRecord]:
        """Yields the title, or "", and the text of each document: the articles of a wiki, else the file as a whole."""
        kind, about = source_kind(self.path, self.options)
        items = [item for item, _ in _source(kind).plan(about, self.options)]
        if kind == "wiki":
            yield from chain.from_iterable(documents.articles(item, self.options, Counter()) for item in items)
            return
        for document in read_unit(Unit(kind, items, 0), self.options, Counter()):
            yield document if isinstance(document, BadRecord) else ("", document)

    def main_text(self) -> tuple[str, str] | BadRecord:
        """Returns the title and the main text of a page of HTML, with its tables. Needs the extra [documents]."""
        pages.needed()
        content = pages.read_page(self.path)
        title, text = isolated.call(pages.main_text, content, prose=False, size=len(content))
        return (title, text) if text else BadRecord(0, pages.no_text(content), where=self.path)

    def isolated(self, read: Callable[..., Iterator[_T]], *arguments: object) -> Iterator[_T]:
        """Yields what `read_unit` yields, in a process of its own, which may die of a damaged file."""
        return isolated.results(read, *arguments, size=self.size)

    def numbered_lines(self) -> Iterator[tuple[int, str | BadRecord]]:
        """Yields the lines of standard input ("-") as they come, with numbers; others than text are `BadRecord`."""
        return text_lines(sys.stdin.buffer, where_of("-"))

    def lines(self) -> list[str]:
        """Returns the lines of a text file, or of standard input, without empty ones."""
        return nonempty_lines(self.path)

    def yaml(self) -> dict[str, Any]:
        """Returns the mapping of a file of safe YAML. Raises UsageError where it is missing or damaged."""
        return read_yaml(Path(self.path))

    def objects(self) -> Iterator[tuple[int, Fields | BadRecord, Mapping[str, object]]]:
        """Yields (line, fields, the object that they come from) of every row of a table."""
        for line, row in self.rows():
            yield line, row, {} if isinstance(row, BadRecord) else source_of(row)

    def text_format(self, text: Sequence[str] = (), columns: str = "") -> TableFormat:
        """Returns the format of a file of unlabeled texts. columns: names for a file without a header, "a, b".

        Raises UsageError for a column of a file that has one text per line.
        """
        kind = self.table_kind
        if kind == "lines" and len(text) == 1 and not columns:
            raise UsageError(
                f"{'Standard input' if self.path == '-' else self.path} is read as one text per line, without columns. "
                f"Omit --text {text[0]}, or pass a table: csv, tsv, jsonl ..."
            )
        names = [name.strip() for name in columns.split(",") if name.strip()]
        return TableFormat.of(text, "", names, self.options.encoding, kind, labelled=False)

    def examples(
        self, format: TableFormat, *, on_columns: Callable[[Columns], None] = lambda columns: None
    ) -> Iterator[Example | BadRecord]:
        """Yields the rows of a table, or of standard input ("-"), as texts and labels. See `stream_examples`."""
        return stream_examples(self.path, format, on_columns=on_columns)

    def questions(self, format: TableFormat = RECOGNISED) -> Iterator[Example | BadRecord]:
        """Yields the questions of a file in SQuAD's format, with their contexts and answers."""
        return questions(self.path, format)

    def annotated(self, kind: str = "", encoding: str = "utf-8") -> AnnotatedFile:
        """Returns the file as one of sentences with trees or tags. kind: its format, by default by its name."""
        return AnnotatedFile(self.path, kind, encoding)

    def failure(self, error: Exception) -> str | None:
        """Returns what to say of an error that reading a damaged file raises; None for another error."""
        return cause(error) if isinstance(error, FAILURES) else None
