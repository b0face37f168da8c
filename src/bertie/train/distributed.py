"""Data parallel training: every rank has the entire model, and gradients are summed over the ranks.

Ranks are the processes that torchrun starts (RANK, WORLD_SIZE, LOCAL_RANK). Only rank 0 writes files and messages. All
ranks must share the run folder, since each reads its checkpoint from there. Sharded models: sharding.py.
"""

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import ClassVar, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import Store

from bertie.errors import Stopped, UsageError

_T = TypeVar("_T")

# How long a rank waits for the others in a step before it gives up. A rank that has died is noticed at once; this
# bounds the wait for one that hangs. What rank 0 does by itself may take longer (`by_main`).
TIMEOUT = timedelta(minutes=10)
BUCKET = 1 << 24  # floats added up in one message: 64 MiB, which hides the latency and doubles no large model


@dataclass(frozen=True)
class World:
    """The rank of this process, and the number of processes."""

    rank: int
    size: int
    device: torch.device
    store: Store | None = None

    @property
    def main(self) -> bool:
        """Whether this is the rank that writes files and messages."""
        return self.rank == 0

    def add_counts(self, counts: Mapping[str, float]) -> dict[str, float]:
        """Returns sums over all ranks, which must have the same names. Raises Stopped when a rank is lost."""
        if self.size == 1:
            return dict(counts)
        names = sorted(counts)
        # In main memory: no rank waits for its accelerator. float64 holds whole numbers to 2^53, and sums of weights.
        sums = torch.tensor([counts[name] for name in names], dtype=torch.float64)
        self._add(sums)
        return dict(zip(names, sums.tolist(), strict=True))

    def add_tensors(self, tensors: Iterable[Tensor]) -> None:
        """Sums float32 tensors over all ranks, in place. Raises Stopped when a rank is lost."""
        if self.size == 1:
            return
        for bucket in _buckets(tensors):
            flat = torch.cat([tensor.flatten() for tensor in bucket])
            self._add(flat)
            pieces = torch.split(flat, [tensor.numel() for tensor in bucket])
            for tensor, summed in zip(bucket, pieces, strict=True):
                tensor.copy_(summed.view_as(tensor))

    def most(self, count: int) -> int:
        """Returns the maximum of a count over all ranks. Raises Stopped when a rank is lost."""
        if self.size == 1:
            return count
        highest = torch.tensor(count)
        with self.rendezvous():
            dist.all_reduce(highest, dist.ReduceOp.MAX)
        return int(highest)

    def gathered(self, value: _T) -> list[_T]:
        """Returns a JSON value of each rank, by rank. Raises Stopped when a rank is lost."""
        if self.size == 1:
            return [value]
        data = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        with self.rendezvous():
            dist.all_gather(sizes, torch.tensor([len(data)]))
            longest = int(max(sizes))
            parts = [torch.zeros(longest, dtype=torch.uint8) for _ in sizes]
            dist.all_gather(parts, torch.nn.functional.pad(data, (0, longest - len(data))))
        return [json.loads(bytes(part[:size].tolist())) for part, size in zip(parts, sizes, strict=True)]

    def agree(self, facts: Mapping[str, object]) -> None:
        """Raises UsageError on all ranks when a rank differs from rank 0, with the differences."""
        everyone = self.gathered(dict(facts))
        first = everyone[0]
        for rank, theirs in enumerate(everyone):
            if differing := [key for key in first.keys() | theirs.keys() if first.get(key) != theirs.get(key)]:
                rows = "".join(f"\n  {key}: {first.get(key)} on rank 0, {theirs.get(key)}" for key in sorted(differing))
                raise UsageError(
                    f"Rank {rank} of {self.size} was started with other settings or data than rank "
                    f"0:{rows}\nStart all ranks with the same command, corpus and folder."
                )

    def share_folder(self, folder: Path) -> None:
        """Raises UsageError on all ranks when a rank does not see what rank 0 writes into a folder."""
        (name, *_) = self.gathered(f".seen-by-all-{uuid.uuid4().hex}")
        if self.main:
            (folder / name).touch()
        self.gathered(None)  # now it is there
        sees = self.gathered((folder / name).exists())
        if self.main:
            (folder / name).unlink()
        if not all(sees):
            raise UsageError(
                f"Rank {sees.index(False)} of {self.size} does not see the files that rank 0 writes to "
                f"{folder}. All ranks must share the folder."
            )

    def by_main(self, work: Callable[[], None]) -> None:
        """Calls `work` on rank 0 alone, for any time, while the others wait.

        Rank 0 sends signs of life. The others raise Stopped when there is none for TIMEOUT.
        """
        if self.store is None:
            if self.main:
                work()
            return
        done = f"bertie/done/{next(_turns)}"
        with self.rendezvous():
            if self.main:
                with _beating(self.store):
                    work()
                self.store.set(done, "")
            else:
                _await(self.store, done)

    def _add(self, tensor: Tensor) -> None:
        with self.rendezvous():
            dist.all_reduce(tensor)

    @contextmanager
    def rendezvous(self) -> Iterator[None]:
        """Context for communication between ranks: raises Stopped when one is lost."""
        try:
            yield
        except RuntimeError as error:
            if not (isinstance(error, dist.DistError | _Silent) or "gloo" in str(error)):  # the file that raised it
                raise
            raise Stopped(
                f"Rank {self.rank} of {self.size} lost another rank ({str(error).splitlines()[0][:200]}). "
                "Read the messages of that rank, then start all ranks again. They resume from the last "
                "checkpoint."
            ) from None


class Replicated:
    """A replicated model: every rank has all of it, and gradients are summed after the backward pass."""

    together: ClassVar[bool] = False
    """Whether validation and saving need all ranks."""

    def __init__(self, world: World) -> None:
        self.world = world

    def run(self, forward: Callable[[], _T]) -> _T:
        """Calls `forward`, which may use the model."""
        return forward()

    def look(self, forward: Callable[[], _T]) -> _T:
        """Calls `forward` without a later backward pass."""
        return forward()

    def passes(self, batches: int) -> int:
        """Returns the number of forward passes per step on a rank with a number of micro-batches."""
        return batches

    def add_up(self, parameters: Iterable[nn.Parameter], figures: Tensor, *, max_norm: float) -> Tensor:
        """Sums gradients and metrics over all ranks, and clips gradients to the norm max_norm. -> the norm before
        clipping"""
        trained = [parameter for parameter in parameters if parameter.grad is not None]
        self.world.add_tensors([*(parameter.grad for parameter in trained if parameter.grad is not None), figures])
        return torch.nn.utils.clip_grad_norm_(trained, max_norm)


def _buckets(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    for tensor in tensors:
        if bucket and sum(t.numel() for t in bucket) + tensor.numel() > BUCKET:
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket


class _Silent(RuntimeError):
    """Rank 0 has sent no sign of life."""


_turns = count()  # what rank 0 does by itself, numbered alike on all ranks
BEAT = "bertie/beat"


@contextmanager
def _beating(store: Store) -> Iterator[None]:
    """Increments a counter several times per TIMEOUT while the block runs."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(min(5.0, TIMEOUT.total_seconds() / 4)):
            store.add(BEAT, 1)

    thread = threading.Thread(target=beat, name="beat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _await(store: Store, key: str) -> None:
    beats, heard = -1, time.monotonic()
    while not store.check([key]):
        if (now := store.add(BEAT, 0)) != beats:
            beats, heard = now, time.monotonic()
        if time.monotonic() - heard > TIMEOUT.total_seconds():
            raise _Silent(f"rank 0 has not answered for {TIMEOUT.total_seconds():.0f} s")
        time.sleep(0.05)
