"""The same units of work on this process, on several, or on a Ray cluster, resumably: each result is a file.

The process of a unit writes its result, so that processes exchange small messages only: a unit, and "done". Worker
processes are new interpreters, which import nothing of the caller's program (loky, unlike multiprocessing).
"""

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loky import ProcessPoolExecutor

from bertie.console import console
from bertie.errors import NoPackage, Stopped, UsageError
from bertie.files import read_json, write_json
from bertie.folders import locked
from bertie.io.isolated import begin_worker
from bertie.registry import Registry

_Result = dict[str, Any]
_Task = Callable[..., _Result]
_Job = tuple[int, dict[str, object], Path]  # number of the unit, the unit, the file of its result
_Engine = Callable[[_Task, list[_Job], int], Iterator[int]]

RAY_RETRIES = 3  # of a unit whose worker or node was lost


def run_units(
    task: _Task,
    units: Sequence[dict[str, Any]],
    work: Path,
    *,
    workers: int,
    about: str,
    on: str = "here",
) -> list[_Result]:
    """Calls `task(**unit)` for every unit, and returns results in order. Results of an interrupted run in `work` are
    reused.

    `task` is a function of a module; units and results are JSON values; a unit's "size" (bytes) is its weight in the
    progress bar. The number of workers and the place (a row of PLACES) change only the time. Raises what a task
    raised, Stopped (exit 75) when a worker was killed, UsageError for an unknown place.
    """
    compute = PLACES[on]
    files = [work / f"result-{number:06d}.json" for number in range(len(units))]
    sizes = [unit["size"] / 1e6 for unit in units]
    jobs = [(number, units[number], file) for number, file in enumerate(files) if not file.exists()]
    done = sum(sizes) - sum(sizes[number] for number, *_ in jobs)
    with console.progress(about, sum(sizes), done=done, unit="MB") as advance:
        for number in compute(task, jobs, workers) if jobs else ():
            advance(sizes[number])
    return [read_json(file) for file in files]


def cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _do(task: _Task, unit: dict[str, object], file: Path) -> None:
    write_json(file, task(**unit))


def _in_processes(task: _Task, jobs: list[_Job], workers: int) -> Iterator[int]:
    """Numbers of units as they are done, by a pool of `workers` processes; with one worker or unit, done here."""
    if min(workers, len(jobs)) < 2:
        for number, unit, file in jobs:
            _do(task, unit, file)
            yield number
        return
    pool = ProcessPoolExecutor(min(workers, len(jobs)), initializer=begin_worker)
    try:
        numbers = {pool.submit(_do, task, unit, file): number for number, unit, file in jobs}
        for future in as_completed(numbers):
            future.result()
            yield numbers[future]
    except BrokenProcessPool:
        raise Stopped(
            "A worker process was killed, probably by a lack of memory. Run the same command again with fewer "
            "--workers. It continues where it stopped."
        ) from None
    finally:
        pool.shutdown(kill_workers=True)


def _on_ray(task: _Task, jobs: list[_Job], workers: int) -> Iterator[int]:
    """Numbers of units as they are done, by the Ray cluster at RAY_ADDRESS, else a local one of `workers` processes.

    A unit whose worker or node is lost is done again elsewhere: its files are whole or absent, and the same each time.
    Raises UsageError when Ray is not installed, Stopped when a unit was lost too often.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reports its use over the network unless told not to
    try:
        import ray
    except ImportError:
        raise NoPackage('--on ray needs Ray: pip install "bertie[scale]"') from None
    joined = ray.is_initialized()
    if not joined:
        local = {} if os.environ.get("RAY_ADDRESS") else {"address": "local", "num_cpus": workers}
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="error", **local)
    remote = ray.remote(max_retries=RAY_RETRIES, num_cpus=1)(_do_in)
    waiting, running = deque(jobs), dict[object, int]()
    most = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))  # units given out: memory does not grow with a corpus
    try:
        while waiting or running:
            while waiting and len(running) < most:
                number, unit, file = waiting.popleft()
                running[remote.remote(os.getcwd(), task, unit, file)] = number
            (done, *_), _ = ray.wait(list(running), num_returns=1)
            ray.get(done)
            yield running.pop(done)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise Stopped(
            f"Ray lost a unit of work {RAY_RETRIES + 1} times ({str(error).splitlines()[0]}). Run the same "
            "command again. It continues where it stopped."
        ) from None
    finally:
        for reference in running:
            ray.cancel(reference, force=True)
        if not joined:
            ray.shutdown()


def _do_in(folder: str, task: _Task, unit: dict[str, object], file: Path) -> None:
    """`_do` in a worker of Ray, from the folder that relative paths start at."""
    os.environ.setdefault("RAYON_NUM_THREADS", "1")  # the processes are the parallelism; Ray sees to OpenMP
    try:
        os.chdir(folder)
    except OSError:
        raise UsageError(
            f"{folder} does not exist on a node of the Ray cluster. Inputs and output must be on a shared file system."
        ) from None
    _do(task, unit, file)


PLACES: Registry[_Engine] = Registry("place", [("here", _in_processes), ("ray", _on_ray)])


@contextmanager
def working(folder: Path) -> Iterator[Path]:
    """Context with the hidden folder for unfinished work, for one process. It is deleted when the manifest is written.

    Raises UsageError when another process uses it.
    """
    work = folder / ".work"
    is_new = not folder.exists()
    work.mkdir(parents=True, exist_ok=True)
    try:
        with locked(
            work / "lock", f"Another process is writing {folder}. Wait for it to end, or choose another folder."
        ):
            yield work
    finally:
        if (folder / "manifest.json").exists() or not (work / "plan.json").exists():
            shutil.rmtree(work, ignore_errors=True)
            if is_new and not any(folder.iterdir()):
                folder.rmdir()


def go_on(folder: Path, work: Path, identity: dict[str, Any]) -> None:
    """Keeps the files of an interrupted call when `identity` is the same; otherwise deletes them."""
    state = work / "plan.json"
    if state.exists() and read_json(state) == identity:
        console.say(f"Resuming {folder}: finished units of work: {len(list(work.glob('result-*.json'))):,}.")
        return
    if state.exists():
        console.say(f"Inputs or options have changed since work on {folder} was interrupted: starting again.")
        for path in [*work.glob("unit-*"), *work.glob("result-*"), *folder.glob("shard-*"), *folder.glob(".shard-*")]:
            path.unlink()
    write_json(state, identity)
