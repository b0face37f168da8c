"""One client cannot keep the others out, however many slow connections it opens, of whatever kind."""

import asyncio
import http.client
import json
import resource
import socket
import threading
import time
from contextlib import ExitStack, suppress
from functools import partial

import pytest

from bertie.apps.serve import protocol
from bertie.apps.serve.protocol import Turns
from serving import live, make_models, until

pytest.importorskip("starlette")
BODY = 100_000
HEAD = "POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"
CHUNKS = HEAD.replace("Content-Length: {}", "Transfer-Encoding: chunked")
SHORT = json.dumps({"inputs": "ab " * 1500}).encode()  # its answer has 300 kB
ASKED = HEAD.format(len(SHORT)).replace("/embed", "/tokenize").encode() + SHORT
KINDS = {
    "nothing": b"",
    "a slow head": b"POST /embed HTT",
    "an empty line": b"\r",
    "a declared body that does not come": HEAD.format(BODY).encode(),
    "a body that stops": HEAD.format(BODY).encode() + b"x" * (BODY - 1),
    "chunks that stop": CHUNKS.encode() + b"%x\r\n" % (BODY - 1) + b"x" * (BODY - 2),
    "a chunk line that stops": CHUNKS.encode() + b"5;" + b"e" * 500,
    "a refused body that goes on": HEAD.format(BODY * 1000).encode() + b"x" * BODY,
    "another method with a body": HEAD.replace("POST", "PUT").format(BODY).encode() + b"x" * (BODY - 1),
    "a body without its type": HEAD.replace("json", "xml").format(BODY).encode() + b"x" * (BODY - 1),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return make_models(tmp_path_factory.mktemp("models"), ["embed"])


@pytest.fixture(scope="module")
def server(folders):
    """A server that may hold the bytes of ten bodies, on a system that takes over few."""
    with live({"m": folders["embed"]}, max_body_bytes=BODY, max_held_bytes=10 * BODY) as running:
        for listener in running.server.servers[0].sockets:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        yield running


def opened(stack: ExitStack, server, count: int, data: bytes) -> list[socket.socket]:
    """Connections on which these bytes were sent as far as the server reads them."""
    found = []
    for _ in range(count):
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 10))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        with suppress(BlockingIOError, ConnectionError):
            connection.send(data)
        found.append(connection)
    return found


def settled(server) -> bool:
    """Whether no request arrives and no answer is computed."""
    before = dict(server.fleet.metrics.counts.values["te_request_count"])
    time.sleep(0.1)
    return before == server.fleet.metrics.counts.values["te_request_count"] and not server.fleet.admission.texts.used


def check_others(server) -> None:
    """Others are answered, whatever they ask."""
    for body in ({"inputs": "ab"}, {"inputs": "a" * (BODY // 2)}):
        told = server.post("/embed", body)
        assert told.status_code == 200, told.text
    assert server.get("/healthz").status_code == 200


@pytest.mark.promise("overload")
@pytest.mark.parametrize("kind", KINDS)
def test_slow_clients(server, kind):
    with ExitStack() as stack:
        opened(stack, server, 100, KINDS[kind])
        check_others(server)
        assert server.fleet.admission.content.used <= 10 * BODY
    until(lambda: not server.fleet.admission.content.used, 10)


@pytest.mark.promise("overload")
def test_slow_readers(server):
    with ExitStack() as stack:
        opened(stack, server, 40, ASKED)
        until(lambda: server.fleet.admission.content.used > 5 * BODY)
        check_others(server)
        assert server.fleet.admission.content.used <= 15 * BODY
    until(lambda: not server.fleet.admission.content.used, 20)


@pytest.mark.promise("overload")
def test_the_one_that_waits_longest_makes_room(server):
    """It is told so, and those that came later go on."""
    with ExitStack() as stack:
        first, *_, last = opened(stack, server, 10, KINDS["a body that stops"])
        until(lambda: server.fleet.admission.content.used > 9 * BODY)
        check_others(server)
        first.settimeout(5)
        assert b" 408 " in first.recv(1000)
        last.settimeout(5)
        last.sendall(b"x")
        assert b" 422 " in last.recv(1000), "its body came to an end"
    until(lambda: not server.fleet.admission.content.used, 10)


@pytest.mark.promise("overload")
@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, "readers"])
def test_a_thousand_slow_clients(server, kind):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    with ExitStack() as stack:
        for _ in range(20):
            opened(stack, server, 50, KINDS.get(kind, ASKED))
            until(lambda: settled(server))  # answers that are computed are another matter
        for _ in range(10):
            check_others(server)
            time.sleep(0.2)
    until(lambda: not server.fleet.admission.content.used, 60)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.promise("safe-defaults")
@pytest.mark.parametrize("size", [BODY + 1, 30_000_000])
@pytest.mark.parametrize("headers", [{}, {"Connection": "close"}], ids=["kept", "closed"])
def test_a_refusal_arrives_before_a_large_body_is_sent(server, size, headers):
    """http.client sends everything before it reads."""
    for status, more in ((413, {}), (415, {"Content-Type": "text/plain"}), (421, {"Host": "evil.example"})):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("POST", "/embed", b"x" * size, {"Content-Type": "application/json", **headers, **more})
        response = connection.getresponse()
        assert response.status == status
        assert json.loads(response.read())["error_type"]
        connection.close()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    chunks = (b"x" * 50_000 for _ in range(size // 50_000 + 1))
    connection.request("POST", "/embed", chunks, {"Content-Type": "application/json", **headers}, encode_chunked=True)
    assert connection.getresponse().status == 413


def test_a_refused_connection_can_be_used_again(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    for _ in range(3):
        connection.request("POST", "/embed", b"x" * (BODY + 1), {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert (response.status, bool(response.read())) == (413, True)
        connection.request("POST", "/embed", b'{"inputs": "ab"}', {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert (response.status, bool(response.read())) == (200, True)


def test_requests_that_come_before_an_answer_wait_unread(server):
    """A thousand in one packet are one request at a time, and not a thousand."""
    (worker,) = server.fleet.models["m"].batcher.workers
    worker.delay_s = 0.5
    body = b'{"inputs": "ab"}'
    first = HEAD.format(len(body)).encode() + body
    with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
        connection.sendall(first + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)
        until(lambda: server.fleet.admission.texts.used)
        (busy,) = [one for one in server.server.server_state.connections if not one.waits]
        assert not busy.pipeline
        worker.delay_s = 0.0
        found = b""
        while found.count(b"HTTP/1.1 200 OK") < 1001:
            found += connection.recv(65536)


def test_requests_without_end_take_no_memory(server):
    """What a client sends faster than it is answered stays on its side."""
    body = b'{"inputs": "ab"}'
    many = (HEAD.format(len(body)).encode() + body) * 1000
    end, answers = time.monotonic() + 1.5, 0
    with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
        connection.setblocking(False)
        while time.monotonic() < end:
            with suppress(BlockingIOError):
                connection.send(many)
            with suppress(BlockingIOError):
                answers += connection.recv(65536).count(b"HTTP/1.1 200 OK")
            waiting = [len(one.parser.buffer) for one in list(server.server.server_state.connections) if one.parser]
            assert max(waiting) < 600_000
    assert answers > 10
    until(lambda: not server.fleet.admission.texts.used)


def test_what_waits_unread_counts(server):
    """Also the beginning of a head. When others need the room, the connections that hold most are closed."""
    content, get = server.fleet.admission.content, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    (worker,) = server.fleet.models["m"].batcher.workers
    body = b'{"inputs": "ab"}'
    first = HEAD.format(len(body)).encode() + body
    with ExitStack() as stack:
        stack.callback(setattr, worker, "delay_s", 0.0)
        worker.delay_s = 0.5
        for connection in opened(stack, server, 1, first + get * 1000):
            connection.setblocking(True)
            until(lambda: content.used > 500 * len(get))
            worker.delay_s = 0.0
            answers = b""
            while answers.count(b"HTTP/1.1 200 OK") < 1001:
                answers += connection.recv(65536)
        until(lambda: not content.used)
        opened(stack, server, 100, get[:-2] + b"x" * 5000)
        until(lambda: content.used > 400_000)
        worker.delay_s = 0.5
        opened(stack, server, 100, first + get * 4000)
        until(lambda: content.used > 5 * BODY)
        worker.delay_s = 0.0
        check_others(server)
        assert content.used <= 15 * BODY
    until(lambda: not content.used, 10)


def test_few_requests_begin_in_each_turn_of_the_loop(monkeypatch):
    """So a client with many connections delays others by one request of each."""
    monkeypatch.setattr(protocol, "_REQUESTS_PER_TURN", 2)
    begun = list[str]()
    counts = list[int]()

    async def main() -> None:
        turns = Turns()
        for name in "abcde":
            turns.take(partial(begun.append, name))
        for _ in range(5):
            counts.append(len(begun))
            await asyncio.sleep(0)
        turns.take(partial(begun.append, "f"))
        counts.append(len(begun))

    asyncio.run(main())
    assert begun == ["a", "b", "c", "d", "e", "f"]
    assert counts == [2, 4, 5, 5, 5, 6]


def test_many_clients_at_once_are_not_slow_ones(server):
    found = list[int]()
    body = {"inputs": "a b c " * 5000}

    def ask() -> None:
        found.append(server.post("/embed", body).status_code)

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) <= {200, 429}
    assert found.count(200) >= 10
