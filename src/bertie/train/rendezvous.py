"""The start of distributed training: the variables of torchrun, and the store through which processes connect.

Rank 0 or torchrun runs the store. A waiting process prints a message after some seconds, and gives up after minutes.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from bertie.console import console
from bertie.errors import Stopped, UsageError, WrongValue
from bertie.train import distributed
from bertie.train.distributed import World


def is_main() -> bool:
    """Returns whether this process writes files and messages, also before the processes are connected."""
    return ranks()[0] == 0


def world_size() -> int:
    """Returns the number of processes that torchrun started, also before they are connected."""
    return ranks()[1]


def one_process(command: str) -> None:
    """Raises UsageError for a command of one process where torchrun's variables are set for several."""
    for name, alone in (("WORLD_SIZE", "1"), ("RANK", "0")):
        if (value := os.environ.get(name, alone)) != alone:
            raise UsageError(
                f"bertie {command} runs in one process, but {name} is {value!r}. Start it without torchrun, or remove "
                "the variables: unset WORLD_SIZE RANK"
            )


_START_HINT = "Start all of them with: torchrun --nproc-per-node 2 -m bertie pretrain ..."


def ranks() -> tuple[int, int]:
    """Returns the rank and the number of processes from torchrun's variables. Raises UsageError for invalid values."""
    size, rank = _number("WORLD_SIZE", 1), _number("RANK", 0)
    if "WORLD_SIZE" in os.environ and size > 1 and "RANK" not in os.environ:
        raise UsageError(f"WORLD_SIZE is set but RANK is not. {_START_HINT}")
    if size < 1:
        raise WrongValue(f"WORLD_SIZE is {size}; it must be a number of processes, 1 or more. {_START_HINT}")
    if not 0 <= rank < size:
        raise UsageError(f"RANK is {rank}, but with WORLD_SIZE={size} ranks are 0 to {size - 1}. {_START_HINT}")
    return rank, size


def local_rank() -> int:
    """Returns the number of this process on its machine."""
    return _number("LOCAL_RANK", 0)


def _number(name: str, default: int) -> int:
    value = os.environ.get(name, str(default))
    try:
        return int(value)
    except ValueError:
        raise WrongValue(f"{name} is {value!r}; it must be a whole number. {_START_HINT}") from None


@contextmanager
def world(device: torch.device) -> Iterator[World]:
    """Context that connects the ranks started by torchrun, if any. Raises UsageError, Stopped."""
    rank, size = ranks()
    if size == 1:
        yield World(0, 1, device)
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    mine = not dist.is_initialized()
    store = _met(rank, size) if mine else None
    if not is_main():
        console.verbosity.level = -1
    if mine:
        # gloo in addition to NCCL, for numbers that ranks exchange from main memory
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        try:
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=distributed.TIMEOUT)
        except (RuntimeError, ValueError) as error:
            raise Stopped(
                f"Rank {rank} of {size} could not connect to the others: {str(error).splitlines()[0]}"
            ) from None
    try:
        yield World(rank, size, device, store)
        if store is not None:
            _part(store, rank, size)
    finally:
        if mine:
            dist.destroy_process_group()


def _part(store: Store, rank: int, size: int) -> None:
    """Lets rank 0, which runs the store, leave last."""
    if rank:
        store.add("left", 1)
        return
    began = time.monotonic()
    while store.add("left", 0) < size - 1 and time.monotonic() - began < LEAVE_S:
        time.sleep(0.05)


LEAVE_S = 30.0  # for the others to leave
SAY_AFTER_S, GIVE_UP_S = 3.0, 300.0  # of waiting for processes that have not come


def _met(rank: int, size: int) -> Store:
    """Returns the store of the ranks, after all of them are connected."""
    variables = {name: os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT")}
    if missing := [name for name, value in variables.items() if not value]:
        raise UsageError(f"WORLD_SIZE is {size}, and {' and '.join(missing)} are not set. {_START_HINT}")
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # torchrun's own, which lives as long as torchrun
    host, port = variables["MASTER_ADDR"], _number("MASTER_PORT", 0)
    late = threading.Timer(SAY_AFTER_S, console.say, [f"Rank {rank} is waiting for rank 0 at {host}:{port}."])
    late.daemon = True
    late.start()
    try:
        store: Store = TCPStore(
            host, port, size, rank == 0 and not agent, timedelta(seconds=GIVE_UP_S), wait_for_workers=False
        )
    except (RuntimeError, ValueError) as error:
        said = str(error).splitlines()[0][:200]
        raise Stopped(f"Rank {rank} of {size} could not reach rank 0 at {host}:{port}: {said}. {_START_HINT}") from None
    finally:
        late.cancel()
    store = PrefixStore(f"bertie/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    if store.add(f"rank/{rank}", 1) > 1:
        raise UsageError(f"Two processes have RANK={rank}. Each process needs its own rank. {_START_HINT}")
    came, began, said_at = store.add("came", 1), time.monotonic(), 0.0
    while came < size:
        waited = time.monotonic() - began
        if waited > GIVE_UP_S:
            raise Stopped(f"{size - came} of {size} processes did not start within {GIVE_UP_S:.0f} s. {_START_HINT}")
        if rank == 0 and waited > SAY_AFTER_S and (not said_at or waited - said_at > 60):
            console.say(f"Waiting for {size - came} more of {size} processes (WORLD_SIZE={size}).")
            said_at = waited
        time.sleep(0.05)
        came = store.add("came", 0)
    return store
