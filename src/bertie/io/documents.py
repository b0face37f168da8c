"""The formats of documents: how a file is split into units of work, and how a unit is read.

Each reader yields documents (str) and, in their positions, dropped records, and counts what it removed inside
documents. No record can stop the reader.
"""

import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertie.errors import DataError, UsageError, nearest
from bertie.io.blocks import (
    BLANK_LINE,
    EXCERPT,
    LINE,
    NO_MATCH,
    Item,
    LineNumbers,
    ReadOptions,
    block_spans,
    decode_record,
    file_size,
    record_blocks,
)
from bertie.io.fields import as_text
from bertie.io.lines import BadRecord
from bertie.io.rows import records
from bertie.io.streams import FAILURES, Unreadable, open_bytes
from bertie.io.table_format import TableFormat
from bertie.registry import Later

DOCUMENT_ENDS = {"blank": BLANK_LINE, "line": LINE, "file": NO_MATCH}
WIKI_END = re.compile(rb"</doc>[ \t\r]*\n")
ONE_LIST = "not JSON lines: the file is one list; write one object per line"


def text_spans(path: str, reading: ReadOptions) -> Iterator[tuple[Item, int]]:
    """Yields a plain text in parts of whole documents."""
    yield from block_spans(path, DOCUMENT_ENDS[reading.documents])


def read_plain_text(item: Item, reading: ReadOptions, counts: Counter[str]) -> Iterator[str | BadRecord]:
    """Plain text: a document ends at a blank line, at every line end, or with the file."""
    end, path = DOCUMENT_ENDS[reading.documents], item[0]
    for line, block in record_blocks(item, end, counts):
        if isinstance(block, BadRecord):
            yield block
            continue
        start, lines = 0, LineNumbers(block, line)
        for stop in [match.end() for match in end.finditer(block)] + [len(block)]:
            raw = block[start:stop]
            if raw and not raw.isspace():
                document = decode_record(raw, reading, path, 0)
                if isinstance(document, BadRecord):
                    document = replace(document, line=document.line + lines.at(start))
                yield document
            start = stop


def jsonl(item: Item, reading: ReadOptions, counts: Counter[str]) -> Iterator[str | BadRecord]:
    """One JSON object per line, with the text in one of its fields."""
    path, field = item[0], reading.text
    for first, block in record_blocks(item, LINE, counts):
        if isinstance(block, BadRecord):
            yield block
            continue
        for line, raw in enumerate(block.split(b"\n"), first):
            if not raw or raw.isspace():
                continue
            text = decode_record(raw, reading, path, line)
            if isinstance(text, BadRecord):
                yield text
                continue
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                whole = line == 1 and text.lstrip().startswith("[")
                yield BadRecord(line, ONE_LIST if whole else "not JSON", text[:EXCERPT], where=path)
                continue
            if isinstance(value, dict) and isinstance(document := value.get(field), str):
                yield document
            elif isinstance(value, list) and line == 1:
                yield BadRecord(line, ONE_LIST, text[:EXCERPT], where=path)
            elif not isinstance(value, dict):
                yield BadRecord(line, "not a JSON object", text[:EXCERPT], where=path)
            elif field in value:
                yield BadRecord(line, f"the field {field!r} is not a text", text[:EXCERPT], where=path)
            else:
                yield BadRecord(line, f"no field {field!r} (name it: --text FIELD)", text[:EXCERPT], where=path)


def read_table_texts(kind: str, item: Item, reading: ReadOptions, counts: Counter[str]) -> Iterator[str | BadRecord]:
    """Tables of any format with one text per row."""
    path, column = item[0], reading.text
    format = TableFormat.of((column,), encoding=reading.encoding, kind=kind)
    for line, row in records(path, format):
        if isinstance(row, BadRecord):
            yield replace(row, where=path)
        elif column not in row:
            raise _no_column(path, column, row)
        elif not isinstance(document := row[column], str):
            yield BadRecord(line, f"no text in column {column!r}", where=path)
        else:
            yield document


def table_file(kind: str, path: str, reading: ReadOptions) -> Iterator[tuple[Item, int]]:
    """Yields a csv or tsv as one item. Raises UsageError without texts; `read_table_texts` reports other faults."""
    with suppress(DataError, *FAILURES):
        any(isinstance(text, str) for text in read_table_texts(kind, [path, 0, -1], reading, Counter()))
    yield from block_spans(path, NO_MATCH)


def _no_column(path: str, column: str, names: Iterable[str]) -> UsageError:
    return UsageError(f"{path} has no column {column!r}. {nearest(column, names)} Pass --text COLUMN.")


def row_groups(path: str, reading: ReadOptions) -> Iterator[tuple[Item, int]]:
    """Yields the row groups of a parquet file as [path, row group, its first row]. The reader reports damaged ones.

    Raises UsageError if it has no column of texts.
    """
    import pyarrow
    import pyarrow.parquet

    size = file_size(path)
    try:
        with open_bytes(path, seekable=True) as file:
            table = pyarrow.parquet.ParquetFile(file)
            metadata = table.metadata
            if reading.text not in (names := table.schema_arrow.names):
                raise _no_column(path, reading.text, names)
        row = 1
        for group in range(metadata.num_row_groups):
            yield [path, group, row], metadata.row_group(group).total_byte_size
            row += metadata.row_group(group).num_rows
    except (pyarrow.ArrowException, ValueError, OverflowError, *FAILURES):
        yield [path, 0, 1], size


def parquet(item: Item, reading: ReadOptions, counts: Counter[str]) -> Iterator[str | BadRecord]:
    """Reads one row group of a parquet file; `line` of a dropped record is the row's number in the file."""
    import pyarrow
    import pyarrow.parquet

    path, group, row = item
    column = reading.text
    try:
        with open_bytes(path, seekable=True) as stream:
            file = pyarrow.parquet.ParquetFile(stream)
            for batch in file.iter_batches(batch_size=256, row_groups=[group], columns=[column]):
                for value in batch.column(0).to_pylist():
                    if isinstance(text := as_text(value) if isinstance(value, bytes) else value, str):
                        yield text
                    else:
                        yield BadRecord(row, f"no text in column {column!r}", str(value)[:EXCERPT], where=path)
                    row += 1
    except (pyarrow.ArrowException, ValueError, OverflowError) as error:
        raise Unreadable(f"not a readable parquet file ({str(error).splitlines()[0]}); it may be truncated") from None


WIKI_HEAD = re.compile(rb"<doc\b([^\n]*)\n")  # ends in ">", which is checked apart: a line may have many of both
WIKI_TITLE = re.compile(r'\btitle="([^\n]*)"')
# Lines that are markup and nothing else: table rows and templates, links to files and categories, lone tags.
WIKI_MARKUP = re.compile(
    r"^[ \t]*(?:\{\||\|\}|\|-|\|[^\n|]*=|!|\{\{|\}\}|__[A-Z]+__|\[\[\w+:[^\n\]]*\]\][ \t]*$|(?:<[^<>\n]*>[ \t]*)+$)"
    r"[^\n]*\n?",
    re.MULTILINE,
)


def wiki(item: Item, reading: ReadOptions, counts: Counter[str]) -> Iterator[str | BadRecord]:
    """WikiExtractor's output: <doc ...>, the title, the text, </doc>. The title is a heading and is left out."""
    for article in articles(item, reading, counts):
        yield article if isinstance(article, BadRecord) else article[1]


def articles(item: Item, reading: ReadOptions, counts: Counter[str]) -> Iterator[tuple[str, str] | BadRecord]:
    """Yields the title and the text of each article in WikiExtractor's output."""
    path = item[0]
    for line, block in record_blocks(item, WIKI_END, counts):
        if isinstance(block, BadRecord):
            yield block
            continue
        last, lines = 0, LineNumbers(block, line)
        heads = (match for match in WIKI_HEAD.finditer(block) if match[1].rstrip(b" \t\r").endswith(b">"))
        for head in heads:
            if head.start() < last:
                continue
            yield from _outside(block, last, head.start(), path, lines)
            stop = block.find(b"</doc>", head.end())
            if stop < 0:
                last = head.start()
                break
            last = stop + len(b"</doc>")
            document = decode_record(block[head.end() : stop], reading, path, 0)
            if isinstance(document, BadRecord):
                yield replace(document, line=document.line + lines.at(head.end()))
                continue
            heading, _, body = document.lstrip().partition("\n")
            match = WIKI_TITLE.search(head[1].decode(reading.encoding, "replace"))
            title = html.unescape(match[1]).strip() if match else ""
            if title and heading.strip() == title:
                document = body
            document, removed = WIKI_MARKUP.subn("", document)
            counts["lines of wiki markup removed"] += removed
            yield title, document
        yield from _outside(block, last, len(block), path, lines)


def _outside(block: bytes, start: int, stop: int, path: str, lines: LineNumbers) -> Iterator[BadRecord]:
    stray = block[start:stop].lstrip()
    if stray:
        line = lines.at(stop - len(stray))
        yield BadRecord(
            line, "text outside <doc> ... </doc>", stray[:EXCERPT].decode("utf-8", "replace").rstrip(), where=path
        )


_PYTHON_PACKAGE = Later[Callable[[str], Any]]("bertie.apps.pydocs", "PythonPackage")


def package_items(packages: str, reading: ReadOptions) -> Iterator[tuple[Item, int]]:
    """Yields the files of installed Python packages, "numpy,scipy", as [path, package, the package's folder]."""
    for package in filter(None, map(str.strip, packages.split(","))):
        documented = _PYTHON_PACKAGE.found()(package)
        for path in documented.files():
            yield [str(path), package, str(documented.root)], path.stat().st_size


def read_documentation(item: Item, reading: ReadOptions, counts: Counter[str]) -> Iterator[str | BadRecord]:
    """Reads the documentation in one file of a package as one document."""
    path, package, _root = item
    module = _PYTHON_PACKAGE.found()(package).read(Path(path))
    yield module.text if module else BadRecord(0, "a module without documentation", None, where=path)
