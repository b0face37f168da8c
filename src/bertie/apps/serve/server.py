"""The server process: its socket, signals and log, start and stop.

SIGTERM or Ctrl-C: not ready at once, what was admitted is answered, exit 0. A second one: exit now. SIGHUP: reload.
"""

import asyncio
import errno
import gc
import logging
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from bertie.apps.serve.admission import Admission, Budget
from bertie.apps.serve.app import Application
from bertie.apps.serve.fleet import Fleet, Process
from bertie.apps.serve.guard import Limits, host_of
from bertie.apps.serve.log import LOG, Records, log_line
from bertie.apps.serve.metrics import Metrics
from bertie.apps.serve.protocol import Protocol, Turns
from bertie.apps.serve.remote import WorkerSettings
from bertie.apps.serve.served import LongTexts
from bertie.apps.serve.versions import Versions
from bertie.apps.serve.watching import Watch
from bertie.platform import BertieError, Traffic, UsageError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_MAX_DESCRIPTORS = 8_192  # descriptors, where the system allows so many
BACKLOG = 2_048  # connections that wait to be accepted
_FORCED_EXIT = 130  # exit status after a second signal
FLUSH_S = 1.0  # for the last lines of the log


@dataclass
class Options:
    """The options of `bertie serve`."""

    models: Mapping[str, Path]
    indexes: Mapping[str, Path] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 3000
    keys: tuple[str, ...] = ()
    no_key: bool = False
    hosts: tuple[str, ...] = ()
    too_long: LongTexts | None = None
    max_concurrent: int = 512
    max_batch_tokens: int | None = None
    max_queued_tokens: int = 65_536
    max_body_bytes: int = 2_000_000
    max_held_bytes: int = 256_000_000
    max_wait_s: float = 2.0
    request_s: float = 60.0
    drain_s: float = 30.0
    replicas: int = 1
    access_log: bool = True
    log: Path | None = None
    versions: Versions | None = None
    worker: WorkerSettings = field(default_factory=lambda: WorkerSettings(""))

    def check(self) -> None:
        """Raises UsageError for a server that other machines could use without a key, unless no_key is set."""
        if self.host not in LOOPBACK and not self.keys and not self.no_key:
            raise UsageError(
                f"--host {self.host} can be reached from other machines, and no key is set. Pass --key-file FILE, or "
                "--no-key to let everyone in."
            )


def run_server(options: Options, *, on_ready: Callable[[str], None] = lambda url: None) -> int:
    """Serves until a signal, and returns the exit status. Raises BertieError for a used port or an unsuitable model."""
    options.check()
    listener = bind(options.host, options.port)
    _more_files()
    logging.basicConfig(handlers=[Records()], level=logging.WARNING)
    logging.captureWarnings(True)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(options, listener, on_ready))
    finally:
        LOG.flush(FLUSH_S)


async def _serve(options: Options, listener: socket.socket, on_ready: Callable[[str], None]) -> int:
    fleet, application = build_application(options)
    server = QuietServer(uvicorn.Config(application, **uvicorn_settings(fleet.admission.content)))
    run = ServerSignals(server, fleet, options.drain_s)
    fleet.process = Process.this()
    if options.log is not None:
        Traffic.check_file(options.log)
    run.listen_for_reloads()
    await fleet.start()
    gc.collect()
    gc.freeze()  # modules and models stay: a full collection that visits them stops the server for 0.3 s
    run.listen_for_stops()
    port = listener.getsockname()[1]
    host = f"[{options.host}]" if ":" in options.host else options.host
    listener.listen(BACKLOG)  # whoever reads the address may connect at once
    on_ready(f"http://{host}:{port}")
    try:
        with LOG.instead_of_stderr():
            await server.serve(sockets=[listener])
    finally:
        await fleet.kill()
    return 0


def build_application(options: Options) -> tuple[Fleet, Application]:
    """Returns the models and the application, without starting them."""
    LOG.start()
    log = log_line if options.access_log else None
    admission = Admission(
        Budget("texts", options.max_concurrent),
        Budget("bytes", options.max_held_bytes),
        max_tokens=options.max_queued_tokens,
        max_wait_s=options.max_wait_s,
    )
    fleet = Fleet(
        options.models,
        options.worker,
        admission,
        Metrics(),
        max_batch_tokens=options.max_batch_tokens,
        replicas=options.replicas,
        log=log_line,
        index_paths=options.indexes,
        watch=Watch(options.log, log_line),
        versions=options.versions,
    )
    fleet.metrics.registry.register(fleet.watch)
    if options.versions is not None:
        fleet.metrics.registry.register(options.versions)
    return fleet, Application(fleet, limits_of(options), too_long=options.too_long, log=log)


def limits_of(options: Options) -> Limits:
    """Returns the limits of a request. On the loopback interface, the host names are limited too."""
    hosts = {*LOOPBACK, *options.hosts} if options.host in LOOPBACK or options.hosts else set[str]()
    return Limits(
        options.max_body_bytes,
        request_s=options.request_s,
        hosts=frozenset(map(host_of, hosts)),
        keys=tuple(key.encode() for key in options.keys),
    )


def uvicorn_settings(content: Budget) -> dict[str, Any]:
    """Returns the settings of uvicorn. content: the budget of the bytes that are held."""
    return {
        "http": partial(Protocol, Turns(), content),
        "ws": "none",
        "proxy_headers": False,
        "lifespan": "off",
        "access_log": False,
        "log_config": None,
        "log_level": logging.CRITICAL,
        "server_header": False,
        "timeout_keep_alive": 30,
        "timeout_graceful_shutdown": 5,
        "backlog": BACKLOG,
    }


class QuietServer(uvicorn.Server):
    """uvicorn's server without its signal handlers."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Does nothing."""
        yield


@dataclass
class ServerSignals:
    """The signal handlers of a server."""

    server: QuietServer
    fleet: Fleet
    drain_s: float
    tasks: set["asyncio.Task[Any]"] = field(default_factory=set)

    def listen_for_reloads(self) -> None:
        """Installs the handler of SIGHUP. While models load, a reload waits for them, and SIGTERM ends the process."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: self._spawn(self.fleet.reload()))
        if self.fleet.versions is not None:
            self.fleet.versions.open_control()
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self.fleet.switch)

    def listen_for_stops(self) -> None:
        """Installs the handlers of SIGTERM and Ctrl-C. While models load, these end the process at once."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop)

    def stop(self) -> None:
        """Finishes requests; when called again, ends at once."""
        if self.fleet.draining:
            log_line("forced")
            for model in self.fleet.models.values():
                for worker in model.batcher.workers:
                    if worker.pid:
                        os.kill(worker.pid, signal.SIGKILL)
            LOG.flush(FLUSH_S)
            os._exit(_FORCED_EXIT)
        self.fleet.draining = True
        log_line("draining")
        self._spawn(self._drain())

    async def _drain(self) -> None:
        until = time.monotonic() + self.drain_s
        await asyncio.sleep(0.2)  # requests that have just arrived
        while time.monotonic() < until and (self.fleet.busy or any(one.calls for one in self.fleet.models.values())):
            await asyncio.sleep(0.02)
        self.server.should_exit = True

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


def bind(host: str, port: int) -> socket.socket:
    """Returns a bound socket. Raises BertieError for an address that is in use or not of this machine."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except socket.gaierror:
        raise UsageError(f"--host {host} is not an address of this machine.") from None
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise UsageError(f"--host {host} is not an address of this machine.") from None
        hint = "Is another server running? Pass another --port, or --port 0 for any free one."
        raise BertieError(f"Port {port} of {host} cannot be used: {error.strerror}. {hint}") from None
    return listener


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _more_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_MAX_DESCRIPTORS, hard)
    if soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
