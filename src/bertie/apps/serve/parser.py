"""A strict parser of HTTP/1.1 requests (RFC 9112), with the interface of httptools, so that uvicorn's protocol uses it.

Parsers that forgive read one connection in different ways, and what one server lets through is a request that another
one never saw. Here, what does not follow the grammar is refused, and nothing after the head changes the head. An offer
of another protocol is declined by not reading it (RFC 9110, 7.8).
"""

import re
from typing import Protocol

MAX_HEADER_BYTES = 32_768
MAX_HEADERS = 100
MAX_LINE = 1_024  # bytes of the line before a chunk
FRAMING = 8  # bytes around the chunks for each byte of them; chunks of one byte have 5

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_FIELD = _TOKEN + rb":[\t -~\x80-\xff]*\r\n"
_REQUEST_HEAD = re.compile(rb"(%s) ([!-\"$-~]+) HTTP/(1\.[01])\r\n((?:%s)*)\r\n" % (_TOKEN, _FIELD))
TRAILER = re.compile(_FIELD)
_CHUNK_HEADER = re.compile(rb"([0-9A-Fa-f]{1,8})[\t ]*(;[\t -~\x80-\xff]*)?\r\n")
_START = re.compile(_TOKEN)
_BAD_BYTES = re.compile(rb"[^\t\r\n -~\x80-\xff]|(?<!\r)\n|\r(?=[^\n])")
"""What no head contains, so that one without an end is refused soon."""
_LENGTH = re.compile(rb"[0-9]{1,15}")
ABSOLUTE = re.compile(rb"https?://([^/?]+)/", re.IGNORECASE)
_CLOSE = b"close"
ONCE = frozenset(
    [b"host", b"content-length", b"transfer-encoding", b"content-type", b"content-encoding", b"authorization"]
)
"""Headers of which a second one would be read by some and not by others."""


class Malformed(ValueError):
    """Bytes that are not HTTP/1.1."""


class Handler(Protocol):
    """What is told of the requests."""

    def on_message_begin(self) -> None: ...  # noqa: D102
    def on_url(self, url: bytes) -> None: ...  # noqa: D102
    def on_header(self, name: bytes, value: bytes) -> None: ...  # noqa: D102
    def on_headers_complete(self) -> None: ...  # noqa: D102
    def on_body(self, body: bytes) -> None: ...  # noqa: D102
    def on_message_complete(self) -> None: ...  # noqa: D102


class Parser:
    """The requests of one connection. waits: whether the next request stays unread until this one is answered."""

    def __init__(self, handler: Handler) -> None:
        self.handler, self.buffer, self.step = handler, bytearray(), self._head
        self.method, self.version, self.last = b"", "1.1", False
        self.waits = False
        self._left = self._framing = self._scanned = 0

    @property
    def in_head(self) -> bool:
        """Whether the next bytes belong to a head: the last request has come to its end."""
        return self.step == self._head

    def feed_data(self, data: bytes) -> None:
        """Reads some bytes. Raises Malformed."""
        self.buffer += data
        while self.buffer and not (self.waits and self.in_head) and self.step():
            continue

    def get_method(self) -> bytes:
        """Returns the method of the request."""
        return self.method

    def get_http_version(self) -> str:
        """Returns the version of the request."""
        return self.version

    def should_keep_alive(self) -> bool:
        """Whether the client expects to send another request."""
        return not self.last

    def should_upgrade(self) -> bool:
        """Whether another protocol follows: never."""
        return False

    # Each step reads one part and returns whether it was complete. -------------------------------------------------

    def _head(self) -> bool:
        end = self.buffer.find(b"\r\n\r\n", max(0, self._scanned - 3)) + 4
        if max(end, 0 if end > 3 else len(self.buffer)) > MAX_HEADER_BYTES:
            raise Malformed(f"The headers have more than {MAX_HEADER_BYTES:,} bytes.")
        if end < 4:
            if not _START.match(self.buffer) or _BAD_BYTES.search(self.buffer, max(0, self._scanned - 1)):
                raise Malformed("The head has a line end or a character that is not allowed.")
            self._scanned = len(self.buffer)
            return False
        self._scanned = 0
        match = _REQUEST_HEAD.fullmatch(self._take(end))
        if match is None:
            raise Malformed("The head does not follow the grammar of HTTP/1.1.")
        self._begin(*match.groups())
        return True

    def _begin(self, method: bytes, target: bytes, version: bytes, fields: bytes) -> None:
        handler, once = self.handler, dict[bytes, bytes]()
        self.method, self.version, self.last = method, version.decode(), version == b"1.0"
        handler.on_message_begin()
        handler.on_url(target)
        lines = fields.split(b"\r\n")
        if len(lines) > MAX_HEADERS + 1:
            raise Malformed(f"There are more than {MAX_HEADERS} headers.")
        for line in lines[:-1]:
            name, _, value = line.partition(b":")
            name, value = name.lower(), value.strip(b" \t")
            if name in ONCE:
                if name in once:
                    raise Malformed(f"The header {name.decode()} occurs twice.")
                once[name] = value
            elif name == b"connection":
                self.last = self.last or _CLOSE in [one.strip(b" \t") for one in value.lower().split(b",")]
            handler.on_header(name, value)
        self._check(target, once.get(b"host"))
        self._frame(once.get(b"content-length"), once.get(b"transfer-encoding"))
        handler.on_headers_complete()
        if self.step == self._content and not self._left:
            self._end()

    def _check(self, target: bytes, host: bytes | None) -> None:
        if host is None and self.version == "1.1":
            raise Malformed("A request needs the header Host.")
        if target[:1] == b"/":
            return
        absolute = ABSOLUTE.match(target)
        if absolute is None or host is None or absolute[1].lower() != host.lower():
            raise Malformed("The target must be a path, or an address with the same host as the header Host.")

    def _frame(self, size: bytes | None, coding: bytes | None) -> None:
        if size is not None and coding is not None:
            raise Malformed("A request may have a Content-Length or a Transfer-Encoding, and not both.")
        if coding is not None and (coding.lower() != b"chunked" or self.version == "1.0"):
            raise Malformed("The only Transfer-Encoding is chunked, in HTTP/1.1.")
        self._left, self._framing = 0 if size is None else length(size), MAX_HEADER_BYTES
        self.step = self._content if coding is None else self._size

    def _content(self) -> bool:
        self._body()
        if not self._left:
            self._end()
        return True

    def _size(self) -> bool:
        line = self._line()
        if not line:
            return False
        match = _CHUNK_HEADER.fullmatch(line)
        if match is None:
            raise Malformed("A chunk has no valid size.")
        self._left = int(match[1], 16)
        self.step = self._chunk if self._left else self._trailer
        return True

    def _chunk(self) -> bool:
        self._body()
        if self._left:
            return False
        self.step = self._after_chunk
        return True

    def _after_chunk(self) -> bool:
        if len(self.buffer) < 2:
            return False
        if self._take(2) != b"\r\n":
            raise Malformed("A chunk is longer than its size.")
        self.step = self._size
        return True

    def _trailer(self) -> bool:
        line = self._line()
        if not line:
            return False
        if line == b"\r\n":
            self._end()
        elif not TRAILER.fullmatch(line):
            raise Malformed("The end of the body does not follow the grammar of HTTP/1.1.")
        return True

    def _body(self) -> None:
        data = self._take(min(self._left, len(self.buffer)))
        self._left -= len(data)
        self._framing += FRAMING * len(data)
        self.handler.on_body(data)

    def _line(self) -> bytes:
        """Returns a line of the framing with its end; b"" for one that is not complete."""
        end = self.buffer.find(b"\n", 0, MAX_LINE) + 1
        if not end and len(self.buffer) < MAX_LINE:
            return b""
        self._framing -= end
        if not end or self._framing < 0:
            raise Malformed("There is too much between the parts of the body.")
        return self._take(end)

    def _take(self, size: int) -> bytes:
        data = bytes(self.buffer[:size])
        del self.buffer[:size]
        return data

    def _end(self) -> None:
        self.step = self._head
        self.handler.on_message_complete()


def length(value: bytes) -> int:
    """Returns the number of a Content-Length (RFC 9110, 8.6). Raises Malformed."""
    if not _LENGTH.fullmatch(value):
        raise Malformed("Content-Length must be a number of at most 15 digits.")
    return int(value)
