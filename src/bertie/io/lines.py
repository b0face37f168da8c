"""Reads lines of text from bytes in bounded memory, for readers of tables and of tagged sentences."""

import codecs
import io
import json
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from bertie.errors import BadFile, DataError, UnknownName, UnreadableFile
from bertie.io import memory, streams
from bertie.io.table_format import UTF8, FileFormat

LIMIT = 16 << 20  # bytes of the longest line: what bounds memory
MAX_WHOLE_BYTES = 1 << 30  # bytes of the largest file that is read at once, as JSON of one value must be
ZIP = b"PK\x03\x04"  # how an archive begins
A_ZIP = "a zip archive, as Excel workbooks (.xlsx) are; unpack it, or save it as .csv"
NOT_TEXT = "not text, or UTF-16 without a byte order mark; convert it to UTF-8 first"
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # the byte order marks, with which a file begins
LINE_END = re.compile(rb"\r\n?|\n")
_KEPT = "\n\r\t ,;:.\"'#-+{}[]()\\n0123456789abcxyzABCXYZ"  # what every format is made of, in ASCII


@dataclass(frozen=True)
class BadRecord:
    """A record that cannot be used: its place, the reason, in words that many can share, and how it begins.

    line: counted from byte `start` of the file `where`, from 1; 0: unknown. excerpt: None where the record itself is
    correct, and is left out for what it is. source: the fields of a row, as far as it could be read.
    """

    line: int
    reason: str
    excerpt: str | None = ""
    where: str = field(default="", kw_only=True)
    start: int = field(default=0, kw_only=True)
    source: Mapping[str, Any] | None = field(default=None, compare=False, kw_only=True)

    def as_json(self) -> bytes:
        """Returns the record as a line of JSON."""
        names = ("reason", "where", "line", "excerpt", "start")
        return json.dumps({name: getattr(self, name) for name in names}).encode() + b"\n"


def where_of(path: Path | str) -> str:
    """Returns the name of a file in messages."""
    return "standard input" if str(path) == "-" else str(path)


def open_file(path: Path | str) -> AbstractContextManager[IO[bytes]]:
    """Context with a file, or standard input ("-"), which stays open.

    A file is decompressed by its extension, and read as UTF-8 where it is UTF-16 with a byte order mark, as Windows
    writes it. Raises DataError with the reason.
    """
    if str(path) == "-":
        return nullcontext(standard_input())
    if memory.in_memory(path):
        return nullcontext(memory.stream_of(path))
    return _decompressed(path) if streams.compression(path) else _in_utf8(_plain(path), path)


def _plain(path: Path | str) -> io.BufferedReader:
    try:
        file = open(path, "rb")  # noqa: SIM115 (the caller closes it)
    except OSError as error:
        raise UnreadableFile.of(path, error) from None
    if stat.S_ISCHR(os.fstat(file.fileno()).st_mode) and not file.isatty() and Path(path) != Path(os.devnull):
        file.close()
        raise DataError(f"{path} is a device without an end; a file was expected.")
    return file


@contextmanager
def _decompressed(path: Path | str) -> Iterator[IO[bytes]]:
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(streams.open_bytes(path))
        except OSError as error:
            raise UnreadableFile.of(path, error) from None
        yield _in_utf8(io.BufferedReader(_Damaged(stream, path), 1 << 16), path)


class _Damaged(io.RawIOBase):
    """A decompressed stream whose failures are DataErrors."""

    def __init__(self, stream: IO[bytes], path: Path | str) -> None:
        self._stream, self._path = stream, path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            piece = cast(io.BufferedReader, self._stream).read1(len(buffer))
        except streams.FAILURES as error:
            raise DataError(f"{self._path} cannot be decompressed: {streams.cause(error)}.") from None
        buffer[: len(piece)] = piece
        return len(piece)


def _in_utf8(file: io.BufferedReader, path: Path | str) -> io.BufferedReader:
    if not file.peek(2).startswith(UTF16):
        return file
    return io.BufferedReader(_Recoded(file, path), 1 << 16)


class _Recoded(io.RawIOBase):
    """UTF-16 as UTF-8. Half of a surrogate pair is kept, and costs its own line when it is decoded."""

    def __init__(self, file: io.BufferedReader, path: Path | str) -> None:
        self._text = io.TextIOWrapper(file, "utf-16", "surrogatepass", newline="")
        self._path = path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            piece = self._text.read(len(buffer) // 4).encode("utf-8", "surrogatepass")  # four bytes a character at most
        except UnicodeDecodeError:
            raise BadFile(f"{self._path} is damaged: it is UTF-16 and ends within a character.") from None
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        self._text.close()
        super().close()


def valid_lines(path: Path | str) -> Iterator[str]:
    """Yields the lines of a text file. Raises DataError for a line that is not UTF-8, or too long."""
    with open_file(path) as file:
        for number, line in text_lines(file, where_of(path), korean=f"convert it: iconv -f cp949 -t utf-8 {path}"):
            if isinstance(line, BadRecord):
                raise DataError(f"{where_of(path)}, line {number}: {line.reason}.")
            yield line


def nonempty_lines(path: Path | str) -> list[str]:
    """Returns the lines of a text file without empty ones. Raises DataError as `valid_lines` does."""
    return [text for line in valid_lines(path) if (text := line.strip())]


def standard_input() -> IO[bytes]:
    """Returns the bytes of standard input. Raises DataError when it is closed."""
    if sys.stdin is None:
        raise DataError("Standard input is closed. Pass a file, or pipe the texts into the command.")
    return sys.stdin.buffer


def read_whole(path: Path | str) -> bytes:
    """Returns all bytes of a file of at most WHOLE. Raises DataError."""
    with open_file(path) as file:
        data = file.read(MAX_WHOLE_BYTES + 1)
    if len(data) > MAX_WHOLE_BYTES:
        raise DataError(
            f"{path} has more than {MAX_WHOLE_BYTES >> 30} GiB and would be read into memory. "
            f"Convert it to .jsonl, one "
            "object per line."
        )
    return data


def read_text(path: Path | str, encoding: str) -> str:
    """Returns the text of a file of at most WHOLE. Raises DataError; UsageError for an unknown encoding."""
    check_encoding(encoding)
    try:
        return read_whole(path).decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not {encoding} text ({error.reason} at byte {error.start:,}).") from None


def check_encoding(encoding: str) -> None:
    """Raises UsageError unless this names a text encoding that contains ASCII."""
    try:
        is_superset = _KEPT.encode("ascii").decode(encoding) == _KEPT and codecs.lookup(encoding).name != "idna"
    except (LookupError, ValueError):  # no encoding of text, or none that reads this: a UnicodeError is a ValueError
        is_superset = False
    if not is_superset:
        raise UnknownName(
            f"Unknown encoding {encoding!r}, or one that cannot be read line by line. Examples: utf-8, cp949, "
            f"latin-1. Convert other encodings first: iconv -f {encoding} -t utf-8"
        )


def text_lines(
    file: IO[bytes] | Iterable[bytes | None],
    where: str,
    format: FileFormat = UTF8,
    korean: str = "pass --encoding cp949.",
) -> Iterator[tuple[int, str | BadRecord]]:
    """Yields (line number, text without its line end); undecodable and too long lines are `BadRecord`.

    file: or its lines, None for one that is too long. A file in CP949, the old Korean Windows encoding, is recognized
    at its first line that is not ASCII. It is refused with the name of the encoding, since another encoding would turn
    every text into noise. A UTF-8 file is refused too, at the first line that another encoding cannot read: CP949 can
    read some lines of Korean UTF-8. korean: what to do about CP949, for the message.
    """
    encoding, usual = format.encoding, format.usual_encoding
    check_encoding(encoding)
    seen_unicode = False
    lines: Iterable[bytes | None] = _lines(cast(IO[bytes], file)) if hasattr(file, "readline") else file
    for number, raw in enumerate(lines, 1):
        if raw is None:
            yield number, BadRecord(number, f"a line longer than {LIMIT >> 20} MiB")
            continue
        if number == 1:
            if raw.startswith(UTF16):  # standard input
                raise DataError(f"{where} is UTF-16. Save it in a file and pass that, which is read as it is.")
            if raw.startswith(ZIP):
                raise DataError(f"{where} is {A_ZIP}.")
            if raw.count(b"\0") * 3 > len(raw) > 8:
                raise DataError(f"{where} is {NOT_TEXT}.")
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        if usual and encoding == "utf-8" and not raw.isascii():  # the first such line tells
            encoding, usual = encoding if reads_as_utf8(raw) else usual, ""
        try:
            line = raw.decode(encoding)
        except UnicodeDecodeError:
            if encoding == "utf-8" and not seen_unicode and reads_as_korean(raw):
                raise BadFile(
                    f"{where}, line {number}: this is not UTF-8 but can be read as CP949 (Korean Windows). If "
                    f"it is CP949, {korean}"
                ) from None
            if reads_as_utf8(raw):
                raise DataError(f"{where}, line {number}: this is UTF-8, not {encoding}. Omit --encoding.") from None
            yield number, BadRecord(number, f"not {encoding}")
            continue
        seen_unicode = seen_unicode or not line.isascii()
        yield number, line.rstrip("\r\n")


def _lines(file: IO[bytes]) -> Iterator[bytes | None]:
    """Yields the lines of a file; None for one beyond LIMIT."""
    first = True
    while line := file.readline(LIMIT):
        if first and old_mac(line):
            yield from _between_returns(line, file)
            return
        first = False
        if len(line) == LIMIT and not line.endswith(b"\n"):
            while (line := file.readline(LIMIT)) and not line.endswith(b"\n"):
                pass
            yield None
        else:
            yield line


def old_mac(line: bytes) -> bool:
    """Returns whether carriage returns end the lines of a file whose first line, up to a line feed, this is."""
    return b"\r" in line and not line.endswith(b"\n")


def _between_returns(rest: bytes, file: IO[bytes]) -> Iterator[bytes | None]:
    """Yields the lines of a file of old Macs, of which `rest` is read already."""
    skipping = False
    while True:
        *whole, rest = LINE_END.split(rest)
        for line in whole:
            yield None if skipping else line + b"\n"
            skipping = False
        if len(rest) > LIMIT:
            rest, skipping = b"", True
        piece = file.read(1 << 20)
        if not piece:
            break
        rest += piece
    if rest or skipping:
        yield None if skipping else rest


def json_line(line: str) -> object:
    """Returns the value of a line of JSON. Raises ValueError, or RecursionError where it is nested too deep."""
    value = json.loads(line)
    if "\\u" in line:
        check_characters(value)
    return value


def check_characters(value: object) -> None:
    """Raises ValueError where a text in a JSON value contains half of a surrogate pair, which cannot be written."""
    json.dumps(value, ensure_ascii=False).encode()


def reads_as_utf8(raw: bytes) -> bool:
    """Returns whether bytes decode as UTF-8 to text with characters beyond ASCII."""
    try:
        return not raw.decode().isascii()
    except UnicodeDecodeError:
        return False


def reads_as_korean(raw: bytes) -> bool:
    """Returns whether bytes decode as CP949 to text whose characters beyond ASCII are mostly Hangul syllables."""
    try:
        beyond = [c for c in raw.decode("cp949") if not c.isascii()]
    except UnicodeDecodeError:
        return False
    return bool(beyond) and sum("가" <= c <= "힣" for c in beyond) > len(beyond) / 2
