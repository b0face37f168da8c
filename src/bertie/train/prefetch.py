"""Batches made in the background, ahead of the step that uses them; any number of workers gives the same batches."""

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def ahead(make: Callable[[int], T], start: int, stop: int, workers: int) -> Generator[T, None, None]:
    """Yield make(start), make(start + 1) ... make(stop - 1), made by `workers` threads a little ahead of use.

    `make` is called once per number, from several threads; what it raises is raised here, in its turn. 0 workers make
    each when it is asked for.
    """
    if workers == 0:
        yield from map(make, range(start, stop))
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="batches")
    try:
        waiting: deque[Future[T]] = deque()
        for number in range(start, stop):
            waiting.append(pool.submit(make, number))
            if len(waiting) > workers:  # one for each worker to be busy with while the caller uses the oldest
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
