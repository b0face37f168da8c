"""The checks before a request is read: host, key, type, size, time. Plain ASGI, so that it costs little.

The body is read here, within its limits of bytes and seconds. A request is cancelled when its client disconnects.
"""

import asyncio
import hmac
import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from bertie.serve.admission import Admission, Refused
from bertie.serve.errors import Refusal
from bertie.serve.served import refused

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

OPEN = re.compile(r"/|/health|/healthz|/readyz|/docs|/docs/[\w.-]+|/page/[\w.-]+|/openapi\.json")
"""What is answered without a key: probes, and pages that hold no answer of a model."""
EVENTS = b"text/event-stream"
WITH_BODY = ("POST", "PUT", "PATCH")
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
    """The outermost layer of the application. finished: called after every request."""

    app: App
    limits: Limits
    admission: Admission
    draining: Callable[[], bool]
    finished: Callable[["Seen"], None]

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Handles one request, or the lifespan."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        seen = Seen(scope["path"], scope["method"], dict(scope["headers"]))
        scope.setdefault("state", {})["seen"] = seen

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen.status = message["status"]
                message["headers"] = [*message.get("headers", ()), *SAFE, (b"x-request-id", seen.id)]
                if self.draining():
                    message["headers"].append((b"connection", b"close"))
                seen.begun = True
                seen.streaming = any(value.startswith(EVENTS) for _, value in message["headers"])
            elif not message.get("more_body"):
                seen.streaming = False
            await send(message)

        held = 0
        try:
            self.check(scope, seen)
            if scope["method"] in WITH_BODY:
                size = declared(seen, self.limits.max_body_bytes)
                self.admission.content.take(size, self.admission.retry_after_s())
                held = size
                body = await self.read(receive, size)
                await self.within(scope, body, receive, tell)
            else:
                await self.app(scope, receive, tell)
        except Refused as error:
            await self.refuse(refused(error), seen, tell)
        except Refusal as error:
            await self.refuse(error, seen, tell)
        except asyncio.CancelledError:
            raise
        finally:
            self.admission.content.give(held)
            self.finished(seen)

    def check(self, scope: MutableMapping[str, Any], seen: "Seen") -> None:
        """Raises Refusal for a host, a key, an encoding or a type that is not accepted; Refused for a spent budget."""
        host = host_of(seen.headers.get(b"host", b"").decode("latin-1"))
        if self.limits.hosts and host not in self.limits.hosts:
            raise Refusal("Validation", "This server does not answer under that host name.", status=421)
        if self.limits.keys and not OPEN.fullmatch(seen.path):
            self.check_key(seen.headers.get(b"authorization", b""))
        if seen.method != "POST":
            return
        if self.draining():
            raise Refusal("Unhealthy", "The server is shutting down. Send the request to another one.")
        self.admission.check_room()
        if seen.headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise Refusal("UnsupportedMedia", "Compressed bodies are not accepted. Omit Content-Encoding.")
        kind = seen.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json":
            raise Refusal("UnsupportedMedia", "Send JSON, with the header Content-Type: application/json.")

    def check_key(self, given: bytes) -> None:
        """Raises Refusal for a wrong key. The comparison takes constant time."""
        scheme, _, key = given.partition(b" ")
        right = [hmac.compare_digest(key.strip(), known) for known in self.limits.keys]
        if scheme.lower() != b"bearer" or not any(right):
            message = "A key is needed: send the header Authorization: Bearer KEY."
            raise Refusal("Unauthorized", message, headers={"WWW-Authenticate": "Bearer"})

    async def read(self, receive: Receive, size: int) -> bytes:
        """Returns the body. Raises Refusal if it is too large or too slow."""
        parts, got = list[bytes](), 0
        try:
            async with asyncio.timeout(self.limits.body_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refusal(
                            "Validation", "The client disconnected before its request was complete.", status=400
                        )
                    part = message.get("body", b"")
                    got += len(part)
                    if got > size:
                        raise too_large(self.limits.max_body_bytes)
                    parts.append(part)
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            raise Refusal("Validation", "The request's body came too slowly.", status=408) from None

    async def within(self, scope: MutableMapping[str, Any], body: bytes, receive: Receive, send: Send) -> None:
        """Runs the application on a body, until it ends, the client disconnects or the time is over."""

        async def replay() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        seen = scope["state"]["seen"]
        work = asyncio.ensure_future(self.app(scope, replay, send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            done, _ = await asyncio.wait((work, gone), timeout=self.limits.request_s, return_when="FIRST_COMPLETED")
            if work in done:
                work.result()
            elif gone in done:
                seen.status = 499
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

    async def refuse(self, error: Refusal, seen: "Seen", send: Send) -> None:
        """Sends an error, unless a response has begun; then as the last event of a stream."""
        seen.error, seen.reason = error.kind, error.reason
        body = orjson.dumps(error.body(seen.path))
        if seen.streaming:
            await send({"type": "http.response.body", "body": b"data: " + body + b"\n\n"})
        if seen.begun:
            return
        headers = [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
        headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if seen.method in WITH_BODY and error.status in (400, 401, 408, 413, 415, 421):
            headers.append((b"connection", b"close"))  # the rest of the body is not read
        await send({"type": "http.response.start", "status": error.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@dataclass
class Seen:
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
    call: Any = None
    started: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        given = self.headers.get(b"x-request-id", b"")
        self.id = given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8).encode()
        found = TRACEPARENT.fullmatch(self.headers.get(b"traceparent", b""))
        self.trace = found[1].decode() if found else ""


def host_of(name: str) -> str:
    """Returns a host name in lower case without its port. Addresses of IPv6 are in brackets."""
    return f"[{name}]" if name.count(":") > 1 and name[0] != "[" else PORT.sub("", name.lower())


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


def declared(seen: Seen, most: int) -> int:
    """Returns the size of the body: as declared, or the maximum. Raises Refusal for a larger size."""
    said = seen.headers.get(b"content-length")
    if said is None:
        return most
    if not said.isdigit() or int(said[:20]) > most:
        raise too_large(most)
    return int(said)


def too_large(most: int) -> Refusal:
    """Returns the error for a body that is too large."""
    message = f"The body is larger than the {most:,} bytes that are taken at once. Send it in parts."
    return Refusal("TooLarge", message, reason="body")
