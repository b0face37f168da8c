"""Files as streams of bytes: plain, a part of a plain one, or decompressed, with protection against bombs."""

import bz2
import gzip
import io
import lzma
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol

import zstandard

from bertie.files import LACK

COMPRESSIONS = ("gz", "zst", "xz", "bz2")
_ALIASES = {  # extension -> format; any other is the name of its format
    **dict.fromkeys(("", "text", "wiki"), "txt"),
    "ndjson": "jsonl",
    "pq": "parquet",
    "wet": "warc",
    **dict.fromkeys(("htm", "xhtml"), "html"),
    "xml": "mediawiki",
    "markdown": "md",
    "ann": "brat",
}
BOMB_RATIO = 200  # text comes to a tenth at best, logs to a fiftieth
BOMB_BYTES = 64 << 20  # below, an unusual ratio does no harm


class Unreadable(Exception):
    """The rest of a file cannot be read, with the reason as message."""


# How a member starts: of gzip three bytes, which occur by chance too; of bzip2 the digits of pi, which do not.
MEMBERS = {"gz": re.compile(rb"\x1f\x8b\x08"), "bz2": re.compile(rb"BZh[1-9]1AY&SY")}

# What reading a damaged file raises, by the way it is damaged and compressed.
FAILURES = (Unreadable, EOFError, OSError, zlib.error, lzma.LZMAError)


def cause(error: Exception) -> str:
    """Returns the reason of one of FAILURES for a record: what is wrong with the file, and that its rest is missing.

    Raises the error again where the machine lacks memory or file descriptors, which is no fault of the file.
    """
    if isinstance(error, OSError) and error.errno in LACK:
        raise error
    strerror = error.strerror if isinstance(error, OSError) else None
    reason = "the file is truncated" if isinstance(error, EOFError) else strerror or str(error) or type(error).__name__
    return f"{reason}; it was not read to its end"


class Stream(Protocol):
    """Protocol of a readable stream."""

    def read(self, size: int, /) -> bytes:
        """Returns at most `size` bytes; none at the end."""
        ...

    def read1(self, size: int, /) -> bytes:
        """Does so without waiting for all of them, so that bytes before a damage are returned first."""
        ...


def compression(path: str | Path) -> str:
    """Returns the compression of a file from its name; "" for a plain one."""
    suffix = Path(path).suffix.lower().removeprefix(".")
    return suffix if suffix in COMPRESSIONS else ""


def uncompressed(path: str | Path) -> Path:
    """Returns the name of a file without the extension of its compression: reviews.csv of reviews.csv.gz."""
    return Path(path).with_suffix("") if compression(path) else Path(path)


def suffix_of(path: str | Path) -> str:
    """Returns the extension of a file's format: "jsonl" of a.jsonl.gz, "" of a name like wiki_00."""
    return uncompressed(path).suffix.lower().removeprefix(".")


def format_by_name(path: str | Path) -> str:
    """Returns the name of a file's format from its extension: "jsonl" of a.ndjson.gz, "txt" of a name like wiki_00."""
    suffix = suffix_of(path)
    return _ALIASES.get(suffix, suffix)


def endings_of(formats: Iterable[str]) -> list[str]:
    """Returns the extensions of formats, for messages."""
    known = [*formats]
    return [f".{suffix}" for suffix in (*known, *(one for one in _ALIASES if one and _ALIASES[one] in known))]


@contextmanager
def open_bytes(path: str | Path, start: int = 0, stop: int = -1, *, seekable: bool = False) -> Iterator[IO[bytes]]:
    """Context with a file's bytes, decompressed by its extension; only those of [start, stop) when stop is not -1.

    A range of a compressed file consists of whole members (`members`). Reading raises one of FAILURES where the file is
    damaged or truncated. `seekable` first decompresses into a temporary file.
    """
    with open(path, "rb") as file:
        kind = compression(path)
        file.seek(start)
        part: IO[bytes] = file if stop < 0 else io.BufferedReader(_Part(file, stop - start))
        if not kind:
            yield part
            return
        guarded = io.BufferedReader(_Guarded(file, _decompressor(kind, part)), 1 << 16)
        if not seekable:
            yield guarded
            return
        with tempfile.TemporaryFile() as whole:
            shutil.copyfileobj(guarded, whole, 1 << 20)
            whole.seek(0)
            yield whole


def members(path: str, *, begins: re.Pattern[bytes], size: int) -> Iterator[tuple[int, int]]:
    """Yields ranges [start, stop) of about `size` bytes of a .gz or .bz2 file that consists of many members.

    A range ends where a member starts whose content matches `begins`. A file of one member is one range.
    """
    magic, whole = MEMBERS[compression(path)], Path(path).stat().st_size
    start = 0
    with open(path, "rb") as file:
        while start < whole:
            stop = next((at for at in _found(file, magic, start + size) if _begins(path, at, begins)), whole)
            yield start, stop
            start = stop


def _found(file: IO[bytes], magic: re.Pattern[bytes], position: int) -> Iterator[int]:
    """Yields the positions from `position` on where a member may start."""
    overlap, buffer = 16, b""  # longer than any magic number
    while True:
        file.seek(position + len(buffer))
        if not (piece := file.read(1 << 18)):
            return
        buffer += piece
        yield from (position + match.start() for match in magic.finditer(buffer, 0, max(len(buffer) - overlap, 0)))
        position, buffer = position + max(len(buffer) - overlap, 0), buffer[-overlap:]


def _begins(path: str, position: int, begins: re.Pattern[bytes]) -> bool:
    try:
        with open_bytes(path, position) as stream:
            return begins.match(stream.read(64)) is not None
    except FAILURES:
        return False


def _decompressor(kind: str, file: IO[bytes]) -> Stream:
    if kind == "gz":
        return gzip.GzipFile(fileobj=file)
    if kind == "xz":
        return lzma.LZMAFile(file)
    return bz2.BZ2File(file) if kind == "bz2" else _Zstandard(file)


class _Part(io.RawIOBase):
    """The next `size` bytes of a file."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        piece = self._file.read(min(len(buffer), self._left))
        self._left -= len(piece)
        buffer[: len(piece)] = piece
        return len(piece)


class _Guarded(io.RawIOBase):
    """A decompressed stream that fails when it is out of proportion to the compressed bytes."""

    def __init__(self, file: IO[bytes], stream: Stream) -> None:
        self._file, self._stream, self._bytes, self._start = file, stream, 0, file.tell()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        piece = self._stream.read1(len(buffer))
        self._bytes += len(piece)
        if self._bytes > max(BOMB_BYTES, BOMB_RATIO * (self._file.tell() - self._start)):
            raise Unreadable(f"the file grows more than {BOMB_RATIO} times when decompressed, which no text does")
        buffer[: len(piece)] = piece
        return len(piece)


class _Zstandard:
    """Consecutive frames of zstd. The library's own reader accepts a truncated file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._out = file, io.BytesIO()
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._new = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj

    def read(self, size: int, /) -> bytes:
        while not (piece := self._out.read(size)):
            data = self._file.read(1 << 12)  # a few bytes may hold 128 KiB, so a little at a time
            if not data:
                if self._frame is not None:
                    raise EOFError
                return b""
            out = []
            try:
                while data:
                    frame = self._frame or self._new()
                    out.append(frame.decompress(data))
                    data = frame.unused_data if frame.eof else b""
                    self._frame = None if frame.eof else frame
            except zstandard.ZstdError as error:
                raise Unreadable(f"not zstd, or damaged ({error})") from None
            self._out = io.BytesIO(b"".join(out))
        return piece

    read1 = read
