"""The queue of a model and its batches, chosen by token budget and age.

The next batch holds a sequence of the request that has waited longest, with those of similar length that fit into the
budget. A request of which more is left then comes after the others, so that a long one does not hold up short ones.
Nothing waits for company: a free lane of a worker takes what there is. A batch holds what the worker computes in about
BATCH_S, so that those who come meanwhile do not wait long.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertie.apps.serve.admission import TokenRate
from bertie.apps.serve.errors import Refusal
from bertie.apps.serve.remote import OnToken, Worker, WorkerDied
from bertie.platform import Facts, Sequences, batches

BATCH_S = 0.03
_MIN_BATCH_TOKENS = 128  # tokens that a batch may have, however slow the worker
_BUDGETS_SEARCHED = 8  # budgets' worth of tokens, from the oldest on, among which similar lengths are looked for
HEARTBEAT_S = 0.2
Arrays = dict[str, NDArray[Any]]


class Failed(Exception):
    """The model failed to answer a request."""


@dataclass(eq=False)
class BatchJob:
    """The sequences of one request.

    on_token: takes the tokens of a text as they are generated; such a job has a batch of its own. pending: those that
    wait; left: how many have no rows yet. deaths: processes that ended with some of them. waited_s, ran_s: before its
    first batch, and from then to the end of its last.
    """

    ids: Sequences
    outputs: tuple[str, ...]
    rows: Mapping[str, str]
    done: "asyncio.Future[Arrays]"
    on_token: OnToken | None = None
    adapter: str = ""
    since: float = field(default_factory=time.perf_counter)
    arrays: Arrays = field(default_factory=dict)
    pending: list[int] = field(default_factory=list)
    left: int = 0
    deaths: set[tuple[Worker, int]] = field(default_factory=set)
    waited_s: float = 0.0
    ran_s: float = 0.0

    def put(self, sequences: NDArray[np.int64], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Stores the rows of some sequences. The last ones finish the job."""
        if self.done.done():
            return
        whole = len(sequences) == len(self.ids)
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                self.done.set_exception(Failed("The model gave values that are not finite numbers."))
                return
            if whole:
                self.arrays[name] = array
                continue
            kind = self.rows[name]
            size = {"token": len(self.ids.input_ids), "sequence": len(self.ids), "position": len(self.ids.positions)}[
                kind
            ]
            into = self.arrays.setdefault(name, np.zeros((size, *array.shape[1:]), array.dtype))
            into[_rows(self.ids, kind, sequences)] = array
        self.left -= len(sequences)
        if not self.left:
            self.done.set_result(self.arrays)


_Part = tuple[BatchJob, NDArray[np.int64]]
_Report = Callable[[str, int, int, float, bool], None]


class Batcher:
    """The queue of one model, and its workers.

    report: told the adapter, tokens, sequences and seconds of each batch, and whether it was full: others waited when
    it began, and it had at least half of its budget.
    """

    def __init__(self, workers: Sequence[Worker], *, max_tokens: int, report: _Report) -> None:
        self.workers, self.max_tokens, self.report = list(workers), max_tokens, report
        self.waiting: deque[BatchJob] = deque()
        self.running = 0  # batches
        self._arrived = asyncio.Event()
        self._closed = False
        self.broken = ""  # why a process could not be started again
        self.on_restart: Callable[[str], None] = lambda why: None
        self.rate = TokenRate()
        self._tasks = list[asyncio.Task[None]]()
        for worker in self.workers:
            starting = asyncio.Lock()
            self._tasks += [asyncio.create_task(self._empty(worker, starting)) for _ in range(worker.lanes)]
        self._tasks.append(asyncio.create_task(self._watch()))

    def facts_of(self, adapter: str) -> Facts:
        """Returns the facts of the model, or of an adapter of it."""
        facts = self.workers[0].adapters[adapter] if adapter else self.workers[0].facts
        assert facts is not None, "the workers have been started"
        return facts

    @property
    def ready(self) -> bool:
        """Whether a worker can take a batch."""
        return any(worker.alive for worker in self.workers)

    @property
    def state(self) -> str:
        """ready; failed, where its processes cannot be started again; or starting."""
        return "ready" if self.ready else "failed" if self.broken else "starting"

    @property
    def size(self) -> int:
        """The number of waiting sequences."""
        return sum(len(job.pending) for job in self.waiting)

    @property
    def budget(self) -> int:
        """Tokens of the next batch."""
        usual = round(BATCH_S * self.rate.tokens_per_s) or self.max_tokens
        return min(self.max_tokens, max(_MIN_BATCH_TOKENS, usual))

    @property
    def busy(self) -> bool:
        """Whether a sequence waits or runs."""
        return bool(self.waiting or self.running)

    async def run(
        self, ids: Sequences, outputs: Sequence[str], on_token: OnToken | None = None, adapter: str = ""
    ) -> tuple[Arrays, BatchJob]:
        """Returns the arrays of all sequences of a request, and the time they took. Raises Failed,
        and Refusal where no process of the model can be started.

        adapter: the one to compute with, of several on one base. on_token: takes the tokens of one text as they are
        generated; there are no arrays then. When the caller is cancelled, its sequences leave the queue.
        """
        if self._closed:  # a search whose client has gone is the only one to ask then
            raise Failed("The model was replaced by a newer one.")
        if self.broken and not self.ready:
            raise self._refusal()
        rows = {name: self.facts_of(adapter).rows_of(name) for name in outputs}
        job = BatchJob(ids, tuple(outputs), rows, asyncio.get_running_loop().create_future(), on_token, adapter)
        job.left, job.pending = len(ids), list(range(len(ids)))
        self.waiting.append(job)
        self._arrived.set()
        try:
            return await job.done, job
        finally:
            if job in self.waiting:
                self.waiting.remove(job)

    async def close(self) -> None:
        """Finishes the waiting sequences, then ends the workers."""
        self._closed = True
        self._arrived.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(worker.stop() for worker in self.workers))

    async def kill(self) -> None:
        """Ends at once."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(worker.stop() for worker in self.workers))

    async def _watch(self) -> None:
        """Detects an idle process that ends."""
        while not self._closed:
            await asyncio.sleep(HEARTBEAT_S)
            if not all(worker.alive for worker in self.workers):
                self._arrived.set()

    async def _empty(self, worker: Worker, starting: asyncio.Lock) -> None:
        """Runs one lane of a worker, batch after batch. starting: held by the lane that restarts the worker."""
        while True:
            while not self.waiting and not self._closed and worker.alive:
                self._arrived.clear()
                await self._arrived.wait()
            if self._closed and not self.waiting:
                return
            if not worker.alive:
                async with starting:
                    if not worker.alive:
                        self.on_restart("the process has ended")
                        await worker.restart(self._not_started, lambda: bool(self.waiting or not self._closed))
                        self.broken = "" if worker.alive else self.broken
                continue
            parts = self._next()
            if parts:
                await self._run(worker, parts)

    def _not_started(self, why: str) -> None:
        """Refuses what waits where no process is left: the files of the model may stay damaged."""
        self.broken = why
        self.on_restart(why)
        for job in self.waiting if not self.ready else ():
            if not job.done.done():
                job.done.set_exception(self._refusal())

    def _refusal(self) -> Refusal:
        return Refusal("Unhealthy", f"The model has ended and cannot be started again: {self.broken}")

    async def _run(self, worker: Worker, parts: list[_Part]) -> None:
        """Runs one batch and finishes its jobs."""
        jobs = [job for job, _ in parts]
        self.running += 1
        started, process = time.perf_counter(), (worker, worker.starts)
        full_from = self.budget / 2 if self.waiting else math.inf
        try:
            arrays = await worker.run(join_parts(parts), jobs[0].outputs, jobs[0].on_token, jobs[0].adapter)
            seconds = time.perf_counter() - started
            for job in jobs:
                job.waited_s = job.waited_s or started - job.since
                job.ran_s = started + seconds - job.since - job.waited_s
            split(parts, arrays)
        except WorkerDied:
            self._again(parts, process)
        except Exception as error:
            if len(parts) == 1:
                _fail(jobs[0], str(error))
            for part in parts if len(parts) > 1 else ():  # one of them is at fault: the others need not suffer
                await self._run(worker, [part])
        else:
            tokens = sum(int(job.ids.lengths[numbers].sum()) for job, numbers in parts)
            self.rate.add(tokens, seconds)
            self.report(jobs[0].adapter, tokens, len(parts), seconds, tokens >= full_from)
        finally:
            self.running -= 1

    def _again(self, parts: list[_Part], process: tuple[Worker, int]) -> None:
        """Queues a batch again, before all others. A job in two processes that ended fails."""
        for job, numbers in reversed(parts):
            job.deaths.add(process)
            if len(job.deaths) > 1 or job.on_token:  # what was sent of a text cannot be taken back
                _fail(
                    job, f"The process that runs the model ended {'' if job.on_token else 'twice '}with this request."
                )
            elif not job.done.done():
                job.pending = sorted([*job.pending, *numbers.tolist()])
                if job in self.waiting:
                    self.waiting.remove(job)
                self.waiting.appendleft(job)

    def _next(self) -> list[_Part]:
        """Removes the next batch from the queue and returns it."""
        while self.waiting and self.waiting[0].done.done():
            self.waiting.popleft()  # another of its sequences failed
        if not self.waiting:
            return []
        pool, lengths, tokens, most = list[tuple[BatchJob, int]](), list[int](), 0, self.budget
        outputs, adapter = self.waiting[0].outputs, self.waiting[0].adapter
        alone = len(self.waiting) == 1 or self.waiting[0].on_token
        if alone and len(self.waiting[0].pending) == 1:
            job = self.waiting.popleft()
            number, job.pending = job.pending[0], []
            return [(job, np.array([number]))]
        for job in self.waiting:
            if (job.outputs, job.adapter) != (outputs, adapter) or job.done.done() or job.on_token:
                continue
            for number in job.pending[:most]:
                pool.append((job, number))
                lengths.append(int(job.ids.lengths[number]))
                tokens += lengths[-1]
            if tokens > _BUDGETS_SEARCHED * most:
                break
        chosen = next(batch for batch in batches(lengths, max_tokens=most) if 0 in batch)
        numbers = dict[BatchJob, list[int]]()
        for i in sorted(chosen.tolist()):
            job, number = pool[i]
            numbers.setdefault(job, []).append(number)
        for job, taken in numbers.items():
            self.waiting.remove(job)
            if len(taken) < len(job.pending):
                gone = set(taken)
                job.pending = [number for number in job.pending if number not in gone]
                self.waiting.append(job)
            else:
                job.pending = []
        return [(job, np.array(taken, np.int64)) for job, taken in numbers.items()]


def join_parts(parts: Sequence[_Part]) -> Sequences:
    """Returns the sequences of several jobs as one batch."""
    return Sequences.joined(
        [job.ids if len(numbers) == len(job.ids) else job.ids.take(numbers) for job, numbers in parts]
    )


def split(parts: Sequence[_Part], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Gives each job its rows of a batch's arrays."""
    at = dict.fromkeys(("token", "sequence", "position"), 0)
    for job, numbers in parts:
        whole = len(numbers) == len(job.ids)
        ids = job.ids
        counts = {
            "token": len(ids.input_ids) if whole else int(ids.lengths[numbers].sum()),
            "sequence": len(numbers),
            "position": len(ids.positions) if whole else len(ids.position_rows(numbers)),
        }
        own = {
            name: array[at[job.rows[name]] : at[job.rows[name]] + counts[job.rows[name]]]
            for name, array in arrays.items()
        }
        job.put(numbers, own)
        at = {kind: begin + counts[kind] for kind, begin in at.items()}


def _rows(ids: Sequences, kind: str, sequences: NDArray[np.int64]) -> NDArray[np.int64]:
    return {"token": ids.rows, "position": ids.position_rows}[kind](sequences) if kind != "sequence" else sequences


def _fail(job: BatchJob, reason: str) -> None:
    if not job.done.done():
        job.done.set_exception(Failed(reason))
