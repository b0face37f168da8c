"""Where the kernels of fused.py run: inside `using_kernels`, with the seeds of their dropout.

Seeds are a tensor on the device, so that a recorded graph (graphs.py) draws new masks each time it runs.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import MappingProxyType, ModuleType

import torch
from torch import Tensor

from bertie.nn.layout import moved


class Seeds:
    """Seeds (n, 2) int32, handed out one after the other.

    gradients: where products write the gradients of weights, by the weights' `id`, each once.
    """

    def __init__(self, table: Tensor, gradients: Mapping[int, Tensor]) -> None:
        self.table, self.used = table, 0
        self.gradients = dict(gradients)

    def take(self) -> Tensor:
        """Returns the next seed. -> (2,) int32"""
        self.used += 1
        return self.table[self.used - 1]


_SEEDS: ContextVar[Seeds | None] = ContextVar("seeds", default=None)


def draw_seeds(count: int, device: torch.device) -> Tensor:
    """Draws seeds from torch's default generator. -> (count, 2) int32 on `device`"""
    return moved(torch.randint(2**31 - 1, (count, 2), dtype=torch.int32), device)


@cache
def kernels() -> ModuleType:
    """Returns kernels.py, which imports triton."""
    from bertie.nn import kernels

    return kernels


@contextmanager
def using_kernels(seeds: Tensor, gradients: Mapping[int, Tensor] = MappingProxyType({})) -> Iterator[None]:
    """Context in which layers run as kernels, whose dropout has these seeds (n, 2). gradients: as of `Seeds`."""
    token = _SEEDS.set(Seeds(seeds, gradients))
    try:
        yield
    finally:
        _SEEDS.reset(token)


def current_seeds() -> Seeds | None:
    """Returns the seeds of the kernels; None where layers run their formulas."""
    return _SEEDS.get()
