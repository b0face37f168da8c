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
from bertie.files import atomic_write, full_disk
from bertie.registry import Later, Registry


class Unit(NamedTuple):
    """Work for one process: items of one source, in order, and their size in bytes."""

    source: str
    items: list[Item]
    size: int


def plan(inputs: Iterable[str], reading: ReadOptions) -> tuple[list[Unit], list[str]]:
    """Returns the units of all inputs (files, folders, globs, "name:..."), in order, and the skipped files of folders.

    Raises DataError for missing or empty inputs, UsageError for an unknown format or encoding.
    """
    if reading.format and reading.format not in SOURCES:
        raise UsageError(f"Unknown format {reading.format!r}. {nearest(reading.format, SOURCES)}")
    check_encoding(reading.encoding)
    units: list[Unit] = []
    size = 0  # of the last unit
    names, passed_over = expand(inputs, reading)
    for name in names:
        kind, about = kind_of(name, reading)
        for item, bytes_ in SOURCES[kind].plan(about, reading):
            if not units or units[-1].source != kind or size >= UNIT:
                units.append(Unit(kind, [], 0))
                size = 0
            units[-1].items.append(item)
            size += bytes_
            units[-1] = units[-1]._replace(size=size)
    return units, passed_over


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


def expand(inputs: Iterable[str], reading: ReadOptions) -> tuple[list[str], list[str]]:
    """Returns every file (or "name:...") of the inputs once, and the files of unknown format in folders."""
    names: dict[str, None] = {}
    passed_over = []
    for given in inputs:
        scheme, name = given.partition(":")[0], given and os.path.normpath(given)  # ./a.txt is a.txt
        if scheme in SOURCES and SOURCES[scheme].scheme:
            names[given] = None
        elif Path(name).is_dir():
            inside = sorted(p for p in Path(name).rglob("*") if p.is_file())
            visible = [p for p in inside if not any(part.startswith(".") for part in p.relative_to(name).parts)]
            known = {p: None for p in visible if reading.format or suffix_of(p) in SUFFIXES}
            if not known:
                raise DataError(f"The folder {name} contains no file of a known format ({', '.join(_endings())}).")
            names.update(dict.fromkeys(map(str, known)))
            passed_over += [str(p) for p in visible if p not in known]
        elif Path(name).is_file():
            names[name] = None
        else:
            found = sorted(p for p in glob.glob(name, recursive=True) if Path(p).is_file())
            if not found:
                raise DataError(f"{name} does not exist{_hint(name)}")
            names.update(dict.fromkeys(found))
    return list(names), passed_over


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


def spool(folder: Path) -> Path:
    """Copies standard input to a file in `folder`, so that it can be split into units."""
    path = folder / "standard-input"
    with atomic_write(path) as file:
        while piece := sys.stdin.buffer.read(READ):
            file.write(piece)
    return path
