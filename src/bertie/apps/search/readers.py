"""Readers of documents for an index: a file becomes documents, each with its place, or a reason why it is none.

A new format is one row of READERS. A row of a table, a paragraph of SQuAD's JSON and an article of WikiExtractor's
output are documents; so is any other file as a whole.
"""

import logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from json import dumps
from typing import Any

import xxhash

from bertie.apps.pydocs import PythonPackage
from bertie.platform import (
    BadRecord,
    DataError,
    File,
    Registry,
    SourceFile,
    SourceFiles,
    TableFormat,
    UsageError,
)

PACKAGES = "python:"
LOCKED = "the PDF is encrypted, and needs its password: save it without one"
CODE = re.compile(r"^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\1|\Z)", re.M | re.S)  # its comments may begin with #
HEADING = re.compile(r"^#{1,6}[ \t]+(.+)$", re.M)
IDS, TITLES, TEXTS = ("_id", "id", "docid"), ("title",), ("text", "passage", "context", "content", "document", "body")


@dataclass(frozen=True)
class SourceDocument:
    """A text with its place: `line` of its first character in the file, from 1; 0 where a format has no lines.

    name: its id, where the file has ids. page: of a PDF, from 1. row: the line of a row of a table, instead of `line`.
    """

    text: str
    name: str = ""
    title: str = ""
    line: int = 0
    page: int = 0
    row: int = 0


@dataclass(frozen=True)
class Reading:
    """How files are read. text: column of the text; title: of the title; encoding: of plain text and tables."""

    text: str = ""
    title: str = ""
    encoding: str = "utf-8"


DocumentStream = Iterator[SourceDocument | BadRecord]
_Reader = Callable[[str, Reading], DocumentStream]


def read_table_rows(path: str, reading: Reading) -> DocumentStream:
    """Rows of csv, tsv, jsonl, json, parquet and xlsx: a text, and a title and an id where there are columns for
    them."""
    for line, row in SourceFile(path).rows(TableFormat.of(encoding=reading.encoding)):
        if isinstance(row, BadRecord):
            yield replace(row, where=path)
            continue
        column = reading.text or next((name for name in TEXTS if name in row), "")
        title = next((row[name] for name in ((reading.title,) if reading.title else TITLES) if row.get(name)), "")
        name = next((str(row[name]) for name in IDS if row.get(name) not in (None, "")), "")
        if not isinstance(text := row.get(column), str):
            known = ", ".join(map(repr, row))
            reason = f"no text in column {column or 'text'!r} (name it: --text COLUMN; there are {known})"
            yield BadRecord(line, reason, where=path)
        elif not (text.strip() or str(title).strip()):
            yield BadRecord(line, "empty text", where=path)
        else:
            yield SourceDocument(text, name, str(title), row=line)


def json(path: str, reading: Reading) -> DocumentStream:
    """The paragraphs of a file in SQuAD's format, each once; otherwise the rows of a table."""
    with SourceFile(path).open() as file:
        squad = re.search(rb'"paragraphs"\s*:', file.read(1 << 16)) is not None
    if not squad:
        yield from read_table_rows(path, reading)
        return
    known: set[str] = set()
    for row in SourceFile(path).questions(TableFormat.of(labelled=False)):
        if isinstance(row, BadRecord):
            yield BadRecord(0, row.reason, where=path)
        elif row.texts[1] not in known:
            known.add(row.texts[1])
            yield SourceDocument(row.texts[1])


def read_text_file(path: str, reading: Reading) -> DocumentStream:
    """A plain text as one document, and WikiExtractor's output as many."""
    source = SourceFile(path, reading.encoding)
    if (kind := source.kind) == "jsonl":
        yield from read_table_rows(path, reading)
        return
    for one in source.documents():
        yield one if isinstance(one, BadRecord) else SourceDocument(one[1], title=one[0], line=int(kind == "txt"))


def markdown(path: str, reading: Reading) -> DocumentStream:
    """Markdown as it is written, so that places are those of the file. The first heading is the title."""
    for document in read_text_file(path, reading):
        if isinstance(document, BadRecord):
            yield document
            continue
        heading = HEADING.search(CODE.sub("", document.text))
        yield SourceDocument(document.text, title=heading[1].rstrip(" \t#").strip() if heading else "", line=1)


def web_page(path: str, reading: Reading) -> DocumentStream:
    """The main text of an HTML page, without menus and footers (trafilatura). Needs the extra [documents]."""
    page = SourceFile(path).main_text()
    yield page if isinstance(page, BadRecord) else SourceDocument(page[1], title=page[0])


def pdf(path: str, reading: Reading) -> DocumentStream:
    """The pages of a PDF with text, each a document (pypdf). Needs the extra [documents]."""
    _pypdf()
    yield from SourceFile(path).isolated(_pdf_pages, os.path.abspath(path), path)


def _pdf_pages(file_path: str, path: str) -> DocumentStream:
    """Yields the pages of a PDF. path: its name in records."""
    pypdf, source = _pypdf(), SourceFile(file_path)
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # what it says of a damaged file is in the record
    empty = 0
    with source.open(seekable=True) as file:
        try:
            book = pypdf.PdfReader(file)
            if book.is_encrypted and not book.decrypt(""):  # many have no password, only an owner's
                yield BadRecord(0, LOCKED, where=path)
                return
            title = _whole(str(getattr(book.metadata, "title", None) or ""))
            for number, page in enumerate(book.pages, 1):
                text = _whole(page.extract_text())
                empty += not text.strip()
                if text.strip():
                    yield SourceDocument(text, title=title, page=number)
        except (MemoryError, RecursionError):
            raise
        except pypdf.errors.DependencyError:
            yield BadRecord(
                0, f"{LOCKED}; without a password, it can be read after pip install cryptography", where=path
            )
            return
        except Exception as error:  # a damaged PDF raises anything
            if source.failure(error):
                raise
            yield BadRecord(0, f"not a readable PDF ({str(error) or type(error).__name__})", where=path)
            return
    if empty:
        yield BadRecord(0, f"{empty:,} pages without text (scanned?)", None, where=path)


def _pypdf() -> Any:
    """Returns pypdf. Raises UsageError with the command that installs it."""
    try:
        import pypdf
    except ImportError:
        raise UsageError('PDF files need the package pypdf. Run: pip install "bertie[documents]"') from None
    return pypdf


def _whole(text: str) -> str:
    """Returns a text whose surrogate pairs are characters, and with U+FFFD for half of a pair."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


READERS: Registry[_Reader] = Registry(
    "format of documents",
    [
        *((name, read_text_file) for name in ("txt", "rst")),
        ("md", markdown),
        *((name, read_table_rows) for name in ("jsonl", "csv", "tsv", "parquet", "xlsx")),
        ("json", json),
        ("html", web_page),
        ("pdf", pdf),
    ],
)


def expand(inputs: list[str]) -> SourceFiles:
    """Returns the files of files, folders and globs, each once and in order, and what was skipped in folders.

    Raises DataError for a name that does not exist, and for a file or a folder without a known format.
    """
    files = SourceFiles.of(inputs, [*READERS])
    for name in files.names:
        if not name.startswith(PACKAGES) and SourceFile(name).format not in READERS:
            raise DataError(f"{name} has an unknown format. Known: {', '.join(READERS)}.")
    return files


def hash_source(path: str) -> str:
    """Returns a hash of a file, or of the files of packages. Raises DataError and OSError."""
    if not path.startswith(PACKAGES):
        return File(path).hash
    return xxhash.xxh3_128_hexdigest(
        dumps(
            {str(file): File(file).hash for package in _names(path) for file in PythonPackage(package).files()},
            sort_keys=True,
        ).encode()
    )


def _names(packages: str) -> list[str]:
    """Returns the packages of "python:numpy,scipy"."""
    return [name for part in packages.removeprefix(PACKAGES).split(",") if (name := part.strip())]


def packages(path: str, reading: Reading) -> DocumentStream:
    """The documentation of installed Python packages: "python:numpy,scipy". A module is a document."""
    for package in _names(path):
        source = PythonPackage(package)
        for file in source.files():
            if module := source.read(file):
                yield SourceDocument(module.text, ".".join(file.relative_to(source.root.parent).with_suffix("").parts))


def read_documents(path: str, reading: Reading) -> DocumentStream:
    """Yields the documents of a file, and the records that are none. A file that cannot be read is one record."""
    try:
        yield from (packages if path.startswith(PACKAGES) else READERS[SourceFile(path).format])(path, reading)
    except Exception as error:
        reason = SourceFile(path).failure(error) or (str(error) if isinstance(error, DataError) else "")
        if not reason:
            raise
        yield BadRecord(0, reason, where=path)
