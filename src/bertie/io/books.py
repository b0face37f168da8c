"""Electronic books (epub): a zip file of XHTML chapters, read in their order as one document per book."""

import os
import posixpath
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from bertie.io import isolated, pages
from bertie.io.blocks import NO_MATCH, Item, ReadOptions, SourceKind, block_spans, file_size
from bertie.io.lines import LIMIT, UTF16, BadRecord
from bertie.io.streams import BOMB_BYTES, BOMB_RATIO, Unreadable, open_bytes
from bertie.registry import library

CONTAINER, ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
_SKIPPED_TAGS = (
    "head",
    "script",
    "style",
    "nav",
    "table",
    "svg",
    "math",
    "img",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "sup",
)
ENCRYPTED = "the book is encrypted (DRM or a password)"
NOTE_MARKS = "//a[contains(@*[name()='epub:type'], 'noteref') or @role='doc-noteref']"  # others are in <sup>
BREAK = "\u2029"  # Unicode's end of a paragraph
BLOCKS = ("p", "div", "section", "blockquote", "li", "dd", "dt", "pre", "br", "body", "figure", "aside", "hr")


def book_files(path: str, reading: ReadOptions) -> Iterator[tuple[Item, int]]:
    """Yields a book as one item."""
    library("lxml", "Electronic books (.epub)", "documents")
    yield from block_spans(path, NO_MATCH)


def book(item: Item, reading: ReadOptions, counts: Counter[str]) -> Iterator[str | BadRecord]:
    """Yields the paragraphs of a book as one document, without its headings, tables and contents."""
    text, counted = isolated.call(_text, os.path.abspath(item[0]), size=file_size(item[0]))
    counts.update(counted)
    yield text or BadRecord(0, "a book without text", where=item[0])


EPUB = SourceKind(book_files, book)


def _text(path: str) -> tuple[str, Counter[str]]:
    """Returns the text of a book, and counts what was removed."""
    counts = Counter[str]()
    with open_bytes(path, seekable=True) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return "\n\n".join(filter(None, map(chapter_paragraphs, _chapters(archive, counts)))), counts
        except (zipfile.BadZipFile, zlib.error, KeyError, NotImplementedError, RuntimeError) as error:
            reason = ENCRYPTED if "encrypted" in str(error) else f"not a readable epub ({error})"
            raise Unreadable(reason) from None


def _chapters(archive: zipfile.ZipFile, counts: Counter[str]) -> Iterator[bytes]:
    """Yields the chapters of a book in reading order, and counts missing ones.

    Raises Unreadable for encrypted ones, and for zip bombs.
    """
    sizes = [(part.file_size, part.compress_size) for part in archive.infolist()]
    full, packed = (sum(column) for column in zip(*sizes, strict=True)) if sizes else (0, 0)
    if full > max(BOMB_BYTES, BOMB_RATIO * packed):
        raise Unreadable(f"the file grows more than {BOMB_RATIO} times when decompressed, which no text does")
    names = set(archive.namelist())
    package = next((e.get("full-path", "") for e in _xml(archive, CONTAINER).iter("{*}rootfile")), "")
    if package not in names:
        raise Unreadable("not a readable epub: it names no package")
    root = _xml(archive, package)
    manifest = {e.get("id"): unquote(e.get("href", "")) for e in root.iter("{*}item")}
    secret = {e.get("URI") for e in _xml(archive, ENCRYPTION).iter("{*}CipherReference")} if ENCRYPTION in names else ()
    for reference in root.iter("{*}itemref"):
        name = posixpath.normpath(posixpath.join(posixpath.dirname(package), manifest.get(reference.get("idref"), "")))
        if name in secret:
            raise Unreadable(ENCRYPTED)
        counts["chapters that the file does not have"] += name not in names
        if name in names and reference.get("linear") != "no":
            yield _part(archive, name)


def _part(archive: zipfile.ZipFile, name: str) -> bytes:
    with archive.open(name) as file:
        content = file.read(LIMIT + 1)
    if len(content) > LIMIT:
        raise Unreadable(f"a part of the file is longer than {LIMIT >> 20} MiB")
    return content


def _xml(archive: zipfile.ZipFile, name: str) -> Any:
    """Returns the root of an XML file in a book. Entities stay as they are written, so that none can expand."""
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False)
    try:
        return etree.fromstring(_part(archive, name), parser)
    except etree.XMLSyntaxError as error:
        raise Unreadable(f"not a readable epub: {name} is not XML ({error})") from None


def chapter_paragraphs(chapter: bytes) -> str:
    """Returns the paragraphs of a chapter, separated by blank lines."""
    from lxml import etree

    encoding = "utf-16" if chapter.startswith(UTF16) else "utf-8"
    try:
        root = pages.html_tree(chapter, encoding)
    except (etree.LxmlError, ValueError):
        return ""
    for note in root.xpath(NOTE_MARKS):
        note.drop_tree()
    etree.strip_elements(root, *_SKIPPED_TAGS, with_tail=False)
    for element in root.iter(*BLOCKS):
        element.text = BREAK + (element.text or "")
        element.tail = BREAK + (element.tail or "")
    lines = (" ".join(line.split()) for line in root.text_content().split(BREAK))
    return "\n\n".join(filter(None, lines))
