"""Web archives: the pages of WARC files, and the texts of WET files (warcio)."""

import io
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr
from typing import Any

from bertie.io import isolated, pages
from bertie.io.blocks import EXCERPT, NO_MATCH, Item, ReadOptions, SourceKind, decode_record, parts
from bertie.io.lines import LIMIT, BadRecord
from bertie.io.streams import Unreadable, open_bytes
from bertie.registry import library

RECORD_BEGINS = re.compile(rb"(?:\r\n)*WARC/1")
MARKUP, PLAIN = ("text/html", "application/xhtml+xml"), "text/plain"


def archives(path: str, reading: ReadOptions) -> Iterator[tuple[Item, int]]:
    """Yields the parts of an archive. One whose records are compressed one by one (.gz) is split between records."""
    library("warcio", "Web archives (WARC, WET)", "corpora")
    pages.needed()
    yield from parts(path, NO_MATCH, RECORD_BEGINS)


def page_texts(item: Item, reading: ReadOptions, counts: Counter[str]) -> Iterator[str | BadRecord]:
    """Yields the text of every page in a part of an archive. Records that are no pages are dropped, by their type."""
    from warcio.archiveiterator import ArchiveIterator
    from warcio.exceptions import ArchiveLoadFailed
    from warcio.statusandheaders import StatusAndHeadersParserException

    path = item[0]
    with open_bytes(*item) as stream:
        records = ArchiveIterator(_Truncated(stream))
        records.INC_RECORD = ""  # its own message on standard error
        faults = 0
        try:
            for record in records:
                if records.err_count > faults:
                    faults = records.err_count
                    yield BadRecord(0, "a record of a wrong length", where=path)
                yield _text(record, path, reading)
        except (ArchiveLoadFailed, StatusAndHeadersParserException) as error:
            raise Unreadable(f"not a web archive, or damaged ({' '.join(str(error).split())[:EXCERPT]})") from None


WARC = SourceKind(archives, page_texts)


def _text(record: Any, path: str, reading: ReadOptions) -> str | BadRecord:
    """Returns the text of one record of an archive."""
    if record.rec_type not in ("response", "resource", "conversion"):
        return BadRecord(0, f"no page: a record of type {record.rec_type}", None, where=path)
    headers = record.http_headers
    if headers is not None and (status := headers.get_statuscode()) != "200":
        return BadRecord(0, f"no page: status {status if status.isdigit() else 'unknown'}", None, where=path)
    address = str(record.rec_headers.get_header("WARC-Target-URI"))[:EXCERPT]
    kind, _, options = str((headers or record.rec_headers).get_header("Content-Type") or "").lower().partition(";")
    if (kind := kind.strip()) not in (*MARKUP, PLAIN):
        return BadRecord(0, "no page: neither HTML nor plain text", None, where=path)
    with redirect_stderr(io.StringIO()):  # warcio prints what is wrong with compressed content
        try:
            content = record.content_stream().read(LIMIT + 1) if (record.length or 0) <= LIMIT else None
        except (AssertionError, ValueError) as error:  # wrong lengths of chunks
            return BadRecord(0, f"a page that cannot be decoded ({type(error).__name__})", address, where=path)
    if content is None or len(content) > LIMIT:
        return BadRecord(0, f"a page longer than {LIMIT >> 20} MiB", address, where=path)
    if getattr(record.raw_stream, "limit", 0) and not record.raw_stream.read(1):
        return BadRecord(0, "a record shorter than its length", address, where=path)
    if headers is not None and _still_compressed(str(headers.get_header("Content-Encoding") or ""), content):
        return BadRecord(0, "a page in a compression that is not read (Content-Encoding)", address, where=path)
    charset = options.partition("charset=")[2].strip(" \"'").partition(";")[0]
    if kind == PLAIN:
        text = pages.decode_page(content, charset)
        body = text if isinstance(text, str) else decode_record(content, reading, path, 0)
    else:
        try:
            body = isolated.call(pages.main_text, content, charset=charset, size=len(content))[1]
        except Unreadable as error:
            return BadRecord(0, f"a page that cannot be read: {error}", address, where=path)
    return body or BadRecord(0, pages.no_text(content), address, where=path)


def _still_compressed(encoding: str, content: bytes) -> bool:
    """Returns whether warcio left a page compressed, such as by br without the package brotli.

    Some crawlers decompress pages and keep the header. Such a page is text.
    """
    from warcio.bufferedreaders import BufferedReader

    if encoding.strip().lower() in ("", "identity", *BufferedReader.get_supported_decompressors()):
        return False
    try:
        return "\0" in content.decode()
    except UnicodeDecodeError:
        return re.search(rb"<!?(html|head|body|meta|doctype)\b", content[:1024], re.IGNORECASE) is None


class _Truncated:
    """A stream whose early end is not taken for the end of the last record."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, size: int = -1, /) -> bytes:
        try:
            piece: bytes = self._stream.read1(size)
        except EOFError:
            raise Unreadable("the file is truncated") from None
        return piece
