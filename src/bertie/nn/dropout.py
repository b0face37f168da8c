"""Dropout; probability 0 and evaluation cost nothing.

torch's own draws one float per element on one core: at BERT-BASE it takes longer than the matrix products around it.
On a CPU 16 random bits per element are enough, which numpy makes about ten times as fast (docs/LOG.md).
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Zero each element with probability p and scale the rest by 1 / (1 - p), in training only. (...) -> (...)"""
    if not training or p == 0:
        return x
    return x * keep_mask(x, p) if _quick(x) else F.dropout(x, p)


def add_dropout(residual: Tensor, x: Tensor, p: float, training: bool) -> Tensor:
    """residual + dropout(x), in one pass over memory. (...), (...) -> (...)"""
    if not training or p == 0:
        return residual + x
    if not _quick(x):
        return residual + F.dropout(x, p)
    added: Tensor = _AddKept.apply(residual, x, keep_mask(x, p))  # type: ignore[no-untyped-call]
    return added


def _quick(x: Tensor) -> bool:
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


class _AddKept(torch.autograd.Function):
    """addcmul, whose own backward reads the mask twice."""

    @staticmethod
    def forward(ctx: Any, residual: Tensor, x: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(mask)
        return torch.addcmul(residual, x, mask)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (mask,) = ctx.saved_tensors
        return grad, grad * mask, None


def keep_mask(x: Tensor, p: float) -> Tensor:
    """0 with probability p, else 1 / (1 - p), in x's shape and dtype; p is kept to 1 / 65,536."""
    kept = Kept(x.numel(), x.dtype, p)
    return kept.draw(slice(0, x.numel())).view(x.shape).mul_(kept.scale)


class Kept:
    """Which of `count` elements are kept, each with probability 1 - p: `mask` (count,) is 1 there, else 0.

    Drawn a part at a time, from a numpy generator whose seed torch's default generator draws, so that torch.manual_seed
    decides. scale: what those that are kept are to be multiplied by.
    """

    def __init__(self, count: int, dtype: torch.dtype, p: float) -> None:
        self.dropped = round(p * 65536)  # of the 65,536 values that 16 bits have
        self.scale = 65536 / (65536 - self.dropped)
        self.mask = torch.empty(count, dtype=dtype)
        self.generator = np.random.Generator(np.random.SFC64(int(torch.randint(2**63 - 1, ()))))

    def draw(self, part: slice) -> Tensor:
        """Draw a part of the mask. -> it, a view"""
        count = part.stop - part.start
        words = self.generator.integers(0, 2**64 - 1, -(-count // 4), dtype=np.uint64, endpoint=True)
        bits = torch.from_numpy(words.view(np.int16))[:count]
        return torch.ge(bits, self.dropped - 32768, out=self.mask[part])
