"""Batches made in the background, ahead of their step. They do not depend on the number of workers."""

import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import TypeVar

import torch

_T = TypeVar("_T")


def ahead(make: Callable[[int], _T], start: int, stop: int, workers: int) -> Generator[_T, None, None]:
    """Yields make(start), make(start + 1) ... make(stop - 1), made by `workers` threads ahead of use.

    `make` is called once per number, from several threads. Its exceptions are raised here, in order. With 0 workers, it
    is called on demand.
    """
    if workers == 0:
        yield from map(make, range(start, stop))
        return
    # One torch thread each: every Python thread has an OpenMP team of its own, and an idle team spins on the cores the
    # training step needs (a step of a 2x128 model took 53 ms next to such a worker, 30 ms without: benchmarks/log).
    started = Barrier(workers + 1)
    pool = ThreadPoolExecutor(workers, "batches", _one_thread, (started,))
    try:
        for _ in range(workers):
            pool.submit(int)  # each starts a worker, as none is idle before all have started
        started.wait()
        torch.set_num_threads(torch.get_num_threads())  # also what threads to come start with, which workers set to 1
        waiting: deque[Future[_T]] = deque()
        for number in range(start, stop):
            waiting.append(pool.submit(make, number))
            if len(waiting) > workers:  # one for each worker to be busy with while the caller uses the oldest
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def prompt_threads() -> Iterator[None]:
    """Context in which a thread waits for Python a tenth of the usual 5 ms while another one makes batches.

    It is for a GPU, whose steps of a small model take less: 4.3 ms instead of 4.75 for mini.
    """
    usual = sys.getswitchinterval()
    sys.setswitchinterval(usual / 10)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def _one_thread(started: Barrier) -> None:
    """Gives the calling thread one torch thread permanently, and waits for the others."""
    torch.get_num_threads()  # torch sets a thread up when it first asks: now, or it would undo the next line
    torch.set_num_threads(1)
    started.wait()
