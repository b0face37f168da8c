"""What this process asks of the system: how waiting threads spin, memory that is kept, signals that stop a run.

How threads wait is set before PyTorch is imported, which reads it once.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from bertie.console import console, end_signals, leave_terminal

SPINS = "GOMP_SPINCOUNT"
CHOSEN = (SPINS, "OMP_WAIT_POLICY")  # the variables of libgomp: a value of the user has precedence
BRIEF = "1000"  # libgomp's own is 300,000
LOAD = Path("/proc/loadavg")
LOOKS, BETWEEN_S = 3, 0.004  # at the threads that run now: a job of a moment is no neighbor
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -2, -3, -4  # malloc.h
TOP_PAD_BYTES = 64 << 20  # how much more the heap grows at a time than was asked for
MATRIX_BYTES = 1 << 18  # from which on a block has pages of its own


def spin_briefly() -> None:
    """Lets waiting threads sleep soon if other programs are busy, unless the user has chosen how they wait.

    Spinning is the fastest way to wait on a free machine. Next to a busy program, a spinning thread takes the processor
    from the very thread it waits for. `python -m benchmarks neighbor` measures both, benchmarks/log has the numbers.
    """
    if not any(name in os.environ for name in CHOSEN) and busy():
        os.environ[SPINS] = BRIEF


def busy() -> bool:
    """Whether other programs leave fewer free processors than this one has threads.

    False if it cannot be known: without Linux's list of running threads, or with only a part of the machine's
    processors, as this list is of all of them.
    """
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    if processors != os.cpu_count():
        return False
    threads = os.environ.get("OMP_NUM_THREADS", "")
    others = []
    try:
        for _ in range(LOOKS):
            running = LOAD.read_text(encoding="ascii").split()[3].partition("/")[0]
            others.append(int(running) - 1)
            if others[-1] <= 0:
                return False
            time.sleep(BETWEEN_S)
    except (OSError, ValueError, IndexError):
        return False
    return min(others) + (int(threads) if threads.isdigit() else processors) > processors


def keep_memory() -> bool:
    """Makes glibc keep freed memory for the next step; -> whether this is possible.

    By default, glibc returns every block above 32 MiB to the system. What a step computes is then cleared and mapped
    again, a fifth of a step of BERT-base on a CPU (benchmarks/log). The peak memory does not change.
    """
    settings = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: -1, M_TOP_PAD: TOP_PAD_BYTES}  # no mmap, no trimming
    if sys.platform.startswith("linux"):
        import ctypes

        with suppress(OSError, AttributeError):  # another C library than glibc
            return all(ctypes.CDLL(None).mallopt(option, value) == 1 for option, value in settings.items())
    return False


def return_memory(*, later: bool = False) -> None:
    """Makes glibc return to the system what is free now. later: from now on, freed matrices too, at once.

    Otherwise their place stays between smaller blocks in use, for processes that make and drop matrices all the time.
    """
    if sys.platform.startswith("linux"):
        import ctypes

        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            if later:
                library.mallopt(M_MMAP_THRESHOLD, MATRIX_BYTES)
            library.malloc_trim(0)


class StopRequest:
    """The signal that requested a stop, or None."""

    name: str | None = None


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Context that records SIGTERM, SIGHUP and SIGINT: the first stops a run after the step, a second SIGINT at once.

    Outside the main thread, signals cannot be recorded.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        if request.name is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        request.name = signal.Signals(number).name
        if number == signal.SIGHUP:
            leave_terminal()
        console.say(
            "Stopping with a checkpoint after this step. Press Ctrl-C again to stop at once, without a checkpoint."
        )

    numbers = (*end_signals(), signal.SIGINT)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
