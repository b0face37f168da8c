"""Served models under an open load: Bertie, usual servers, and infinity.

Each request has one text of the machine's own Python documentation, 1 to 300 tokens. The client runs on the same
machine; its share of the processor is reported.

    requests/s   the highest rate, found by bisection, at which 99 of 100 requests are answered within 100 ms
    p50, p99     of the requests at half that rate
    one text     milliseconds of one text at a time, as a share of what Bertie's library takes for the same text
    overload     Bertie at ten times the rate of a closed loop: times of the requests it refuses, and of the others

All servers are started, each alone; one that is not measured is stopped (SIGSTOP), and the servers take turns.
"""

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks import harness
from benchmarks.load import Measured, ask, closed_loop, open_loop, quantile, request_of, run, texts
from bertie.console import console
from bertie.errors import BertieError, UsageError

if TYPE_CHECKING:
    from bertie.infer.predict import Predictor

LIMIT_S = 0.1  # what 99 of 100 requests are answered within
FEWEST = 100  # requests of a load: with less, the 99th percentile is the slowest one
START_S = 300.0  # infinity first computes batches of 32 texts: 8 s alone, and minutes on a busy machine
TEXTS = 500
SEARCHED = 0.3, 1.3  # of the closed loop's rate: where the first round looks for the highest rate
AGAIN = 0.75, 1.25  # of the round before: where the next ones look
BERTIE = "bertie serve"
OVERLOAD = 10.0
CLASSIFY, EMBED = "/predict", "/embed"


@dataclass(frozen=True)
class Setup:
    """What all servers do.

    seconds: of each load; rounds, steps: searches for the highest rate, loads in each. int8: folder of the same model
    in int8; bf16: whether Bertie is measured in bfloat16 too. overload_s: seconds of overload; 0: none.
    """

    model: str
    path: str
    seconds: float = 4.0
    rounds: int = 2
    steps: int = 4
    infinity: str | None = None
    precision: str = "fp32"
    int8: str | None = None
    bf16: bool = False
    overload_s: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Server:
    """How a server is started on a port, and one request to it."""

    name: str
    command: Callable[[int], list[str]]
    request: Callable[[str], bytes]


@dataclass(eq=False)
class Running:
    """A started server, and what was measured of it. rates: of each round; half: loads at half the rate.

    flood: ten times the rate of the closed loop; only for Bertie, as other servers take every request.
    """

    server: Server
    port: int
    process: psutil.Process
    cold_start_s: float
    requests: Sequence[bytes]
    closed_per_s: float = 0.0
    rates: list[float] = field(default_factory=list)
    half: list[Measured] = field(default_factory=list)
    alone_ms: list[float] = field(default_factory=list)
    flood: Measured | None = None

    def family(self) -> list[psutil.Process]:
        """Its processes."""
        return [self.process, *self.process.children(recursive=True)]

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Let it run, and stop it afterwards."""
        for one in self.family():
            one.resume()
        try:
            yield
        finally:
            for one in self.family():
                one.suspend()


# Servers -------------------------------------------------------------------------------------------------------------


def servers(setup: Setup) -> list[Server]:
    """Bertie, FastAPI with the library that people use for such a model, and infinity where its program was given."""

    def post(path: str, key: str = "inputs") -> Callable[[str], bytes]:
        return lambda text: request_of(path, {key: [text] if key == "input" else text})

    def own(name: str, model: str, precision: str) -> Server:
        options = [model, "--no-access-log", "--precision", precision, "--port"]
        return Server(
            name, lambda port: [sys.executable, "-m", "bertie", "serve", *options, str(port)], post(setup.path)
        )

    def written(port: int) -> list[str]:
        return [sys.executable, "-m", "benchmarks.serve_peers", setup.path, setup.model, str(port)]

    def infinity(port: int) -> list[str]:
        options = ["--no-trust-remote-code", "--host", "127.0.0.1", "--port", str(port), "--log-level", "error"]
        return [str(setup.infinity), "v2", "--model-id", setup.model, *options]

    peer = "transformers pipeline" if setup.path == CLASSIFY else "sentence-transformers"
    found = [own(BERTIE, setup.model, setup.precision)]
    found += [own(f"{BERTIE}, bf16", setup.model, "bf16")] if setup.bf16 else []
    found += [own(f"{BERTIE}, int8", setup.int8, "fp32")] if setup.int8 else []
    found.append(Server(f"FastAPI + {peer}", written, post(setup.path)))
    if setup.infinity:
        route = "/classify" if setup.path == CLASSIFY else "/embeddings"
        found.append(Server("infinity", infinity, post(route, "input")))
    return found


@contextmanager
def started(server: Server, requests: Sequence[bytes]) -> Iterator[Running]:
    """A running server that has answered once, and how many seconds that took. Raises BertieError."""
    port = free_port()
    command, began = server.command(port), time.perf_counter()
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
    try:
        while not _answers(port, requests[0]):
            if child.poll() is not None:
                said = child.stderr.read().decode()[-1500:] if child.stderr else ""
                raise BertieError(f"{server.name} ended before it was ready:\n{said}")
            if time.perf_counter() - began > START_S:
                raise BertieError(f"{server.name} was not ready after {START_S:.0f} s.")
            time.sleep(0.05)
        yield Running(server, port, psutil.Process(child.pid), time.perf_counter() - began, requests)
    finally:
        with suppress(psutil.NoSuchProcess):
            for one in [*psutil.Process(child.pid).children(recursive=True), psutil.Process(child.pid)]:
                one.kill()
        child.communicate()


def _answers(port: int, request: bytes) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.settimeout(60)
            return ask(connection, request) == 200
    except OSError:
        return False


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


# Measuring -----------------------------------------------------------------------------------------------------------


def measure(setup: Setup) -> list[dict[str, Any]]:
    """One row for each server, Bertie's first."""
    sent, chosen = texts(TEXTS, setup.seed), servers(setup)
    loads = len(chosen) * (2 + setup.rounds * (setup.steps + 1))
    with ExitStack() as stack, console.progress("measuring", total=loads, unit="loads") as advance:
        running = []
        for server in chosen:
            running.append(stack.enter_context(started(server, [server.request(text) for text in sent])))
            with running[-1].awake():
                running[-1].closed_per_s = run(closed_loop(running[-1].port, running[-1].requests, 2.0))
            advance(1, last=f"{server.name}: {running[-1].closed_per_s:,.0f} requests/s, closed loop")
        library_ms = alone(running, library(setup), sent)
        advance(len(running))
        for number in range(setup.rounds):
            search(setup, running, number, advance)
        for one in running if setup.overload_s else ():
            if one.server.name.startswith(BERTIE):
                one.flood = load(setup, one, OVERLOAD * one.closed_per_s, 0, setup.overload_s)
        rows = [row(one, library_ms) for one in running]
    for found in rows:
        rate = found["requests_per_s"]
        found["bertie_times"] = round(rows[0]["requests_per_s"] / rate, 2) if rate else None
        found |= {
            "path": setup.path,
            "precision": setup.precision,
            "library_ms": round(statistics.median(library_ms), 3),
            **harness.machine(),
        }
    return rows


def search(setup: Setup, running: Sequence[Running], number: int, advance: Callable[..., None]) -> None:
    """One round: the servers take turns at each step of their searches. A rate that no load has met is 0."""
    between: dict[Running, tuple[float, float]] = {}
    met = dict.fromkeys(running, 0.0)
    for one in running:
        rate, (low, high) = (one.rates[-1], AGAIN) if one.rates and one.rates[-1] else (one.closed_per_s, SEARCHED)
        between[one] = low * rate, high * rate
    for step in range(setup.steps):
        for one in running:
            low, high = between[one]
            rate = (low + high) / 2
            found = load(setup, one, rate, 100 * number + step)
            good = found.quantile(0.99) <= LIMIT_S
            met[one] = rate if good else met[one]
            between[one] = (rate, high) if good else (met[one], rate)
            advance(1, last=f"{one.server.name} {rate:,.0f}/s: p99 {found.quantile(0.99) * 1000:,.0f} ms")
    for one in running:
        one.rates.append(met[one])
        one.half.append(load(setup, one, (met[one] or between[one][1]) / 2, 100 * number + 99))
        advance(1)


def load(setup: Setup, one: Running, rate: float, seed: int, seconds: float = 0.0) -> Measured:
    """An open loop on one server, after a moment in which it wakes up."""
    with one.awake():
        run(closed_loop(one.port, one.requests, 0.2))
        seconds = seconds or max(setup.seconds, FEWEST / rate)
        return run(open_loop(one.port, one.requests, rate, seconds, setup.seed + seed))


def row(one: Running, library_ms: Sequence[float]) -> dict[str, Any]:
    """What was measured of one server. spread: as of `harness.spread_of`."""
    rate = statistics.median(one.rates)
    pairs = [served / alone for served, alone in zip(one.alone_ms, library_ms, strict=True)]
    half = [found for found in one.half if found.took]
    late = [moment for found in half for moment in found.late]
    spent = sum(found.client_cpu_s for found in half) / max(1, sum(len(found.took) for found in half))
    return {
        "server": one.server.name,
        "requests_per_s": round(rate, 1),
        "spread": harness.spread_of(one.rates),
        "closed_loop_per_s": round(one.closed_per_s, 1),
        "p50_ms": round(1000 * statistics.median(found.quantile(0.5) for found in one.half), 2),
        "p99_ms": round(1000 * statistics.median(found.quantile(0.99) for found in one.half), 2),
        "one_text_ms": round(statistics.median(one.alone_ms), 3),
        "one_text_times_library": round(statistics.median(pairs), 3),
        "memory_bytes": sum(process.memory_full_info().uss for process in one.family()),
        "cold_start_s": round(one.cold_start_s, 2),
        "client_cpu_ms": round(1000 * spent, 3),
        "client_late_p99_ms": round(1000 * quantile(late, 0.99), 3) if late else None,
        "overload": flooded(one.flood) if one.flood else None,
    }


def flooded(found: Measured) -> dict[str, Any]:
    """What became of the requests of an overload."""
    times = {"answered": found.took, "refused": found.refused}
    told: dict[str, Any] = {"requests_per_s": round(found.rate), "failed": found.failed}
    for name, took in times.items():
        shares = {f"p{100 * share:g}_ms": round(1000 * quantile(took, share), 2) for share in (0.5, 0.9, 0.99)}
        told[name] = {"count": len(took), **shares, "slowest_ms": round(1000 * max(took), 2)} if took else {"count": 0}
    return told


def library(setup: Setup) -> "Predictor":
    """The model in this process, in the engine that serves it."""
    from bertie.api.use import module_of
    from bertie.infer.choose import engine_of

    loaded = module_of(setup.model, "cpu", setup.precision)
    return Predictor(engine_of(loaded, "auto"), loaded.tokenizer)


def alone(running: Sequence[Running], predictor: "Predictor", sent: Sequence[str], count: int = 100) -> list[float]:
    """Fill in each server's milliseconds for one text at a time. -> those of the library, in turn with Bertie's."""
    found = list[float]()
    for one in running:
        with one.awake(), socket.create_connection(("127.0.0.1", one.port)) as connection:
            for number in range(count + 10):
                began = time.perf_counter()
                if one is running[0]:
                    predictor.predict([sent[number]])
                between = time.perf_counter()
                ask(connection, one.requests[number])
                if number >= 10:  # the first ones warm up
                    found += [1000 * (between - began)] if one is running[0] else []
                    one.alone_ms.append(1000 * (time.perf_counter() - between))
    return found


def path_of(model: Path) -> str:
    """Which route suits a model. Raises UsageError for one of another task."""
    if (model / "modules.json").is_file():
        return EMBED
    config: Mapping[str, Any] = json.loads((model / "config.json").read_text(encoding="utf-8"))
    if str(config.get("architectures", [""])[0]).endswith("ForSequenceClassification"):
        return CLASSIFY
    raise UsageError(f"{model} is no classifier and no sentence model. Pass the folder of one of these.")


def infinity_at(given: str | None) -> str | None:
    """The program of infinity: the one given, or that of this environment. Raises UsageError for one that is not."""
    found = shutil.which(given or "infinity_emb")
    if given and not found:
        raise UsageError(f"--infinity {given} is not a program.")
    return found
