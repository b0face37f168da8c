"""uvicorn's HTTP protocol with limits of its own: slow and endless requests, slow readers, idle clients.

A connection ends in one of three ways: at the end of a response; after a refusal, when the client has had time to send
the rest and to read why; or at once, when the client took too long.
"""

import asyncio
import resource
from asyncio import TimerHandle
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Any

import httptools
import orjson
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from bertie.apps.serve.admission import Budget, Held
from bertie.apps.serve.errors import Refusal
from bertie.apps.serve.guard import DROP
from bertie.apps.serve.parser import Malformed, Parser

MAX_CONNECTIONS = 4_096  # and at most half of the files that the process may open
HEADER_S = 10.0  # until the headers of a request are there, from its first byte or from the connection
REST_S = 10.0  # for the rest of a request that was refused early, which is read and dropped
WRITE_S = 20.0  # after which a client that reads too slowly, or a closing connection, is dropped
_REQUESTS_PER_TURN = 8  # requests that begin in one turn of the event loop
FULL_S = 1.0  # after which a connection above the limit is dropped when it sends nothing


class Turns:
    """The connections of a server, those first that have waited for their client longest, and whose request begins.

    Few requests begin in each turn of the event loop. So a flood of requests delays others by one of each connection,
    and work that has begun continues in between.
    """

    def __init__(self) -> None:
        self.longest: OrderedDict[Protocol, None] = OrderedDict()
        self._waiting: deque[Callable[[], None]] = deque()
        self._begun = 0

    def take(self, begin: Callable[[], None]) -> None:
        """Begins a request, now or in one of the next turns."""
        if not self._begun:
            asyncio.get_running_loop().call_soon(self._next)
        if self._begun < _REQUESTS_PER_TURN:
            self._begun += 1
            begin()
        else:
            self._waiting.append(begin)

    def _next(self) -> None:
        self._begun = min(len(self._waiting), _REQUESTS_PER_TURN)
        if self._begun:
            asyncio.get_running_loop().call_soon(self._next)
        for _ in range(self._begun):
            self._waiting.popleft()()


class Flow(FlowControl):
    """The flow of one connection: nothing is read while a request waits unread, or memory would fill with them."""

    def __init__(self, protocol: "Protocol") -> None:
        super().__init__(protocol.transport)
        self.protocol = protocol

    def resume_reading(self) -> None:
        """Reads on, unless a request waits."""
        if not self.protocol.unread:
            super().resume_reading()


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
    """One connection. ended: what still comes is dropped. held: bytes that were received and are not yet read."""

    def __init__(self, turns: Turns, content: Budget, **options: Any) -> None:
        super().__init__(**options)
        self.turns = turns
        self.parser: Any = Parser(self)
        self.held = Held(content)
        self._timer: TimerHandle | None = None
        self._write_timer: TimerHandle | None = None
        self._full = self.ended = False

    # The connection --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts to wait for the first request. Above the limit, the one that has waited longest is dropped."""
        super().connection_made(transport)
        self.flow = Flow(self)
        self._ending: Any = Ending(self)
        longest = self.turns.longest
        longest[self] = None
        if len(longest) > most_connections():
            oldest = next(one for one in longest if one.waits)
            self._full = oldest is self  # every other one is being answered
            del longest[oldest]
            if not self._full:
                oldest.transport.abort()
        self._end_after(FULL_S if self._full else HEADER_S)

    def _wait_anew(self) -> None:
        if self in self.turns.longest:
            self.turns.longest.move_to_end(self)

    @property
    def waits(self) -> bool:
        """Whether the client has to do something next: send the rest of a request, another one, or read."""
        return self._idle or self.cycle.more_body or self.flow.write_paused

    @property
    def _idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    @property
    def unread(self) -> bool:
        """Whether a request, or its beginning, waits until the last one is answered."""
        return not self.ended and self.parser is not None and self.parser.waits and bool(self.parser.buffer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancels the timers."""
        self.turns.longest.pop(self, None)
        self._end_after(None)
        self._count(0)
        if self._write_timer is not None:
            self._write_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads some bytes. A request that comes before the last one is answered waits unread."""
        if self.ended:
            return
        if self._full:  # answered when the request has arrived: closing earlier would reset the connection
            self._refuse(Refusal("Overloaded", "The server has too many connections. Try again later."))
            return
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except Malformed as error:
            self._malformed(str(error))
        except (httptools.HttpParserError, UnicodeError):
            self._malformed("The target is not a valid path.")
        else:
            if self._timer is None and self._idle:
                self._end_after(HEADER_S)
            elif self.unread:
                self.flow.pause_reading()
            self._count(len(self.parser.buffer))

    def _count(self, unread: int) -> None:
        """Counts the bytes that are not yet read. If others need their room, the connection is closed."""
        self.held.proceed(self.held.amount)
        if unread:
            self.held.wait(self.transport.abort, unread)

    def _malformed(self, reason: str) -> None:
        self.app.malformed(reason)
        self._refuse(Refusal("Validation", reason, status=400))

    def _refuse(self, refusal: Refusal) -> None:
        body = orjson.dumps(refusal.body("/"))
        lines = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n" % len(body)
        if refusal.status == 429:
            lines += b"retry-after: 1\r\n"
        answer = STATUS_LINE[refusal.status] + lines + b"\r\n" + body
        if not self._idle:  # the application waits for the rest of this request
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self._idle or not self.cycle.response_started:
            self.transport.write(answer)
        self._drop_rest()

    def end(self) -> None:
        """Closes the connection, after a request that was answered early has come to its end."""
        if self.transport.is_closing() or (self.parser.in_head and not self.parser.buffer):
            self.ended = True
            self.transport.close()
        else:
            self._drop_rest()

    def _drop_rest(self) -> None:
        self.ended = True
        if self.transport.is_closing():
            return
        self.parser.buffer.clear()
        self._count(0)
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

    def on_headers_complete(self) -> None:
        """Starts to answer."""
        self._end_after(None)
        self.scope["state"][DROP] = self.transport.abort
        super().on_headers_complete()
        self.cycle.transport = self._ending

    def _start_asgi_task(self, *arguments: Any) -> None:
        self.turns.take(partial(super()._start_asgi_task, *arguments))

    def on_message_complete(self) -> None:
        """Expects another request."""
        self._end_after(None)
        self.parser.waits = not self.cycle.response_complete
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Expects the next request, or the rest of one that was answered early."""
        self._wait_anew()
        self.cycle.body.clear()  # of a request that was answered before it was read
        if self.ended or self.transport.is_closing():
            return
        if not self.parser.in_head and self._timer is None:
            self._end_after(REST_S)
        super().on_response_complete()
        if self.unread:
            self.loop.call_soon(self._read_on)
        else:
            self.parser.waits = False

    def _read_on(self) -> None:
        if self.parser is not None:  # the connection has not been lost
            self.parser.waits = False
            self.flow.resume_reading()  # until the next request has been read
            self.data_received(b"")

    def pause_writing(self) -> None:
        """Waits for a client that does not read."""
        super().pause_writing()
        self._wait_anew()
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


def most_connections() -> int:
    """Returns the number of connections that may be open, so that descriptors for all else are left."""
    return min(MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
