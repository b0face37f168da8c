"""Served models under an open load: Bertie beside FastAPI with a pipeline of transformers, as people write it.

Requests arrive at random moments (a Poisson process), whether or not earlier ones have been answered, and a request's
time begins when it arrives. Each has one text of the machine's own Python documentation, 1 to 300 tokens. The client
runs on the same machine; its share of the processor is reported.

The rate is the highest one, found by bisection, at which 99 of 100 requests are answered within 100 ms.
"""

import asyncio
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertie import console
from bertie.bench import harness
from bertie.data import pydocs
from bertie.errors import BertieError, UsageError

LIMIT_S = 0.1  # what 99 of 100 requests are answered within
START_S = 180.0
MEDIAN_WORDS, SIGMA, MOST_WORDS = 24, 1.0, 200  # log-normal lengths: 1 to 300 tokens
CLASSIFY, EMBED = "/predict", "/embed"


@dataclass(frozen=True)
class Setup:
    """What all servers do. seconds: of each measurement."""

    model: str
    path: str
    seconds: float = 5.0
    steps: int = 5
    seed: int = 0


@dataclass
class Measured:
    """One load: the seconds each request took, those refused for want of room apart; how many failed otherwise."""

    rate: float
    took: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    failed: int = 0
    client_cpu_s: float = 0.0

    def quantile(self, share: float) -> float:
        """The time within which this share of the requests was answered; infinite when more of them failed."""
        ranked = sorted(self.took) + [float("inf")] * (self.failed + len(self.refused))
        return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else float("inf")


def texts(count: int, seed: int) -> list[str]:
    """Texts of the documentation of Python's own library, of very different lengths."""
    rng = random.Random(seed)
    words = [word for module in pydocs.modules("email") for word in module.text.split()]
    words += [word for module in pydocs.modules("asyncio") for word in module.text.split()]
    found = []
    for _ in range(count):
        length = max(1, min(MOST_WORDS, round(rng.lognormvariate(0, SIGMA) * MEDIAN_WORDS)))
        start = rng.randrange(len(words) - length)
        found.append(" ".join(words[start : start + length]))
    return found


# Servers -------------------------------------------------------------------------------------------------------------


def commands(setup: Setup, port: int) -> dict[str, list[str]]:
    """How each server is started."""
    peer = "transformers pipeline" if setup.path == CLASSIFY else "sentence-transformers"
    own = ["-m", "bertie", "serve", setup.model, "--port", str(port), "--no-access-log"]
    return {
        "bertie serve": [sys.executable, *own],
        f"FastAPI + {peer}": [sys.executable, "-m", "bertie.bench.serve_peers", setup.path, setup.model, str(port)],
    }


@contextmanager
def started(command: Sequence[str], port: int, body: bytes) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """A running server, and how many seconds it took until its first answer."""
    began = time.perf_counter()
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
    try:
        while not _answers(port, body):
            if server.poll() is not None:
                said = server.stderr.read().decode()[-1500:] if server.stderr else ""
                raise BertieError(f"The server {' '.join(command[:4])} ended before it was ready:\n{said}")
            if time.perf_counter() - began > START_S:
                raise BertieError(f"The server {' '.join(command[:4])} was not ready after {START_S:.0f} s.")
            time.sleep(0.05)
        yield server, time.perf_counter() - began
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _answers(port: int, request: bytes) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.sendall(request)
            connection.settimeout(60)
            return b" 200 " in connection.recv(64)
    except OSError:
        return False


def memory_bytes(pid: int) -> int:
    """What a server and its processes hold, pages that they share counted once."""
    import psutil

    process = psutil.Process(pid)
    return sum(one.memory_full_info().uss for one in (process, *process.children(recursive=True)))


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


# The client ----------------------------------------------------------------------------------------------------------


def request_of(path: str, text: str) -> bytes:
    """One request as bytes."""
    body = json.dumps({"inputs": text}).encode()
    told = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"POST {path} HTTP/1.1\r\n{told}\r\n".encode() + body


class Client:
    """Connections that are kept open, as many as there are requests at once."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def send(self, request: bytes) -> int:
        """-> status"""
        pair = self.free.pop() if self.free else await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = pair
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        lower = head.lower()
        at = lower.index(b"content-length:") + 15
        await reader.readexactly(int(lower[at : lower.index(b"\r\n", at)]))
        self.free.append(pair)
        return int(head[9:12])

    def close(self) -> None:
        """Close all connections."""
        for _, writer in self.free:
            writer.close()


async def open_loop(port: int, requests: Sequence[bytes], rate: float, seconds: float, seed: int) -> Measured:
    """So many requests a second for some seconds, each at its own moment."""
    rng, client, found = random.Random(seed), Client(port), Measured(rate)

    async def one(request: bytes, due: float) -> None:
        try:
            status = await asyncio.wait_for(client.send(request), 10)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
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
    """Requests a second when so many clients send one after the other: about what the server can do."""
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


# Measuring -----------------------------------------------------------------------------------------------------------


def measure(setup: Setup) -> list[dict[str, Any]]:
    """One row for each server, Bertie's first."""
    requests = [request_of(setup.path, text) for text in texts(500, setup.seed)]
    rows: list[dict[str, Any]] = []
    names = list(commands(setup, 0))
    with console.progress("measuring", total=len(names) * (setup.steps + 2), unit="loads") as advance:
        for name in names:
            port = free_port()
            with started(commands(setup, port)[name], port, requests[0]) as (server, cold_s):
                rows.append({"server": name, "cold_start_s": round(cold_s, 2)} | _rates(setup, port, requests, advance))
                rows[-1]["memory_bytes"] = memory_bytes(server.pid)
    for row in rows:
        ratio = rows[0]["requests_per_s"] / row["requests_per_s"] if row["requests_per_s"] else float("inf")
        row |= {"bertie_times": round(ratio, 2), "path": setup.path, **harness.machine()}
    return rows


def _rates(setup: Setup, port: int, requests: Sequence[bytes], advance: console.Advance) -> dict[str, Any]:
    most = asyncio.run(closed_loop(port, requests, min(3.0, setup.seconds)))
    advance(1, last=f"{most:,.0f} requests/s, closed loop")
    low, high, best = 0.0, 1.3 * most, Measured(0.0)
    for step in range(setup.steps):
        rate = (low + high) / 2
        found = asyncio.run(open_loop(port, requests, rate, setup.seconds, setup.seed + step))
        good = found.quantile(0.99) <= LIMIT_S
        low, high, best = (rate, high, found) if good else (low, rate, best)
        advance(1, last=f"{rate:,.0f}/s: p99 {found.quantile(0.99) * 1000:,.0f} ms")
    half = asyncio.run(open_loop(port, requests, max(1.0, low / 2), setup.seconds, setup.seed + 99))
    advance(1)
    return {
        "requests_per_s": round(low, 1),
        "closed_loop_per_s": round(most, 1),
        "p50_ms": round(1000 * half.quantile(0.5), 2),
        "p99_ms": round(1000 * half.quantile(0.99), 2),
        "client_cpu_ms": round(1000 * best.client_cpu_s / max(1, len(best.took)), 3),
    }


def latency(model: str, path: str, rounds: int = 200) -> dict[str, float]:
    """Milliseconds of one text alone, in the library and through a server: medians, text by text in turn."""
    import bertie
    from bertie.infer.choose import engine_of

    setup = Setup(model, path)
    sent, port = texts(50, 1), free_port()
    loaded = bertie.load(model)
    requests = [request_of(path, text) for text in sent]
    library: list[float] = []
    served: list[float] = []
    predictor = bertie.Predictor(engine_of(loaded, "auto"), loaded.tokenizer)
    with (
        started(commands(setup, port)["bertie serve"], port, requests[0]),
        socket.create_connection(("127.0.0.1", port)) as s,
    ):
        for number in range(rounds):
            began = time.perf_counter()
            predictor.predict([sent[number % 50]])
            library.append(time.perf_counter() - began)
            began = time.perf_counter()
            s.sendall(requests[number % 50])
            _read_one(s)
            served.append(time.perf_counter() - began)
    return {"library_ms": 1000 * statistics.median(library), "served_ms": 1000 * statistics.median(served)}


def _read_one(connection: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    lower = head.lower()
    size = int(lower.partition(b"content-length:")[2].partition(b"\r\n")[0])
    while len(body) < size:
        body += connection.recv(65536)


def path_of(model: Path) -> str:
    """Which route suits a model. Raises UsageError for one of another task."""
    if (model / "modules.json").is_file():
        return EMBED
    config: Mapping[str, Any] = json.loads((model / "config.json").read_text(encoding="utf-8"))
    if str(config.get("architectures", [""])[0]).endswith("ForSequenceClassification"):
        return CLASSIFY
    raise UsageError(f"{model} is no classifier and no sentence model. Pass the folder of one of these.")
