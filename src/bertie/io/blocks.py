"""Reads a file in blocks of whole records, in bounded memory."""

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from bertie.errors import UnreadableFile
from bertie.io.lines import A_ZIP, LIMIT, NOT_TEXT, UTF16, ZIP, BadRecord, old_mac, reads_as_korean, reads_as_utf8
from bertie.io.streams import FAILURES, MEMBERS, Unreadable, compression, members, open_bytes

UNIT = 4 << 20  # bytes of input in a unit of work; compressed ones count four times
READ_BYTES = 4 << 20  # bytes read at once
MOST_PARTS = 2000  # of a compressed file: each is checked when the work is planned, at 50 ms for bzip2
EXCERPT = 200  # characters of a bad record that are shown

Documents = Literal["blank", "line", "file"]
Item = list[Any]  # JSON values that name a piece of work: [path, start, stop]


LINE = re.compile(rb"\n")
BLANK_LINE = re.compile(rb"\n[ \t\r]*\n")
NO_MATCH = re.compile(rb"(?!)")


@dataclass(frozen=True)
class ReadOptions:
    """How files are read. format: a row of SOURCES, or "" for the one inferred from name and content."""

    format: str = ""
    text: str = "text"  # field or column
    encoding: str = "utf-8"
    documents: Documents = "blank"  # of plain text: what ends one


@dataclass(frozen=True)
class SourceKind:
    """A kind of source. plan: name -> its items, each with its size in bytes; read: the documents of an item.

    `read` also counts, under a short name, what it removed or split inside documents. `spans`: whether items are [path,
    start byte, stop byte], and lines of dropped records count from the start. A `scheme` is requested by name
    ("python:numpy"); everything else is a file.
    """

    plan: Callable[[str, ReadOptions], Iterable[tuple[Item, int]]]
    read: Callable[[Item, ReadOptions, Counter[str]], Iterator[str | BadRecord]]
    spans: bool = False
    scheme: bool = False


def block_spans(path: str, end: re.Pattern[bytes]) -> Iterator[tuple[Item, int]]:
    """Yields a file as [path, start, stop] of about UNIT bytes each, split after a record's end; a compressed one as a
    whole."""
    size = file_size(path)
    if compression(path) or end is NO_MATCH:
        yield [path, 0, -1], 4 * size if compression(path) else size
        return
    ends = _line_ends(path)
    with open(path, "rb") as file:
        start = 0
        while start < size:
            stop = _next_end(file, end, start + UNIT, ends) if start + UNIT < size else size
            yield [path, start, stop], stop - start
            start = stop


def parts(path: str, end: re.Pattern[bytes], begins: re.Pattern[bytes]) -> Iterator[tuple[Item, int]]:
    """Yields a file as `spans` does, and one of many compressed members in parts that start with `begins`."""
    size = file_size(path)
    if compression(path) not in MEMBERS:
        yield from block_spans(path, end)
        return
    for start, stop in members(path, begins=begins, size=max(UNIT // 4, size // MOST_PARTS)):
        yield [path, start, stop], 4 * (stop - start)


def file_size(path: str) -> int:
    """Returns the size of a file in bytes. Raises DataError when it cannot be opened."""
    try:
        size = Path(path).stat().st_size
        with open(path, "rb"):
            pass
    except OSError as error:
        raise UnreadableFile.of(path, error) from None
    return size


def _line_ends(path: str) -> bytes:
    """Returns the byte that ends the lines of a file: a line feed, or a carriage return in files of old Macs."""
    with suppress(*FAILURES), open_bytes(path) as stream:
        return b"\r" if old_mac(stream.readline(LIMIT)) else b"\n"
    return b"\n"  # reading it will say what is wrong


def _next_end(file: IO[bytes], end: re.Pattern[bytes], position: int, ends: bytes) -> int:
    """Returns the end, in bytes, of the first record that ends at or after `position`."""
    position -= 1
    file.seek(position)
    buffer = b""
    while piece := file.read(1 << 16):
        buffer = buffer[-256:] + piece.replace(ends, b"\n")  # an end may lie across two pieces
        position += len(piece)
        if match := end.search(buffer):
            return position - len(buffer) + match.end()
    return position


class LineNumbers:
    """The line numbers of growing positions in a block of bytes, each counted from the one before."""

    def __init__(self, block: bytes, first: int) -> None:
        self._block, self._line, self._position = block, first, 0

    def at(self, position: int) -> int:
        """Returns the line of a position, which is not before that of the last call."""
        self._line += self._block.count(b"\n", self._position, position)
        self._position = position
        return self._line


def record_blocks(item: Item, end: re.Pattern[bytes], counts: Counter[str]) -> Iterator[tuple[int, bytes | BadRecord]]:
    """Yields (number of its first line, block of whole records) of a part of a file; lines count from the part's start.

    A document longer than LIMIT is split at a line end, and counted; a longer line is dropped.
    """
    path, start, stop = item
    ends = _line_ends(path)
    with open_bytes(path, start, stop) as stream:
        rest: bytes | None = b""
        line = 1
        for number, piece in enumerate(_pieces(stream)):
            if number == 0 and start == 0:
                piece = _without_mark(piece)
            piece = piece.replace(ends, b"\n")
            if rest is None:  # inside a line that is dropped
                past = piece.find(b"\n") + 1
                if not past:
                    continue
                piece, rest, line = piece[past:], b"", line + 1
            buffer = rest + piece
            cut = _last_end(end, buffer)
            if not cut and len(buffer) > LIMIT:
                cut = buffer.rfind(b"\n") + 1
                if not cut:
                    excerpt = buffer[:EXCERPT].decode("utf-8", "replace")
                    yield line, BadRecord(line, f"a line longer than {LIMIT >> 20} MiB", excerpt, where=path)
                    rest = None
                    continue
                counts[f"documents cut, longer than {LIMIT >> 20} MiB"] += 1
            block, rest = buffer[:cut], buffer[cut:]
            if block:
                yield line, block
                line += block.count(b"\n")
        if rest:
            yield line, rest


def _pieces(stream: IO[bytes]) -> Iterator[bytes]:
    """Yields READ bytes at a time. Where reading fails, the bytes read before are returned first."""
    gathered, size = list[bytes](), 0
    try:
        while piece := stream.read1(min(READ_BYTES, 1 << 16)):  # type: ignore[attr-defined]  # of buffered readers
            gathered.append(piece)
            size += len(piece)
            if size >= READ_BYTES:
                yield b"".join(gathered)
                gathered, size = [], 0
    except FAILURES:
        yield b"".join(gathered)
        raise
    yield b"".join(gathered)


def _last_end(end: re.Pattern[bytes], buffer: bytes) -> int:
    """Returns the end of the last record that ends in `buffer`, or 0."""
    if end is LINE:
        return buffer.rfind(b"\n") + 1
    for start in (max(0, len(buffer) - (1 << 16)), 0):  # nearly always close to the end
        cut = 0
        for match in end.finditer(buffer, start):
            cut = match.end()
        if cut:
            return cut
    return 0


def _without_mark(head: bytes) -> bytes:
    if head.startswith(UTF16):
        raise Unreadable("the file is UTF-16; convert it to UTF-8 (iconv -f utf-16 -t utf-8)")
    if head.startswith(ZIP):
        raise Unreadable(f"the file is {A_ZIP}")
    if head.count(b"\0", 0, 4096) > min(len(head), 4096) // 8:
        raise Unreadable(f"the file is {NOT_TEXT}")
    return head.removeprefix(codecs.BOM_UTF8)


def decode_record(raw: bytes, reading: ReadOptions, where: str, line: int) -> str | BadRecord:
    """Returns the text of a record. Its encoding is never guessed, but CP949 and UTF-8 are named."""
    try:
        return raw.decode(reading.encoding)
    except UnicodeDecodeError as error:
        line += raw.count(b"\n", 0, error.start)
        around = raw[raw.rfind(b"\n", 0, error.start) + 1 :].partition(b"\n")[0]
        if reading.encoding == "utf-8" and reads_as_korean(around):
            reason = "not UTF-8 but reads as CP949: pass --encoding cp949"
            return BadRecord(line, reason, around.decode("cp949")[:EXCERPT], where=where)
        if reads_as_utf8(around):
            reason = f"not {reading.encoding.upper()} but reads as UTF-8: omit --encoding"
            return BadRecord(line, reason, around.decode()[:EXCERPT], where=where)
        text = around[: 4 * EXCERPT].decode(reading.encoding, "replace")
        return BadRecord(line, f"not {reading.encoding.upper()}", text[:EXCERPT], where=where)
