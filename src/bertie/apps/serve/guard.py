"""The checks before a request is read: host, key, type, size, time. Plain ASGI, so that it costs little.

The body is read here, within its limits of bytes and seconds. Bytes count when they arrive, whatever was declared. A
request is cancelled when its client disconnects, and any exception becomes an error in JSON and a line of the log.
"""

import asyncio
import hmac
import re
import secrets
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from bertie.apps.serve.admission import Admission, Held
from bertie.apps.serve.errors import DEFECT, ENDS, Refusal, refusal_of
from bertie.apps.serve.log import log_line
from bertie.apps.serve.parser import Malformed, length
from bertie.platform import BertieError

if TYPE_CHECKING:
    from bertie.apps.serve.ticket import Ticket

AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
App = Callable[[MutableMapping[str, object], Receive, Send], Awaitable[None]]

OPEN = re.compile(r"/|/health|/healthz|/readyz|/docs|/docs/[\w.-]+|/page/[\w.-]+|/openapi\.json")
"""What GET and HEAD answer without a key: probes, and pages that hold no answer of a model. All else needs the key."""
_EVENTS = b"text/event-stream"
SLICE = 1 << 16  # bytes of an answer that are sent at once
DROP = "drop"  # in a scope's state: ends a connection whose client does not read
PORT = re.compile(r":\d*$")
REQUEST_ID = re.compile(rb"[\w.:-]{1,128}")
TRACEPARENT = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
SAFE = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


@dataclass
class Limits:
    """Limits of a request.

    hosts: names in the Host header; none: any. keys: of which one is demanded; none: none is.
    """

    max_body_bytes: int = 2_000_000
    body_s: float = 20.0
    request_s: float = 60.0
    hosts: frozenset[str] = frozenset()
    keys: tuple[bytes, ...] = ()


@dataclass
class Guard:
    """The outermost layer of the application. finished: called after every request; defect: for an exception."""

    app: App
    limits: Limits
    admission: Admission
    draining: Callable[[], bool]
    finished: Callable[["RequestFacts"], None]
    defect: Callable[["RequestFacts", BaseException], None] = lambda facts, error: None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Handles one request, or the lifespan."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        facts = RequestFacts(scope["path"], scope["method"], dict(scope["headers"]))
        scope.setdefault("state", {})["seen"] = facts
        held, drop = Held(self.admission.content), scope["state"].get(DROP)

        async def tell(message: AsgiMessage) -> None:
            if message["type"] == "http.response.start":
                facts.status = message["status"]
                message["headers"] = [*message.get("headers", ()), *SAFE, (b"x-request-id", facts.id)]
                if self.draining():
                    message["headers"].append((b"connection", b"close"))
                facts.begun = True
                facts.streaming = any(value.startswith(_EVENTS) for _, value in message["headers"])
            elif not message.get("more_body"):
                facts.streaming = False
            if drop is None:
                await send(message)
                return
            body = message.get("body", b"")
            large = len(body) if len(body) > SLICE else 0
            held.wait(drop, large)
            try:
                for part in slices(message, body) if large else (message,):
                    await send(part)
                    held.since = time.monotonic()
            finally:
                held.proceed(large)

        try:
            self.check(facts)
            if facts.method == "POST":
                body = await self.read(receive, declared(facts, self.limits.max_body_bytes), held)
                await self.within(scope, body, receive, tell)
            else:
                await self.app(scope, receive, tell)
        except (Refusal, BertieError) as error:
            await self.refuse(refusal_of(error), facts, tell)
        except ENDS:
            raise
        except BaseException as error:  # a panic of a library in Rust is no Exception
            self.defect(facts, error)
            await self.refuse(Refusal("Backend", DEFECT, status=500), facts, tell)
        finally:
            held.give()
            self.finished(facts)

    def check(self, facts: "RequestFacts") -> None:
        """Raises Refusal for a host, a key, an encoding or a type that is not accepted, or a spent budget."""
        host = host_of(facts.headers.get(b"host", b"").decode("latin-1"))
        if self.limits.hosts and host not in self.limits.hosts:
            raise Refusal("Validation", "This server does not answer under that host name.", status=421)
        if self.limits.keys and not (facts.method in ("GET", "HEAD") and OPEN.fullmatch(facts.path)):
            self.check_key(facts.headers.get(b"authorization", b""))
        if facts.method != "POST":
            return
        if self.draining():
            raise Refusal("Unhealthy", "The server is shutting down. Send the request to another one.")
        self.admission.check_room()
        if facts.headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise Refusal("UnsupportedMedia", "Compressed bodies are not accepted. Omit Content-Encoding.")
        kind = facts.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json":
            raise Refusal("UnsupportedMedia", "Send JSON, with the header Content-Type: application/json.")

    def check_key(self, header: bytes) -> None:
        """Raises Refusal for a wrong key. The comparison takes constant time."""
        scheme, _, key = header.partition(b" ")
        right = [hmac.compare_digest(key.strip(), known) for known in self.limits.keys]
        if scheme.lower() != b"bearer" or not any(right):
            message = "A key is needed: send the header Authorization: Bearer KEY."
            raise Refusal("Unauthorized", message, headers={"WWW-Authenticate": "Bearer"})

    async def read(self, receive: Receive, size: int, held: Held) -> bytes:
        """Returns the body. Raises Refusal if it is too large or too slow, or there is no room for it."""
        parts = list[bytes]()
        try:
            async with asyncio.timeout(self.limits.body_s) as limit:
                held.wait(partial(expire, limit))
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refusal(
                            "Validation", "The client disconnected before its request was complete.", status=400
                        )
                    part = message.get("body", b"")
                    size -= len(part)
                    if size < 0:
                        raise too_large(self.limits.max_body_bytes)
                    held.take(len(part), self.admission.retry_after_s())
                    parts.append(part)
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            raise Refusal("Validation", "The request's body came too slowly.", status=408) from None
        finally:
            held.proceed()

    async def within(self, scope: MutableMapping[str, Any], body: bytes, receive: Receive, send: Send) -> None:
        """Runs the application on a body, until it ends, the client disconnects or the time is over."""

        async def replay() -> AsgiMessage:
            return {"type": "http.request", "body": body, "more_body": False}

        facts = scope["state"]["seen"]
        work = asyncio.ensure_future(self.app(scope, replay, send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            done, _ = await asyncio.wait((work, gone), timeout=self.limits.request_s, return_when="FIRST_COMPLETED")
            if work in done:
                work.result()
            elif gone in done:
                facts.status = 499
            else:
                raise Refusal(
                    "Overloaded", "There was no answer in time.", headers={"Retry-After": "5"}, reason="deadline"
                )
        finally:
            for task in (work, gone):
                if not task.done():
                    task.cancel()
                    with suppress(asyncio.CancelledError, Refusal):
                        await task

    async def refuse(self, error: Refusal, facts: "RequestFacts", send: Send) -> None:
        """Sends an error, unless a response has begun; then as the last event of a stream."""
        facts.error, facts.reason = error.kind, error.reason
        body = orjson.dumps(error.body(facts.path))
        if facts.streaming:
            await send({"type": "http.response.body", "body": b"data: " + body + b"\n\n"})
        if facts.begun:
            return
        headers = [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
        headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": error.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@dataclass
class RequestFacts:
    """Facts about a request; the route adds those of the body. streaming: whether more events may follow."""

    path: str
    method: str
    headers: dict[bytes, bytes]
    status: int = 499
    begun: bool = False
    streaming: bool = False
    route: str = "other"
    model: str = ""
    error: str = ""
    reason: str = ""
    ticket: "Ticket | None" = None
    started: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        request_id = self.headers.get(b"x-request-id", b"")
        self.id = request_id if REQUEST_ID.fullmatch(request_id) else secrets.token_hex(8).encode()
        match = TRACEPARENT.fullmatch(self.headers.get(b"traceparent", b""))
        self.trace = match[1].decode() if match else ""


def host_of(name: str) -> str:
    """Returns a host name in lower case without its port. Addresses of IPv6 are in brackets."""
    return f"[{name}]" if name.count(":") > 1 and name[0] != "[" else PORT.sub("", name.lower())


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


def slices(message: AsgiMessage, body: bytes) -> Iterator[AsgiMessage]:
    """Yields the parts of a large message, so that what a slow client does not read stays here and is counted."""
    for start in range(0, len(body), SLICE):
        more = start + SLICE < len(body) or message.get("more_body", False)
        yield {"type": "http.response.body", "body": body[start : start + SLICE], "more_body": more}


def expire(limit: asyncio.Timeout) -> None:
    """Ends a time limit now."""
    if not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time())


def defect(facts: RequestFacts, error: BaseException) -> None:
    """Logs an exception that nobody foresaw: its type and place. Its message may contain a client's text."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    log_line("defect", id=facts.id.decode(), route=facts.route, error=type(error).__name__, at=f"{at.name}:{at.lineno}")


def declared(facts: RequestFacts, most: int) -> int:
    """Returns the size of the body: as declared, or the maximum. Raises Refusal for a larger or an invalid size."""
    said = facts.headers.get(b"content-length")
    try:
        size = most if said is None else length(said)
    except Malformed as error:
        raise Refusal("Validation", str(error), status=400) from None
    if size > most:
        raise too_large(most)
    return size


def too_large(most: int) -> Refusal:
    """Returns the error for a body that is too large."""
    message = f"The body is larger than the {most:,} bytes that are taken at once. Send it in parts."
    return Refusal("TooLarge", message, reason="body")
