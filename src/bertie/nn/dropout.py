"""Dropout; probability 0 and evaluation cost nothing.

Where kernels run (seeds.py), an element is kept by a hash of its number, so that more rows change no mask.

torch's dropout draws one float per element on one core. For BERT-base, this takes longer than the surrounding matrix
products. On a CPU, 16 random bits per element are enough, which numpy draws about ten times as fast (benchmarks/log).
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertie.nn.seeds import current_seeds, kernels

ELEMENTS = 2048  # of a program of the kernel


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Sets each element to zero with probability p and scales the rest by 1 / (1 - p), in training only. (...) ->
    (...)"""
    if not training or p == 0:
        return x
    if current_seeds() is not None:
        output: Tensor = HashedDropout.apply(x, Dropout.next(p))  # type: ignore[no-untyped-call]
        return output
    return x * keep_mask(x, p) if _quick(x) else F.dropout(x, p)


def add_dropout(residual: Tensor, x: Tensor, p: float, training: bool) -> Tensor:
    """Returns residual + dropout(x), in one pass over memory. (...), (...) -> (...)"""
    if not training or p == 0:
        return residual + x
    if current_seeds() is not None or not _quick(x):
        return residual + dropout(x, p, training)
    added: Tensor = _AddKept.apply(residual, x, keep_mask(x, p))  # type: ignore[no-untyped-call]
    return added


class Dropout:
    """The probability and the seed of one draw of dropout; seed (2,) int32."""

    def __init__(self, p: float, seed: Tensor) -> None:
        self.on, self.seed = p > 0, seed
        self.arguments = seed, int(p * 2**31), 1 / (1 - p) if p < 1 else 0.0

    @classmethod
    def next(cls, p: float) -> "Dropout":
        """Returns a draw with the next seed."""
        seeds = current_seeds()
        assert seeds is not None, "kernels run inside using_kernels"
        return cls(p, seeds.take())


class HashedDropout(torch.autograd.Function):
    """Dropout as a kernel, whose backward pass draws the mask again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, draw: Dropout) -> Tensor:
        """See the class."""
        ctx.draw = draw
        return _dropped(x.contiguous(), draw)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """The gradient, with the same mask."""
        return _dropped(grad.contiguous(), ctx.draw), None


def _dropped(x: Tensor, draw: Dropout) -> Tensor:
    y, size = torch.empty_like(x), x.numel()
    kernels().drop[(-(-size // ELEMENTS),)](x, y, size, *draw.arguments, ELEMENTS=ELEMENTS, num_warps=4)
    return y


def _quick(x: Tensor) -> bool:
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


class _AddKept(torch.autograd.Function):
    """addcmul with a backward pass that reads the mask once instead of twice."""

    @staticmethod
    def forward(ctx: Any, residual: Tensor, x: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(mask)
        return torch.addcmul(residual, x, mask)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (mask,) = ctx.saved_tensors
        return grad, grad * mask, None


def keep_mask(x: Tensor, p: float) -> Tensor:
    """Returns 0 with probability p, else 1 / (1 - p), in x's shape and dtype; p is exact to 1 / 65,536."""
    keep = DropoutMask(p)
    return keep.draw(x.shape, x.dtype, keep.scale)


class DropoutMask:
    """The elements that dropout keeps, drawn one tensor at a time, each with probability 1 - p.

    The seed of its numpy generator is drawn from torch's default one, so that torch.manual_seed determines it. scale:
    the factor of kept elements.
    """

    def __init__(self, p: float) -> None:
        self.dropped = min(max(1, round(p * 65536)), 65535)  # of the 65,536 values that 16 bits have
        self.scale = 65536 / (65536 - self.dropped)
        self.generator = np.random.Generator(np.random.SFC64(int(torch.randint(2**63 - 1, ()))))

    def draw(self, shape: Sequence[int], dtype: torch.dtype, scale: float = 1.0) -> Tensor:
        """Returns a tensor that is `scale` where an element is kept, else 0.

        The random bits are converted in place by arithmetic on 16-bit integers. A comparison that writes bf16 first
        makes a tensor of bool, and takes three times as long.
        """
        count = prod(shape)
        words = self.generator.integers(0, 2**64 - 1, -(-count // 4), dtype=np.uint64, endpoint=True)
        bits = torch.from_numpy(words.view(np.int16))[:count].view(shape)
        last = self.dropped - 32769  # the highest that is dropped, of int16's -32,768 ... 32,767
        ones = bits.clamp_(last, last + 1).sub_(last)
        if dtype not in (torch.bfloat16, torch.float16):
            return ones.to(dtype).mul_(scale)
        return ones.mul_(int(torch.tensor(scale, dtype=dtype).view(torch.int16))).view(dtype)
