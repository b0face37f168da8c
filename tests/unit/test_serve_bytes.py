"""Raw bytes to the server: it reads no request in them that a strict parser (h11) does not read in the same way.

The server may be stricter. Then it says so with status 400, and closes the connection.
"""

import asyncio
import os
import random
import re
import socket
import threading
import time
from dataclasses import dataclass, field

import h11
import pytest
import uvicorn
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from bertie.apps.serve.admission import Budget
from bertie.apps.serve.server import QuietServer, bind, uvicorn_settings
from serving import live, make_models, until

pytest.importorskip("starlette")
SECONDS = float(os.environ.get("BERTIE_FUZZ_SECONDS", "3600"))  # of each slow test
WAIT_S = 0.1  # for a server that waits too

# Bytes ---------------------------------------------------------------------------------------------------------------

ENDS = st.sampled_from([b"\r\n"] * 30 + [b"\n", b"\r", b"\r\n ", b"\r\n\t", b"\r\r\n", b"\x00\r\n"])
METHODS = st.sampled_from([b"POST"] * 8 + b"GET HEAD PUT post BREW POST\x00 CONNECT PRI".split(b" ") + [b""])
TARGETS = b"/ /%00 * http://localhost/x http://evil/x http://localhost /? //x /\xff /#a /?q=\x01".split(b" ")
TARGETS = st.sampled_from([b"/predict"] * 6 + [*TARGETS, b"/a b"])
VERSIONS = [b" HTTP/1.0", b" HTTP/2.0", b" HTTP/1.2", b" http/1.1", b"  HTTP/1.1", b" HTTP/1.10", b""]
VERSIONS = st.sampled_from([b" HTTP/1.1"] * 15 + VERSIONS)
NAMES = b"Host Content-Length Transfer-Encoding Content-Type Connection Expect Upgrade Content_Length Trailer X"
NAMES = st.sampled_from([*NAMES.split(b" "), b"", b"Content-Length ", b" Host", b"X\x00", b"X\xe9"])
VALUES = b"localhost 0 1 5 05 +5 -1 0x5 chunked Chunked identity xchunked close keep-alive 100-continue h2c Upgrade"
VALUES = [*VALUES.split(b" "), b"5, 5", b"5 5", b"5\x0b", b" chunked ", b"chunked, chunked", b"gzip, chunked"]
VALUES = st.sampled_from([*VALUES, b"", b"\x00", b"a\rb", b"\xff", b"\t", b"0" * 5000, b"9" * 30, b"x" * 40_000])
HEADER = st.tuples(NAMES, st.sampled_from([b": "] * 9 + [b":", b" : ", b" "]), VALUES, ENDS).map(b"".join)
SIZES = [b"%X", b"0%x", b"+%x", b" %x", b"%x ", b"%x;a=b", b"%x;\x00", b"-%x", b"0x%x", b"f%x", b"%x\t"]
SIZES = st.sampled_from([b"%x"] * 12 + [*SIZES, b"%x;" + b"e" * 40_000])


@st.composite
def chunked(draw) -> bytes:
    """A body in chunks, as it should be or nearly."""
    parts = []
    for data in draw(st.lists(st.binary(min_size=1, max_size=6), max_size=3)):
        parts += [draw(SIZES) % len(data), draw(ENDS), data, draw(ENDS)]
    trailers = draw(st.lists(HEADER, max_size=2)) if draw(st.integers(0, 3)) == 0 else []
    return b"".join([*parts, draw(st.sampled_from([b"0", b"0", b"000", b""])), draw(ENDS), *trailers, draw(ENDS)])


@st.composite
def requests(draw) -> bytes:
    """One request, as it should be or nearly."""
    line = draw(METHODS) + b" " + draw(TARGETS) + draw(VERSIONS) + draw(ENDS)
    headers = [b"Host: localhost\r\n"] if draw(st.integers(0, 9)) else []
    kind = draw(st.sampled_from(["none", "length", "length", "chunked", "chunked", "both"]))
    body = b"" if kind == "none" else draw(st.binary(max_size=12))
    if kind in ("length", "both"):
        headers.append(b"Content-Length: %d\r\n" % (len(body) + draw(st.sampled_from([0] * 9 + [-1, 1]))))
    if kind in ("chunked", "both"):
        headers.append(b"Transfer-Encoding: chunked\r\n")
        body = draw(chunked())
    if draw(st.integers(0, 2)) == 0:
        headers += draw(st.lists(HEADER, min_size=1, max_size=2))
    return line + b"".join(draw(st.permutations(headers))) + draw(ENDS) + body


@st.composite
def streams(draw) -> list[bytes]:
    """The bytes of a connection, in parts between which the client pauses."""
    data = bytearray(b"".join(draw(st.lists(requests(), min_size=1, max_size=3))))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):  # bytes that are changed, inserted or removed
        at = draw(st.integers(0, max(0, len(data) - 1)))
        data[at : at + draw(st.integers(0, 1))] = draw(st.binary(max_size=2))
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=4)))
    return [bytes(data[start:end]) for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


# What is read --------------------------------------------------------------------------------------------------------

Read = tuple[str, str, list[tuple[str, str]], str]
"""Method, target, headers, body."""


@dataclass
class Oracle:
    """What h11 reads: whole requests, and how it ends: "error", "waits" or "closed"."""

    requests: list[Read] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)  # also of a request without an end
    end: str = ""

    @classmethod
    def of(cls, data: bytes) -> "Oracle":
        connection, found, now, body = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20), cls(), None, b""
        connection.receive_data(data)
        while not found.end:
            try:
                event = connection.next_event()
            except h11.RemoteProtocolError:
                found.end = "error"
                continue
            if isinstance(event, h11.Request):
                now, body = event, b""
                found.methods.append(now.method.decode())
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                found.requests.append(read_of(now.method, now.target, list(now.headers), body))
                status = 404 if now.method == b"CONNECT" else 200  # after which a tunnel would follow
                connection.send(h11.Response(status_code=status, headers=[("content-length", "0")]))
                connection.send(h11.EndOfMessage())
                if connection.our_state is h11.MUST_CLOSE:
                    found.end = "closed"
                else:
                    connection.start_next_cycle()
            elif event is h11.NEED_DATA:
                found.end = "waits"
        return found


def read_of(method: bytes, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes) -> Read:
    """A request as JSON has it: with the path of an address, and without an offer of another protocol."""
    target = re.sub(rb"^https?://[^/]*", b"", target).removesuffix(b"?")
    told = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in headers if name != b"upgrade"]
    return [method.decode("latin-1"), target.decode("latin-1"), told, body.decode("latin-1")]


class Echo:
    """An application that stores what it reads."""

    def __init__(self) -> None:
        self.seen: list[Read] = []

    async def __call__(self, scope, receive, send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message.get("body", b""), message.get("more_body")
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        self.seen.append(read_of(scope["method"].encode(), scope["raw_path"] + query, scope["headers"], body))
        status = 404 if scope["method"] == "CONNECT" else 200
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    def malformed(self, reason: str) -> None:
        pass


@pytest.fixture(scope="module")
def echo():
    app, listener = Echo(), bind("127.0.0.1", 0)
    server = QuietServer(uvicorn.Config(app, **uvicorn_settings(Budget("bytes", 1_000_000))))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
    thread.start()
    until(lambda: server.started)
    app.port = listener.getsockname()[1]
    yield app
    server.should_exit = True
    thread.join(10)


def answers(port: int, parts: list[bytes], wait_s: float) -> tuple[bytes, bool]:
    """What a server sends for these bytes, and whether it closed the connection."""
    found, closed = b"", False
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for number, part in enumerate(parts):
                time.sleep(0.001 if number else 0)
                connection.sendall(part)
            connection.settimeout(wait_s)
            while part := connection.recv(65536):
                found += part
            closed = True
        except TimeoutError:
            pass
        except ConnectionError:
            closed = True
    return found, closed


def statuses(data: bytes, methods: list[str]) -> list[int]:
    """The statuses of these answers, which must be valid.

    methods: of the requests. To HEAD there is no body, but for a refusal of bytes that could not be read.
    """
    found = list[int]()
    while data:
        head = len(found) < len(methods) and methods[len(found)] == "HEAD" and b" 400 " not in data[:20]
        connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
        connection.send(h11.Request(method="HEAD" if head else "POST", target="/", headers=[("host", "x")]))
        connection.send(h11.EndOfMessage())
        connection.receive_data(data)
        while isinstance(event := connection.next_event(), h11.InformationalResponse):
            pass
        if event is h11.NEED_DATA:
            assert not connection.trailing_data[0], data
            return found
        found.append(event.status_code)
        while not isinstance(event := connection.next_event(), h11.EndOfMessage):
            assert isinstance(event, h11.Data), data
        data = connection.trailing_data[0]
    return found


def check(echo: Echo, parts: list[bytes]) -> None:
    data = b"".join(parts)
    oracle = Oracle.of(data)
    echo.seen.clear()
    sent, closed = answers(echo.port, parts, WAIT_S if oracle.end == "waits" else 5)
    seen = list(echo.seen)
    told = statuses(sent, [one[0] for one in seen])
    assert seen == oracle.requests[: len(seen)], (data, seen, oracle)
    refused = told[len(seen) :]
    assert refused in ([], [400]), (data, told, oracle)
    if refused:
        assert closed, data
        return
    assert len(seen) == len(oracle.requests), (data, seen, oracle)
    assert oracle.end != "error", (data, seen)
    assert closed == (oracle.end == "closed"), (data, oracle)


@pytest.mark.promise("safe-defaults")
@settings(max_examples=300)
@given(streams())
def test_it_reads_what_a_strict_parser_reads(echo, parts):
    check(echo, parts)


@pytest.mark.slow
def test_it_reads_what_a_strict_parser_reads_for_long(echo):
    for_long(lambda parts: check(echo, parts))


def for_long(work) -> None:
    """Runs a check on other bytes until the time is over. BERTIE_FUZZ_SECONDS sets it."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        many = settings(max_examples=500, derandomize=False, database=None)
        number = random.randrange(1 << 32)
        many(seed(number)(given(streams())(work)))()


# The whole server ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = make_models(tmp_path_factory.mktemp("models"), ["sequence"])["sequence"]
    with live({"m": folder}, keys=("secret",), max_body_bytes=1000) as running:
        yield running


def check_server(server, parts: list[bytes]) -> None:
    """Every answer is valid and no fault of the server, and nothing is held afterwards."""
    sent, _ = answers(server.port, parts, WAIT_S)
    if not sent.startswith(b"HTTP/1.1 100"):
        told = statuses(sent, Oracle.of(b"".join(parts)).methods)
        assert all(200 <= status < 500 for status in told), (parts, sent)
    assert server.get("/healthz").json() == {"status": "ok"}
    until(lambda: not server.fleet.admission.content.used, 5)


@pytest.mark.promise("safe-defaults")
@settings(max_examples=100)
@given(streams())
def test_any_bytes_to_the_server(server, parts):
    check_server(server, parts)


@pytest.mark.slow
def test_any_bytes_to_the_server_for_long(server):
    for_long(lambda parts: check_server(server, parts))
