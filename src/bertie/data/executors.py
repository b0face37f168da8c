"""The same units of work on this process, on several, or on a Ray cluster, resumably: each result is a file.

A worker process is this module run by a fresh interpreter. It is told the function by name and gets units and gives
results as lines of JSON, so nothing depends on how a caller's program is started. Ray's workers get the same values.
"""

import importlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from bertie import errors
from bertie.console import progress, say
from bertie.errors import BertieError, Stopped, UsageError
from bertie.files import read_json, write_json
from bertie.folders import locked
from bertie.registry import Registry

Result = dict[str, Any]
Task = Callable[..., Result]
Job = tuple[int, dict[str, Any]]
Engine = Callable[[Task, list[Job], int], Iterator[tuple[int, Result]]]

RAY_RETRIES = 3  # of a unit whose worker or node was lost


def run(
    task: Task,
    units: Sequence[dict[str, Any]],
    work: Path,
    *,
    workers: int,
    about: str,
    engine: str = "processes",
) -> list[Result]:
    """`task(**unit)` for every unit, in order; what an interrupted run left in `work` is not done again.

    `task` is a function of a module; units and results are JSON values; a unit's "size" (bytes) is its share of the
    progress shown. The number of workers and the engine (a row of ENGINES) change the time and nothing else.
    Raises what a task raised, and Stopped (exit 75) when a worker was killed; UsageError: no such engine.
    """
    compute = ENGINES[engine]
    files = [work / f"result-{number:06d}.json" for number in range(len(units))]
    missing = [number for number, file in enumerate(files) if not file.exists()]
    sizes = [unit["size"] / 1e6 for unit in units]
    done = sum(sizes) - sum(sizes[number] for number in missing)
    with progress(about, sum(sizes), done=done, unit="MB") as advance:
        jobs = [(number, units[number]) for number in missing]
        for number, result in compute(task, jobs, workers) if jobs else ():
            write_json(files[number], result)
            advance(sizes[number])
    return [read_json(file) for file in files]


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_processes(task: Task, jobs: list[Job], workers: int) -> Iterator[tuple[int, Result]]:
    """Results as they come, from `workers` interpreters, each fed by a thread; with one worker or unit, done here."""
    if min(workers, len(jobs)) < 2:
        yield from ((number, task(**unit)) for number, unit in jobs)
        return
    waiting, done = deque(jobs), queue.SimpleQueue[tuple[int, bytes, int | None]]()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        **dict.fromkeys(("RAYON_NUM_THREADS", "OMP_NUM_THREADS"), "1"),  # the processes are the parallelism
    }
    command = [sys.executable, "-m", __spec__.name, _name(task)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": environment}
    children = [subprocess.Popen(command, **pipes) for _ in range(min(workers, len(jobs)))]

    def feed(child: subprocess.Popen[bytes]) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        while waiting:
            try:
                number, unit = waiting.popleft()
            except IndexError:  # another thread took the last one
                break
            try:
                child.stdin.write(json.dumps(unit).encode() + b"\n")
                child.stdin.flush()
                line = child.stdout.readline()
            except (OSError, ValueError):
                line = b""
            if not line.endswith(b"\n"):  # killed before or within its answer
                line = b""
            done.put((number, line, child.wait() if not line else None))
        child.stdin.close()

    threads = [threading.Thread(target=feed, args=(child,), daemon=True) for child in children]
    for thread in threads:
        thread.start()
    try:
        for _ in jobs:
            number, line, code = done.get()
            if not line:
                why = f"was killed (signal {-code})" if code and code < 0 else f"ended early (exit {code})"
                raise Stopped(
                    f"A worker process {why}, probably by a lack of memory. Run the same command again with "
                    "fewer --workers. It continues where it stopped."
                )
            yield number, _result(json.loads(line))
    finally:
        waiting.clear()
        for child in children:
            child.kill()
        for thread in threads:
            thread.join()
        for child in children:
            child.wait()
            assert child.stdout is not None
            child.stdout.close()


def _serve() -> None:
    """A worker's life: a unit a line from standard input, an answer a line to standard output, until that closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not come between
    for line in sys.stdin.buffer:
        answer = _answer(sys.argv[1], json.loads(line))
        try:
            answers.write(json.dumps(answer).encode() + b"\n")
            answers.flush()
        except BrokenPipeError:  # whoever asked was killed; nobody is left to be told
            os._exit(1)


def _name(task: Task) -> str:
    return f"{task.__module__}:{task.__qualname__}"


def _answer(name: str, unit: dict[str, Any]) -> Result:
    """{"result": what the task of that name makes of a unit}, or {"error": its kind, "message": ...}."""
    module, _, function = name.partition(":")
    task: Task = getattr(importlib.import_module(module), function)
    try:
        return {"result": task(**unit)}
    except BertieError as error:
        return {"error": type(error).__name__, "message": str(error)}
    except Exception:
        return {"error": "", "message": f"a worker failed:\n{traceback.format_exc()}"}


def _result(answer: Result) -> Result:
    """What an answer holds. Raises the error it tells of."""
    if "error" in answer:
        raise getattr(errors, answer["error"], RuntimeError)(answer["message"])
    found: Result = answer["result"]
    return found


def _on_ray(task: Task, jobs: list[Job], workers: int) -> Iterator[tuple[int, Result]]:
    """Results as they come, from the Ray cluster at RAY_ADDRESS, else from a local one of `workers` processes.

    A unit whose worker or node is lost is done again elsewhere: its files are whole or absent, and the same each time.
    Raises UsageError when Ray is not installed, Stopped when a unit was lost too often.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reports its use over the network unless told not to
    try:
        import ray
    except ImportError:
        raise UsageError('--engine ray needs Ray: pip install "bertie[scale]"') from None
    joined = ray.is_initialized()
    if not joined:
        local = {} if os.environ.get("RAY_ADDRESS") else {"address": "local", "num_cpus": workers}
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="error", **local)
    remote = ray.remote(max_retries=RAY_RETRIES, num_cpus=1)(_answer_in)
    waiting, running = deque(jobs), dict[Any, int]()
    most = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))  # units given out: memory does not grow with a corpus
    try:
        while waiting or running:
            while waiting and len(running) < most:
                number, unit = waiting.popleft()
                running[remote.remote(os.getcwd(), _name(task), unit)] = number
            (done, *_), _ = ray.wait(list(running), num_returns=1)
            yield running.pop(done), _result(ray.get(done))
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


def _answer_in(folder: str, name: str, unit: dict[str, Any]) -> Result:
    """`_answer` in a worker of Ray, from the folder that relative paths start at."""
    os.environ.setdefault("RAYON_NUM_THREADS", "1")  # the processes are the parallelism; Ray sees to OpenMP
    try:
        os.chdir(folder)
    except OSError:
        message = (
            f"{folder} does not exist on a node of the Ray cluster. Inputs and output must be on a shared file system."
        )
        return {"error": UsageError.__name__, "message": message}
    return _answer(name, unit)


ENGINES: Registry[Engine] = Registry("engine", [("processes", _in_processes), ("ray", _on_ray)])


@contextmanager
def working(folder: Path) -> Iterator[Path]:
    """The hidden folder for unfinished work, for one process alone; gone when the manifest stands.

    Raises UsageError when another process is at it.
    """
    work = folder / ".work"
    made = not folder.exists()
    work.mkdir(parents=True, exist_ok=True)
    try:
        with locked(
            work / "lock", f"Another process is writing {folder}. Wait for it to end, or choose another folder."
        ):
            yield work
    finally:
        if (folder / "manifest.json").exists() or not (work / "plan.json").exists():
            shutil.rmtree(work, ignore_errors=True)
            if made and not any(folder.iterdir()):
                folder.rmdir()


def go_on(folder: Path, work: Path, identity: dict[str, Any]) -> None:
    """Keep what an interrupted call left when `identity` is the same; else clear it away."""
    state = work / "plan.json"
    if state.exists() and read_json(state) == identity:
        say(f"Resuming {folder}: {len(list(work.glob('result-*.json'))):,} units of work are done already.")
        return
    if state.exists():
        say(f"Inputs or options have changed since work on {folder} was interrupted: starting again.")
        for path in [*work.glob("unit-*"), *work.glob("result-*"), *folder.glob("shard-*"), *folder.glob(".shard-*")]:
            path.unlink()
    write_json(state, identity)


@contextmanager
def stoppable(advice: str) -> Iterator[None]:
    """Turn SIGTERM into Stopped (exit 75) while the block runs; `advice` says how to go on."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped(f"Stopped by a signal. {advice}")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    _serve()
