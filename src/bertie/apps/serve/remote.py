"""`Worker`: a model in another process, which is restarted when it ends."""

import asyncio
import itertools
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from bertie.apps.serve import wire
from bertie.apps.serve.log import LOG
from bertie.platform import BertieError, DataError, Facts, Sequences, UsageError

_Message = tuple[dict[str, Any], dict[str, NDArray[Any]]]
OnToken = Callable[[int], None]
MAX_BUFFER = 1 << 26  # bytes of a reply that the stream holds before it is read
RESTART_S = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  # waits between starts that fail one after another


class WorkerDied(Exception):
    """The process ended, or did not answer in time, during a batch."""


class BatchFailed(Exception):
    """The engine raised an error for a batch. The process continues."""


@dataclass(frozen=True)
class WorkerSettings:
    """Settings of a worker process.

    threads: of its numerical library; None: the number of cores. attention: whether it also computes that. nice: its
    nice value, with which the event loop of the server, which refuses what is too much, comes before inference.
    adapters: folders of adapters by name, of which model is the base.
    """

    model: str
    precision: str = "fp32"
    device: str = "auto"
    engine: str = "auto"
    threads: int | None = None
    attention: bool = False
    nice: int = 5
    adapters: Mapping[str, str] = field(default_factory=dict)
    start_s: float = 300.0
    batch_s: float = 120.0


class Worker:
    """One process with one model. lanes: the number of batches that it runs at once."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings
        self.facts: Facts | None = None
        self.adapters: Mapping[str, Facts] = {}
        self.starts, self.lanes, self.sha = 0, 1, ""
        self._loaded = False
        self._process: subprocess.Popen[bytes] | None = None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._answers: dict[int, asyncio.Future[_Message]] = {}
        self._parts: dict[int, OnToken] = {}
        self._numbers = itertools.count()
        self._listener: asyncio.Task[None] | None = None
        self._messages: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether the process runs and has loaded its model."""
        return self._loaded and self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The process id; None before the start."""
        return self._process.pid if self._process else None

    async def start(self) -> Facts:
        """Starts the process and waits for its model.

        Raises the error of loading the folder, and BertieError if it contains another model than at the first start.
        """
        await self.stop()
        ours, theirs = socket.socketpair()
        names = ("model", "precision", "device", "engine", "threads", "attention", "nice", "adapters")
        options = {name: getattr(self.settings, name) for name in names}
        command = [sys.executable, "-m", "bertie.apps.serve.worker", str(theirs.fileno()), json.dumps(options)]
        try:
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
        finally:
            theirs.close()
        self._messages = asyncio.create_task(_passed_on(self._process.stderr))
        ours.setblocking(False)
        self._streams = await asyncio.open_connection(sock=ours, limit=MAX_BUFFER)
        self.starts += 1
        try:
            header, _ = await asyncio.wait_for(self._receive(), self.settings.start_s)
        except (WorkerDied, TimeoutError) as error:
            code = await self.stop()
            why = (
                f"took more than {self.settings.start_s:.0f} s"
                if isinstance(error, TimeoutError)
                else f"ended ({code})"
            )
            raise BertieError(f"{self.settings.model}: the process that loads the model {why}.") from None
        if "error" in header:
            await self.stop()
            kind = {2: UsageError, 3: DataError}.get(header["exit_code"], BertieError)
            raise kind(header["error"], code=header["code"])
        if self.sha not in ("", header["sha"]):  # its tokenizer and labels are those of the old model
            await self.stop()
            raise BertieError(
                f"{self.settings.model} contains another model now. Send SIGHUP to the server to load it."
            )
        self.facts, self.sha, self.lanes = Facts.of_json(header["facts"]), header["sha"], header["lanes"]
        self.adapters = {name: Facts.of_json(facts) for name, facts in header["adapters"].items()}
        self._listener, self._loaded = asyncio.create_task(self._listen()), True
        return self.facts

    async def run(
        self, ids: Sequences, outputs: Sequence[str], on_token: OnToken | None = None, adapter: str = ""
    ) -> Mapping[str, NDArray[Any]]:
        """Calls `Engine.run` in the process, or `stream` if tokens are wanted as they come.

        adapter: the one to compute with, of several.

        Raises BatchFailed, or WorkerDied, which requires a restart.
        """
        if self._streams is None or not self._loaded:
            raise WorkerDied
        number, process = next(self._numbers), self._process
        answer: asyncio.Future[_Message] = asyncio.get_running_loop().create_future()
        self._answers[number], header = answer, {"number": number, "outputs": list(outputs), "adapter": adapter}
        if on_token is not None:
            self._parts[number], header["stream"] = on_token, True
        try:
            for part in wire.pack_message(header, wire.arrays_of(ids)):
                self._streams[1].write(part)
            await self._streams[1].drain()
            header, arrays = await asyncio.wait_for(answer, self.settings.batch_s)
        except (OSError, TimeoutError, WorkerDied) as error:
            if process is self._process:  # and not one that has been started since
                self._lose()
            raise WorkerDied from error
        finally:
            self._answers.pop(number, None)
            self._parts.pop(number, None)
        if "error" in header:
            raise BatchFailed(header["error"])
        return arrays

    async def _listen(self) -> None:
        """Hand each answer to who waits for it, until the process has gone."""
        while True:
            try:
                header, arrays = await self._receive()
            except WorkerDied:
                self._lose()
                return
            if header.get("more"):
                if on_token := self._parts.get(header["number"]):
                    on_token(int(arrays[wire.GENERATED_TOKEN][0]))
                continue
            answer = self._answers.get(header["number"])
            if answer is not None and not answer.done():
                answer.set_result((header, arrays))

    def _lose(self) -> None:
        """End the process, if it has not ended, and tell all who wait for it."""
        self._loaded = False
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(WorkerDied())

    async def _receive(self) -> _Message:
        assert self._streams is not None
        reader = self._streams[0]
        try:
            header_size, size = wire.PREFIX.unpack(await reader.readexactly(wire.PREFIX.size))
            return wire.unpack_message(await reader.readexactly(header_size), await reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise WorkerDied from None

    async def restart(self, on_failure: Callable[[str], None], needed: Callable[[], bool] = lambda: True) -> None:
        """Starts until it succeeds or is not wanted, with increasing pauses. on_failure: called with each error."""
        for attempt in itertools.count():
            await asyncio.sleep(RESTART_S[min(attempt, len(RESTART_S) - 1)])
            if not needed():
                return
            try:
                await self.start()
                return
            except (BertieError, OSError) as error:
                on_failure(str(error))

    async def stop(self) -> int | None:
        """Ends the process and returns its exit status."""
        self._lose()
        if self._listener is not None:
            self._listener.cancel()
            self._listener = None
        if self._streams is not None:
            self._streams[1].close()
            with suppress(OSError):
                await self._streams[1].wait_closed()
            self._streams = None
        if self._process is None:
            return None
        return await asyncio.to_thread(self._process.wait)


async def _passed_on(stderr: object) -> None:
    """Hands a process's messages to the log, until it ends: one that writes to a full pipe would wait for ever."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, stderr)
    while text := await reader.read(1 << 16):
        LOG.text(text)
