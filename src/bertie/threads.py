"""How long waiting threads spin before they sleep. It is set before PyTorch is imported, which reads it once."""

import os
import time
from pathlib import Path

SPINS = "GOMP_SPINCOUNT"
CHOSEN = (SPINS, "OMP_WAIT_POLICY")  # the variables of libgomp: a value of the user has precedence
BRIEF = "1000"  # libgomp's own is 300,000
LOAD = Path("/proc/loadavg")
LOOKS, BETWEEN_S = 3, 0.004  # at the threads that run now: a job of a moment is no neighbor


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
