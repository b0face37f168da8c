"""The same units of work on this process or on several, resumably: each result is a file, and comes once.

A worker is this module run by a fresh interpreter. It is told the function by name and gets units and gives results as
lines of JSON, so nothing depends on how a caller's program is started, and nothing is pickled.
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

from filelock import FileLock, Timeout

from bertie import errors
from bertie.console import progress, say
from bertie.errors import BertieError, Stopped, UsageError
from bertie.files import read_json, write_json

Result = dict[str, Any]
Task = Callable[..., Result]


def run(task: Task, units: Sequence[dict[str, Any]], work: Path, *, workers: int, about: str) -> list[Result]:
    """`task(**unit)` for every unit, in order; what an interrupted run left in `work` is not done again.

    `task` is a function of a module; units and results are JSON values; a unit's "size" (bytes) is its share of the
    progress shown. The number of workers changes the time and nothing else.
    Raises what a task raised, and Stopped (exit 75) when a worker was killed.
    """
    files = [work / f"result-{number:06d}.json" for number in range(len(units))]
    missing = [number for number, file in enumerate(files) if not file.exists()]
    sizes = [unit["size"] / 1e6 for unit in units]
    done = sum(sizes) - sum(sizes[number] for number in missing)
    with progress(about, sum(sizes), done=done, unit="MB") as advance:
        jobs = [(number, units[number]) for number in missing]
        for number, result in (_in_processes if min(workers, len(jobs)) > 1 else _here)(task, jobs, workers):
            write_json(files[number], result)
            advance(sizes[number])
    return [read_json(file) for file in files]


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Job = tuple[int, dict[str, Any]]


def _here(task: Task, jobs: list[Job], workers: int) -> Iterator[tuple[int, Result]]:
    return ((number, task(**unit)) for number, unit in jobs)


def _in_processes(task: Task, jobs: list[Job], workers: int) -> Iterator[tuple[int, Result]]:
    """Results as they come, from `workers` interpreters, each fed by a thread."""
    waiting, done = deque(jobs), queue.SimpleQueue[tuple[int, bytes, int | None]]()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        **dict.fromkeys(("RAYON_NUM_THREADS", "OMP_NUM_THREADS"), "1"),  # the processes are the parallelism
    }
    command = [sys.executable, "-m", __spec__.name, f"{task.__module__}:{task.__qualname__}"]
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
                    f"A worker process {why}; when memory runs out that is how it shows. "
                    "Run the same command again, with fewer --workers: it goes on where it stopped."
                )
            answer = json.loads(line)
            if "error" in answer:
                raise getattr(errors, answer["error"], RuntimeError)(answer["message"])
            yield number, answer["result"]
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
    module, _, name = sys.argv[1].partition(":")
    task: Task = getattr(importlib.import_module(module), name)
    for line in sys.stdin.buffer:
        try:
            answer: Result = {"result": task(**json.loads(line))}
        except BertieError as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        except Exception:
            answer = {"error": "", "message": f"a worker failed:\n{traceback.format_exc()}"}
        try:
            answers.write(json.dumps(answer).encode() + b"\n")
            answers.flush()
        except BrokenPipeError:  # whoever asked was killed; nobody is left to be told
            os._exit(1)


@contextmanager
def working(folder: Path) -> Iterator[Path]:
    """The hidden folder for unfinished work, for one process alone; gone when the manifest stands.

    Raises UsageError when another process is at it.
    """
    work = folder / ".work"
    made = not folder.exists()
    work.mkdir(parents=True, exist_ok=True)
    lock = FileLock(work / "lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise UsageError(f"Another process is writing {folder}.") from None
    try:
        yield work
    finally:
        lock.release()
        if (folder / "manifest.json").exists() or not (work / "plan.json").exists():
            shutil.rmtree(work, ignore_errors=True)
            if made and not any(folder.iterdir()):
                folder.rmdir()


def go_on(folder: Path, work: Path, identity: dict[str, Any]) -> None:
    """Keep what an interrupted call left when `identity` is the same; else clear it away."""
    state = work / "plan.json"
    if state.exists() and read_json(state) == identity:
        say(f"Going on with {folder}: {len(list(work.glob('result-*.json'))):,} units of work were done before.")
        return
    if state.exists():
        say(f"Inputs or options changed since work on {folder} was interrupted: starting over.")
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
