"""Data parallel training, as small as it can be: every rank has the whole model, and gradients are added up.

Ranks are the processes torchrun starts (RANK, WORLD_SIZE, LOCAL_RANK). Rank 0 alone writes and speaks. All ranks must
see the run folder: each reads its checkpoint from there. Models cut into parts: sharding.py.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bertie import console
from bertie.errors import Stopped, UsageError

T = TypeVar("T")

# How long a rank waits for the others before it gives up. A rank that has died is noticed at once; this bounds the
# wait for one that hangs, and must outlast rank 0's validation and checkpoints.
TIMEOUT = timedelta(minutes=10)
BUCKET = 1 << 24  # floats added up in one message: 64 MiB, which hides the latency and doubles no large model


@dataclass(frozen=True)
class World:
    """This process among all: its rank, and how many there are."""

    rank: int
    size: int
    device: torch.device

    @property
    def main(self) -> bool:
        """Whether this is the rank that writes and speaks."""
        return self.rank == 0

    def add_counts(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Sums over all ranks, which must ask for the same names. Raises Stopped when a rank is lost."""
        if self.size == 1:
            return dict(counts)
        names = sorted(counts)
        sums = torch.tensor([counts[name] for name in names], dtype=torch.int64, device=self.device)
        self._add(sums)
        return dict(zip(names, sums.tolist(), strict=True))

    def add_tensors(self, tensors: Iterable[Tensor]) -> None:
        """Sum float32 tensors over all ranks, in place. Raises Stopped when a rank is lost."""
        if self.size == 1:
            return
        for bucket in _buckets(tensors):
            flat = torch.cat([tensor.flatten() for tensor in bucket])
            self._add(flat)
            pieces = torch.split(flat, [tensor.numel() for tensor in bucket])
            for tensor, summed in zip(bucket, pieces, strict=True):
                tensor.copy_(summed.view_as(tensor))

    def most(self, count: int) -> int:
        """The highest of the counts that the ranks give. Raises Stopped when a rank is lost."""
        if self.size == 1:
            return count
        highest = torch.tensor(count, device=self.device)
        with self.meeting():
            dist.all_reduce(highest, dist.ReduceOp.MAX)
        return int(highest)

    def _add(self, tensor: Tensor) -> None:
        with self.meeting():
            dist.all_reduce(tensor)

    @contextmanager
    def meeting(self) -> Iterator[None]:
        """While ranks talk to each other: raises Stopped when one is lost."""
        try:
            yield
        except RuntimeError as error:
            if not (isinstance(error, dist.DistError) or "gloo" in str(error)):  # the path of the file that raised it
                raise
            raise Stopped(
                f"Rank {self.rank} of {self.size} lost another rank ({str(error).splitlines()[0][:200]}). "
                "Look at that rank's messages; then start all ranks again: they resume from the last checkpoint."
            ) from None


class Replicated:
    """How a model lies on the ranks: every rank has all of it, and gradients are added up once they are made."""

    together: ClassVar[bool] = False
    """Whether a look at the model, to validate or to save it, takes all ranks."""

    def __init__(self, world: World) -> None:
        self.world = world

    def run(self, forward: Callable[[], T]) -> T:
        """Call `forward`, which may use the model."""
        return forward()

    def look(self, forward: Callable[[], T]) -> T:
        """The same where there will be no backward pass."""
        return forward()

    def passes(self, batches: int) -> int:
        """How many forward passes a step takes on a rank that has so many micro-batches."""
        return batches

    def add_up(self, parameters: Iterable[nn.Parameter], figures: Tensor, *, max_norm: float) -> Tensor:
        """Sum gradients and figures over all ranks, and scale gradients down to a norm of max_norm. -> what it was"""
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


def is_main() -> bool:
    """Whether this process is the one that writes and speaks, before and after it has met the others."""
    return os.environ.get("RANK", "0") == "0"


def world_size() -> int:
    """How many processes torchrun started, known before they have met."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def world(device: torch.device) -> Iterator[World]:
    """Join the other ranks torchrun started, if it did, and part from them at the end. Raises UsageError, Stopped."""
    size = world_size()
    if size == 1:
        yield World(0, 1, device)
        return
    if "RANK" not in os.environ:
        raise UsageError(
            "WORLD_SIZE is set but RANK is not. Start with: torchrun --nproc-per-node 2 -m bertie pretrain"
        )
    rank = int(os.environ["RANK"])
    if not is_main():
        console.verbosity.level = -1
    if device.type == "cuda":
        torch.cuda.set_device(device)
    mine = not dist.is_initialized()
    if mine:
        try:
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT)
        except (RuntimeError, ValueError) as error:
            raise Stopped(f"Rank {rank} of {size} could not meet the others: {str(error).splitlines()[0]}") from None
    try:
        yield World(rank, size, device)
    finally:
        if mine:
            dist.destroy_process_group()
