"""Parsers of what others wrote run in a process of their own, with limits of time and memory.

    caller ---- function, arguments, seconds ---> process
           <--- its results, one at a time ------
           ---- whether to go on --------------->

A page, a book or a workbook can make its parser run for hours, fill the memory, or crash. Here, that costs its own file
and has a reason. The limit of time is one of processor time, so that a busy machine reads the same files. A process
stays for the next call.
"""

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from bertie.io.streams import Unreadable

_T = TypeVar("_T")

MEMORY = 4 << 30  # bytes of address space; a page or a book of 16 MiB needs less than 1 GiB
CALLS = 10_000  # inside one another: for 2,048 nested elements, which is the limit of libxml2, a parser needs 6,000
TIME_S = 20  # of processor time for one result: a page takes a few milliseconds
LOOK_S = 0.5  # how often a worker looks whether its caller lives
S_PER_MIB = 10  # more for each MiB that is read; trafilatura needs about 1


def call(function: Callable[..., _T], *arguments: object, size: int = 0, **options: object) -> _T:
    """Returns what a function of a module returns, computed in another process; see `results`."""
    *_, value = results(_once, function, arguments, options, size=size)
    return value  # type: ignore[no-any-return]


def results(function: Callable[..., Iterator[_T]], *arguments: Any, size: int = 0) -> Generator[_T, None, None]:
    """Yields what a generator function of a module yields, computed in another process.

    size: bytes that are read for one result, which may take longer then. Arguments and results are pickled. Raises what
    the function raises, and Unreadable with the reason when it takes too much time or memory, or crashes.
    """
    seconds = TIME_S + S_PER_MIB * math.ceil(size / (1 << 20))
    process = _taken()
    done = False
    try:
        process.send((function, arguments, seconds))
        while True:
            what, value = process.receive(seconds)
            done = what != "result"
            if what == "error":
                raise value
            if done:
                return
            yield value
            process.send(True)
    except GeneratorExit:
        process.send(False)
        with suppress(Unreadable):
            done = process.receive(seconds)[0] == "end"
        raise
    finally:
        process.put_back() if done else process.kill()


def _once(function: Callable[..., _T], arguments: tuple[object, ...], options: dict[str, object]) -> Iterator[_T]:
    yield function(*arguments, **options)


# The side of the caller ----------------------------------------------------------------------------------------------


class _Process:
    """A process that computes one call at a time."""

    idle: "list[_Process]" = []  # noqa: RUF012 (of all)

    def __init__(self) -> None:
        from loky.backend import get_context  # with psutil, which few programs need

        context = get_context("loky")  # imports nothing of the caller's program
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self.owner = os.getpid()

    @property
    def usable(self) -> bool:
        """Whether it is alive, and not one of the process that this one was forked from."""
        return self.owner == os.getpid() and self._process.is_alive()

    def send(self, message: object) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # `receive` says why
            self._connection.send(message)

    def receive(self, seconds: int) -> tuple[str, Any]:
        """Returns the next message. Raises Unreadable with the reason when the process has ended."""
        try:
            what, value = self._connection.recv()
            return what, value
        except (EOFError, ConnectionResetError):
            self._process.join()
        code = -(self._process.exitcode or 0)
        if code == signal.SIGXCPU:
            raise Unreadable(f"its parser takes more than {seconds:,} s of processor time")
        name = signal.Signals(code).name if code > 0 else f"exit code {-code}"
        raise Unreadable(f"its parser was killed or crashed ({name})")

    def put_back(self) -> None:
        self.idle.append(self)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)  # loky's processes have no kill()
        self._process.join()
        self._connection.close()


def _taken() -> _Process:
    while _Process.idle:
        if (process := _Process.idle.pop()).usable:
            return process
    return _Process()


# The side of the parser ----------------------------------------------------------------------------------------------


def begin_worker() -> None:
    """Prepares a worker process, first of all."""
    for number in (signal.SIGINT, signal.SIGHUP):  # of the terminal, for the process that started this one
        signal.signal(number, signal.SIG_IGN)
    os.environ |= dict.fromkeys(("RAYON_NUM_THREADS", "OMP_NUM_THREADS"), "1")  # the processes are the parallelism
    os.dup2(2, 1)  # what a library prints must not come between the command's results
    threading.Thread(target=_end_with_the_caller, daemon=True).start()


def _end_with_the_caller() -> None:
    """Ends this process when the one that started it has: another one adopts it then."""
    caller = os.getppid()
    while os.getppid() == caller:
        time.sleep(LOOK_S)
    os._exit(1)


def _serve(connection: Connection) -> None:
    import resource  # of Unix

    begin_worker()
    sys.setrecursionlimit(CALLS)
    for kind, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CORE, 0)):
        soft, hard = resource.getrlimit(kind)
        with suppress(ValueError, OSError):  # where the system has no such limit
            resource.setrlimit(kind, (most if soft == resource.RLIM_INFINITY else min(soft, most), hard))
    while True:
        try:
            function, arguments, seconds = connection.recv()
        except EOFError:
            return
        for message in _messages(function, arguments, seconds):
            connection.send(message)
            if message[0] != "result":
                break
            if not connection.recv():
                connection.send(("end", None))
                break


def _messages(
    function: Callable[..., Iterator[object]], arguments: tuple[object, ...], seconds: int
) -> Generator[tuple[str, Any], None, None]:
    try:
        iterator = iter(function(*arguments))
        while True:
            _limit_time(seconds)
            try:
                value = next(iterator)
            except StopIteration:
                break
            yield "result", value
        yield "end", None
    except MemoryError:
        yield "error", Unreadable(f"its parser needs more than {MEMORY >> 30} GiB of memory")
    except RecursionError:
        yield (
            "error",
            Unreadable(f"it is nested too deep: its parser needs more than {CALLS:,} calls inside one another"),
        )
    except Exception as error:  # the caller knows what its function raises
        yield "error", error


def _limit_time(seconds: int) -> None:
    """Ends this process after so many more seconds of processor time."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = math.ceil(time.process_time()) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
