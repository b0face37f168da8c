"""A client that loads a server: texts, requests, and open and closed loops of them.

In an open loop, requests arrive at random moments (a Poisson process), whether or not earlier ones have been answered.
A request's time begins when it arrives. In a closed loop, each client sends one request after another.

The client is uvloop and one small protocol, since it shares the processor with the server that it measures. How late it
sent each request is measured too.
"""

import asyncio
import json
import random
import socket
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bertie.apps import pydocs

T = TypeVar("T")
ANSWER_S = 10.0  # after which a request has failed
MEDIAN_WORDS, SIGMA, MOST_WORDS = 24, 1.0, 200  # log-normal lengths: 1 to 300 tokens


@dataclass
class Measured:
    """One load: seconds of the answered and of the refused requests, and the number of failed ones.

    late: by how many seconds each request was sent after its moment; part of its time.
    """

    rate: float
    took: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    failed: int = 0
    client_cpu_s: float = 0.0

    def quantile(self, share: float) -> float:
        """The time within which this share of the requests was answered; infinite when more of them failed."""
        return quantile([*self.took, *[float("inf")] * (self.failed + len(self.refused))], share)


def quantile(values: Sequence[float], share: float) -> float:
    """Returns the value that this share of the values does not exceed; infinite for none."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else float("inf")


def texts(count: int, seed: int) -> list[str]:
    """Returns texts of Python's documentation with very different lengths."""
    rng = random.Random(seed)
    words = [word for module in pydocs.modules("email") for word in module.text.split()]
    words += [word for module in pydocs.modules("asyncio") for word in module.text.split()]
    found = []
    for _ in range(count):
        length = max(1, min(MOST_WORDS, round(rng.lognormvariate(0, SIGMA) * MEDIAN_WORDS)))
        start = rng.randrange(len(words) - length)
        found.append(" ".join(words[start : start + length]))
    return found


def request_of(path: str, body: Any) -> bytes:
    """A POST request of JSON as bytes."""
    data = json.dumps(body).encode()
    told = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    return f"POST {path} HTTP/1.1\r\n{told}\r\n".encode() + data


def ask(connection: socket.socket, request: bytes) -> int:
    """Send one request and wait for the whole answer. -> status"""
    connection.sendall(request)
    data = b""
    while b"\r\n\r\n" not in data:
        data += received(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    while len(body) < size:
        body += received(connection)
    return int(head[9:12])


def received(connection: socket.socket) -> bytes:
    """Some bytes. Raises ConnectionError when the other side has closed."""
    if part := connection.recv(65536):
        return part
    raise ConnectionError("The server closed the connection.")


class Connection(asyncio.Protocol):
    """One connection that is kept open, with one request at a time."""

    def __init__(self) -> None:
        self.data, self.size = b"", 0
        self.status: asyncio.Future[int]
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Keeps the transport."""
        self.transport = transport

    def send(self, request: bytes) -> "asyncio.Future[int]":
        """Sends a request. -> its status, when the whole answer is there"""
        self.status = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self.status

    def data_received(self, data: bytes) -> None:
        """Reads a part of an answer."""
        self.data += data
        if not self.size and (end := self.data.find(b"\r\n\r\n")) >= 0:
            head = self.data[:end].lower()
            self.size = end + 4 + int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        if self.size and len(self.data) >= self.size:
            status, self.data, self.size = int(self.data[9:12]), b"", 0
            if not self.status.done():
                self.status.set_result(status)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fails the request that waits."""
        if hasattr(self, "status") and not self.status.done():
            self.status.set_exception(ConnectionError("The server closed the connection."))


class Client:
    """Connections that are kept open, as many as there are requests at once."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.free: list[Connection] = []

    async def send(self, request: bytes) -> int:
        """-> status"""
        while self.free and self.free[-1].transport.is_closing():
            self.free.pop()  # the server closes connections that were idle for seconds
        connection = self.free.pop() if self.free else await self._connect()
        status = await connection.send(request)
        self.free.append(connection)
        return status

    async def _connect(self) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", self.port)
        return connection

    def close(self) -> None:
        """Closes all connections."""
        for connection in self.free:
            connection.transport.close()


def run(load: Coroutine[Any, Any, T]) -> T:
    """Returns what a load measures, on a fast event loop."""
    import uvloop

    return uvloop.run(load)


async def open_loop(port: int, requests: Sequence[bytes], rate: float, seconds: float, seed: int) -> Measured:
    """Sends requests at a rate for some seconds, at random moments."""
    rng, client, found = random.Random(seed), Client(port), Measured(rate)

    async def one(request: bytes, due: float) -> None:
        found.late.append(time.perf_counter() - due)
        try:
            async with asyncio.timeout(ANSWER_S):
                status = await client.send(request)
        except OSError:  # also TimeoutError
            status = 0
        if status in (200, 429):
            (found.took if status == 200 else found.refused).append(time.perf_counter() - due)
        else:
            found.failed += 1

    tasks: list[asyncio.Task[None]] = []
    cpu, began, due = time.process_time(), time.perf_counter(), 0.0
    while (due := due + rng.expovariate(rate)) < seconds:
        await asyncio.sleep(max(0.0, began + due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(requests[len(tasks) % len(requests)], began + due)))
    await asyncio.gather(*tasks)
    found.client_cpu_s = time.process_time() - cpu
    client.close()
    return found


async def closed_loop(port: int, requests: Sequence[bytes], seconds: float, clients: int = 8) -> float:
    """Returns the requests per second of some clients that each wait for an answer: an estimate of the capacity."""
    client, count, until = Client(port), 0, time.perf_counter() + seconds

    async def one(first: int) -> None:
        nonlocal count
        number = first
        while time.perf_counter() < until:
            await client.send(requests[number % len(requests)])
            number, count = number + clients, count + 1

    await asyncio.gather(*map(one, range(clients)))
    client.close()
    return count / seconds
