"""uvicorn's HTTP protocol with limits of its own: slow and endless headers, slow readers, idle clients."""

import asyncio
from asyncio import TimerHandle
from typing import Any

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bertie.serve.errors import Refusal

MAX_HEADER_BYTES = 32_768
MAX_HEADERS = 100
MAX_CONNECTIONS = 4_096
HEADER_S = 10.0  # until the headers of a request are there, from its first byte or from the connection
WRITE_S = 20.0  # after which a client that reads too slowly, or a closing connection, is dropped
FULL_S = 1.0  # after which a connection above the limit is dropped when it sends nothing


def _full() -> bytes:
    refusal = Refusal("Overloaded", "The server has too many connections. Try again later.")
    body = orjson.dumps(refusal.body("/"))
    head = f"HTTP/1.1 {refusal.status} Too Many Requests\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
    return f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


FULL = _full()


class Parser:
    """httptools' parser, for a server that declines every offer of another protocol (RFC 9110, 7.8).

    httptools ends at such an offer and leaves out the body of the request. The headers are read again without the
    offer, and then the body.
    """

    def __init__(self, protocol: "Protocol") -> None:
        self.protocol, self.own = protocol, _parser(protocol)

    def feed_data(self, data: bytes) -> None:
        """Reads some bytes. Raises httptools.HttpParserError."""
        rest = memoryview(data)
        while True:
            try:
                self.own.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as offer:
                rest, head = rest[offer.args[0] :], self.protocol.head_without_offer()
                self.own = _parser(self.protocol)
                self.own.feed_data(head)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)


class Protocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.parser: Any = Parser(self)
        self._header_bytes = self._count = 0
        self._reading_headers = True
        self._header_timer: TimerHandle | None = None
        self._write_timer: TimerHandle | None = None
        self._full = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts to wait for the first request."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            self._full = True
            self.connections.discard(self)
        self._header_timer = self.loop.call_later(FULL_S if self._full else HEADER_S, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancels the timers."""
        for timer in (self._header_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Counts the bytes of headers. A line feed without a carriage return does not end a header."""
        if self._full:  # answered when the request has arrived: closing earlier would reset the connection
            self.transport.write(FULL)
            self.transport.close()
            return
        if self._reading_headers:
            self._header_bytes += min(len(data), _headers_in(data))
            if self._header_bytes > MAX_HEADER_BYTES:
                self.send_400_response("The headers are too large.")
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        """Starts a request."""
        super().on_message_begin()
        self._count, self._reading_headers = 0, True
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADER_S, self._too_slow)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Reads one header. An error ends the connection with status 400."""
        self._count += 1
        if self._count > MAX_HEADERS:
            raise ValueError("too many headers")
        super().on_header(name, value)

    def head_without_offer(self) -> bytes:
        """Returns the request line and the headers that were read, without the offer of another protocol."""
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def on_headers_complete(self) -> None:
        """Checks the headers. Contradicting lengths of the body are refused, and so are requests for a tunnel."""
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise ValueError("no tunnel")
            return  # they are read again
        names = [name for name, _ in self.headers]
        if names.count(b"content-length") + names.count(b"transfer-encoding") > 1 or names.count(b"host") > 1:
            raise ValueError("contradicting headers")
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None
        self._header_bytes, self._reading_headers = 0, False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Expects headers again."""
        if self.parser.should_upgrade():
            return
        self._reading_headers = True
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Gives a request that was answered early, as one that is refused, a short time to end."""
        if not self._reading_headers and self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADER_S, self._too_slow)
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Waits for a client that does not read."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(WRITE_S, self._abort)

    def resume_writing(self) -> None:
        """Continues when the client reads again."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def timeout_keep_alive_handler(self) -> None:
        """Closes an idle connection, after a short time to send the rest."""
        super().timeout_keep_alive_handler()
        self.loop.call_later(WRITE_S, self._abort)

    def _too_slow(self) -> None:
        self._header_timer = None
        if not self.transport.is_closing():
            self.transport.abort()

    def _abort(self) -> None:
        self.transport.abort()


def _parser(protocol: Protocol) -> Any:
    parser = httptools.HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does, for pipelined requests
    return parser


def _headers_in(data: bytes) -> int:
    """Returns how many of these bytes belong to headers."""
    end = data.find(b"\r\n\r\n")
    return len(data) if end < 0 else end
