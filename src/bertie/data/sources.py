"""Sources of documents: files of all formats, and others such as the documentation of packages.

    inputs -> items, of about UNIT bytes -> units of work -> documents (str), or DroppedRecord with its reason

The units depend only on the inputs, never on the workers. Everything is streamed, and a damaged record never stops the
reader. A new kind of source is one row of SOURCES.
"""

import codecs
import glob
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bertie.data import formats
from bertie.data.lines import check_encoding
from bertie.data.records import LINE, READ, UNIT, DroppedRecord, Item, ReadOptions, Source, spans
from bertie.data.streams import COMPRESSIONS, FAILURES, cause, opened, suffix_of
from bertie.errors import DataError, UsageError, nearest
from bertie.files import atomic_write, files_in, full_disk, some_of
from bertie.registry import Later, Registry


class Unit(NamedTuple):
    """Work for one process: items of one source, in order, and their size in bytes."""

    source: str
    items: list[Item]
    size: int


class Inputs(NamedTuple):
    """The files (or "name:...") of the inputs, each once, and what was skipped in folders.

    passed_over: files of unknown format. unreadable: files and folders that cannot be read, "PATH (reason)".
    """

    names: list[str]
    passed_over: list[str]
    unreadable: list[str]

    def nothing(self, folder: str, endings: Iterable[str]) -> DataError:
        """Returns the error about a folder without any file to read."""
        reason = f" Some of it cannot be read: {some_of(self.unreadable)}." if self.unreadable else ""
        return DataError(f"The folder {folder} contains no file of a known format ({', '.join(endings)}).{reason}")


def plan(inputs: Iterable[str], reading: ReadOptions) -> tuple[list[Unit], Inputs]:
    """Returns the units of all inputs (files, folders, globs, "name:..."), in order, and the inputs as files.

    Raises DataError for missing or empty inputs, UsageError for an unknown format or encoding.
    """
    if reading.format and reading.format not in SOURCES:
        raise UsageError(f"Unknown format {reading.format!r}. {nearest(reading.format, SOURCES)}")
    check_encoding(reading.encoding)
    units: list[Unit] = []
    size = 0  # of the last unit
    found = expand(inputs, reading)
    for name in found.names:
        kind, about = kind_of(name, reading)
        for item, bytes_ in SOURCES[kind].plan(about, reading):
            if not units or units[-1].source != kind or size >= UNIT:
                units.append(Unit(kind, [], 0))
                size = 0
            units[-1].items.append(item)
            size += bytes_
            units[-1] = units[-1]._replace(size=size)
    return units, found


def read(unit: Unit, reading: ReadOptions, counts: Counter[str]) -> Iterator[str | DroppedRecord]:
    """Yields the documents of a unit. The rest of a damaged item is reported as dropped."""
    source = SOURCES[unit.source]
    for item in unit.items:
        try:
            for found in source.read(item, reading, counts):
                yield found._replace(start=item[1]) if source.spans and isinstance(found, DroppedRecord) else found
        except FAILURES as error:
            if isinstance(error, OSError) and (full := full_disk(error, Path(tempfile.gettempdir()))):
                raise full from None
            yield DroppedRecord(cause(error), str(item[0]))
        except DataError as error:
            yield DroppedRecord(str(error), str(item[0]))


SOURCES: Registry[Source] = Registry(
    "format",
    [
        ("txt", Source(lambda path, reading: spans(path, formats.ENDS[reading.documents]), formats.text, spans=True)),
        ("wiki", Source(lambda path, reading: spans(path, formats.WIKI_END), formats.wiki, spans=True)),
        ("jsonl", Source(lambda path, reading: spans(path, LINE), formats.jsonl, spans=True)),
        ("csv", Source(partial(formats.table_file, "csv"), partial(formats.table, "csv"))),
        ("tsv", Source(partial(formats.table_file, "tsv"), partial(formats.table, "tsv"))),
        ("parquet", Source(formats.row_groups, formats.parquet)),
        ("mediawiki", Later("bertie.data.dumps", "MEDIAWIKI")),
        ("warc", Later("bertie.data.warc", "WARC")),
        ("html", Later("bertie.data.pages", "HTML")),
        ("epub", Later("bertie.data.books", "EPUB")),
        ("python", Source(formats.modules, formats.documentation, scheme=True)),
    ],
    group="bertie.sources",
)


# From inputs to files ------------------------------------------------------------------------------------------------

SUFFIXES = {
    **dict.fromkeys(("", "txt", "text", "wiki"), "txt"),
    **dict.fromkeys(("jsonl", "ndjson", "json"), "jsonl"),
    **dict.fromkeys(("parquet", "pq"), "parquet"),
    **dict.fromkeys(("warc", "wet"), "warc"),
    **dict.fromkeys(("html", "htm", "xhtml"), "html"),
    "csv": "csv",
    "tsv": "tsv",
    "xml": "mediawiki",
    "epub": "epub",
}


def expand(inputs: Iterable[str], reading: ReadOptions) -> Inputs:
    """Returns every file (or "name:...") of the inputs. Raises DataError where one gives none."""
    names: dict[str, None] = {}
    passed_over, unreadable = list[str](), list[str]()
    for given in inputs:
        scheme, name = given.partition(":")[0], given and os.path.normpath(given)  # ./a.txt is a.txt
        if scheme in SOURCES and SOURCES[scheme].scheme:
            names[given] = None
        elif Path(name).is_dir():
            visible, hidden = files_in(Path(name))
            unreadable += hidden
            known = {p: None for p in visible if reading.format or suffix_of(p) in SUFFIXES}
            if not known:
                raise Inputs([], [], hidden).nothing(name, _endings())
            names.update(dict.fromkeys(map(str, known)))
            passed_over += [str(p) for p in visible if p not in known]
        elif Path(name).is_file():
            names[name] = None
        else:
            found = sorted(p for p in glob.glob(name, recursive=True) if Path(p).is_file())
            closed = _closed(name)
            if not found:
                raise DataError(_none(name, closed))
            names.update(dict.fromkeys(found))
            unreadable += closed
    return Inputs(list(names), passed_over, unreadable)


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


def kind_of(name: str, reading: ReadOptions) -> tuple[str, str]:
    """Returns the row of SOURCES that reads `name`, and its argument. Raises UsageError for an unknown format."""
    scheme, colon, rest = name.partition(":")
    if colon and scheme in SOURCES and SOURCES[scheme].scheme:
        return scheme, rest
    if reading.format:
        return reading.format, name
    suffix = suffix_of(name)
    if suffix not in SUFFIXES:
        raise UsageError(
            f"{name}: the extension .{suffix} is unknown. Known: {', '.join(_endings())}. Otherwise pass the "
            "format: --format txt."
        )
    kind = SUFFIXES[suffix]
    if kind != "txt":
        return kind, name
    try:
        with opened(name) as stream:
            head = stream.read(64).removeprefix(codecs.BOM_UTF8).lstrip()
    except FAILURES:
        head = b""  # reading it will say what is wrong
    if head.startswith(b"<doc "):
        return "wiki", name
    return ("jsonl" if suffix == "" and head.startswith(b'{"') else "txt"), name


def _endings() -> list[str]:
    return [f".{suffix}" for suffix in SUFFIXES if suffix] + [f"each also .{c}" for c in COMPRESSIONS]


def _hint(name: str) -> str:
    parent = Path(name).parent
    names = [p.name for p in parent.iterdir()] if parent.is_dir() and not glob.has_magic(name) else []
    close = nearest(Path(name).name, names).partition(" Choices:")[0] if names else ""
    return f". {close.rstrip(' ?')}?" if close.startswith("Did") else "."


def spool(folder: Path, lines: Iterable[bytes] | None = None) -> Path:
    """Copies standard input, or lines, to a file in `folder`, so that it can be split into units."""
    path = folder / "standard-input"
    with atomic_write(path) as file:
        for piece in iter(lambda: sys.stdin.buffer.read(READ), b"") if lines is None else lines:
            file.write(piece)
    return path
