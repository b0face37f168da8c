"""uvicorn's HTTP protocol with limits of its own: slow and endless requests, slow readers, idle clients.

A connection ends in one of three ways: at the end of a response; after a refusal, when the client has had time to send
the rest and to read why; or at once, when the client took too long.
"""

import asyncio
from asyncio import TimerHandle
from typing import Any

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from bertie.serve import head
from bertie.serve.errors import Refusal

MAX_HEADER_BYTES = 32_768
MAX_HEADERS = 100
MAX_CONNECTIONS = 4_096
FRAMING = 8  # bytes of chunk sizes for each byte of a body: chunks of one byte need 5
HEADER_S = 10.0  # until the headers of a request are there, from its first byte or from the connection
REST_S = 10.0  # for the rest of a request that was refused early, which is read and dropped
WRITE_S = 20.0  # after which a client that reads too slowly, or a closing connection, is dropped
FULL_S = 1.0  # after which a connection above the limit is dropped when it sends nothing


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
                rest, again = rest[offer.args[0] :], self.protocol.head_without_offer()
                self.own = _parser(self.protocol)
                self.own.feed_data(again)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)


class Ending:
    """The transport as a response sees it. Closing waits for the rest of a request that was answered early."""

    def __init__(self, protocol: "Protocol") -> None:
        self.protocol, self.write = protocol, protocol.transport.write

    def is_closing(self) -> bool:
        """Whether nothing more will be sent."""
        return self.protocol.ended or self.protocol.transport.is_closing()

    def close(self) -> None:
        """Closes: a connection with unread bytes would be reset, and the answer lost."""
        self.protocol.end()


class Protocol(HttpToolsProtocol):
    """One connection. since: when it began to wait for its client; ended: what still comes is dropped."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.parser: Any = Parser(self)
        self._framing = 0  # bytes that belong to no body, since the last head or body
        self._header_bytes = self._count = 0
        self._reading_head = True
        self._timer: TimerHandle | None = None
        self._write_timer: TimerHandle | None = None
        self._full = self.ended = False
        self._refusal = b""
        self.since = 0.0

    # The connection --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts to wait for the first request. Above the limit, the one that has waited longest is dropped."""
        super().connection_made(transport)
        self._ending: Any = Ending(self)
        self.since = self.loop.time()
        if len(self.connections) > MAX_CONNECTIONS:
            connections: Any = self.connections
            oldest = min((one for one in connections if one.waits), key=lambda one: one.since)
            self._full = oldest is self  # every other one is being answered
            self.connections.discard(oldest)
            if not self._full:
                oldest.transport.abort()
        self._end_after(FULL_S if self._full else HEADER_S)

    @property
    def waits(self) -> bool:
        """Whether the client has to do something next: send the rest of a request, another one, or read."""
        return self._idle or self.cycle.more_body or self.flow.write_paused

    @property
    def _idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancels the timers."""
        self._end_after(None)
        if self._write_timer is not None:
            self._write_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads some bytes. What is not HTTP is refused after the requests before it are answered."""
        if self.ended:
            return
        if self._full:  # answered when the request has arrived: closing earlier would reset the connection
            self._refuse(Refusal("Overloaded", "The server has too many connections. Try again later."))
            return
        self._unset_keepalive_if_required()
        self._framing += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as error:
            told = error.__context__ if isinstance(error.__context__, head.Malformed) else "This is not HTTP/1.1."
            self._malformed(str(told))
            return
        if self._framing > MAX_HEADER_BYTES:
            self._malformed("The headers, or what is between the parts of the body, are too large.")
        elif self._timer is None and self._idle:
            self._end_after(HEADER_S)

    def _malformed(self, reason: str) -> None:
        self.app.malformed(reason)
        self._refuse(Refusal("Validation", reason, status=400))

    def _refuse(self, refusal: Refusal) -> None:
        body = orjson.dumps(refusal.body("/"))
        lines = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n" % len(body)
        if refusal.status == 429:
            lines += b"retry-after: 1\r\n"
        self.ended, self._refusal = True, STATUS_LINE[refusal.status] + lines + b"\r\n" + body
        self._end_after(None)
        if self.pipeline:  # those that wait are answered, but for one without an end
            if self.cycle.more_body:
                self.pipeline.popleft()
        elif self._idle:
            self._send_refusal()
        elif self.cycle.more_body:  # the application waits for the rest
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self._drop_rest() if self.cycle.response_started else self._send_refusal()

    def _send_refusal(self) -> None:
        self.transport.write(self._refusal)
        self._drop_rest()

    def end(self) -> None:
        """Closes the connection, after a request that was answered early has come to its end."""
        self.pipeline.clear()
        if self._reading_head:
            self.ended = True
            self.transport.close()
        else:
            self._drop_rest()

    def _drop_rest(self) -> None:
        self.ended = True
        if self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._end_after(REST_S)

    def _end_after(self, seconds: float | None) -> None:
        """Ends the connection after some seconds, unless called again before. None: does not end it."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)

    # A request -------------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Starts a request."""
        super().on_message_begin()
        self._count = self._header_bytes = 0
        self._reading_head = True
        self.since = self.loop.time()

    def on_url(self, url: bytes) -> None:
        """Reads a part of the target."""
        super().on_url(url)
        self._count_header(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Reads one header. Those that follow the body are dropped: nothing changes the head (RFC 9110, 6.5.1)."""
        if self._reading_head:
            self._count += 1
            self._count_header(len(name) + len(value))
            super().on_header(name, value)

    def _count_header(self, size: int) -> None:
        self._header_bytes += size
        if self._count > MAX_HEADERS or self._header_bytes > MAX_HEADER_BYTES:
            raise head.Malformed("The headers are too many or too large.")

    def head_without_offer(self) -> bytes:
        """Returns the request line and the headers that were read, without the offer of another protocol."""
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def on_headers_complete(self) -> None:
        """Checks the headers and starts to answer."""
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise head.Malformed("This server opens no tunnel.")
            return  # they are read again
        head.check(self.parser.get_http_version(), self.url, self.headers)
        self._end_after(None)
        self._framing, self._reading_head = 0, False
        super().on_headers_complete()
        self.cycle.transport = self._ending

    def on_body(self, body: bytes) -> None:
        """Reads a part of the body."""
        self._framing = max(0, self._framing - (FRAMING + 1) * len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Expects headers again."""
        if self.parser.should_upgrade():
            return
        self._framing, self._reading_head = 0, True
        self._end_after(None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Expects the next request, or the rest of one that was answered early."""
        self.since = self.loop.time()
        if self.ended and not self.pipeline:
            if self._refusal and not self.transport.is_closing():
                self._send_refusal()
            return
        if not self._reading_head and self._timer is None:
            self._end_after(REST_S)
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Waits for a client that does not read."""
        super().pause_writing()
        self.since = self.loop.time()
        self._write_timer = self.loop.call_later(WRITE_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Continues when the client reads again."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def timeout_keep_alive_handler(self) -> None:
        """Closes an idle connection, after a short time to send the rest."""
        super().timeout_keep_alive_handler()
        self.loop.call_later(WRITE_S, self.transport.abort)


def _parser(protocol: Protocol) -> Any:
    parser = httptools.HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does, for pipelined requests
    return parser
