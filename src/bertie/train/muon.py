"""Muon: updates a hidden matrix by the orthogonal matrix nearest to its momentum (Jordan et al. 2024).

torch's Muon always multiplies in bfloat16, which is a hundred times slower than float32 on a processor that emulates
it. Here the dtype is an argument. In bfloat16, both give the same bits.
"""

from typing import Any

import torch
from torch import Tensor

A, B, C = 3.4445, -4.7750, 2.0315  # the quintic of https://kellerjordan.github.io/posts/muon/
ROUNDS = 5
EPS = 1e-7  # of the norm, for a gradient of zeros


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalized. Learning rates of AdamW are suitable. dtype: of the products in `orthogonal`.

    Updates have the size of AdamW's: 0.2 times the square root of the longer side (Liu et al. 2025, 2.2).
    """

    def __init__(self, groups: list[dict[str, Any]], *, lr: float, momentum: float, dtype: torch.dtype) -> None:
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": 0.0})
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Runs one update."""
        for group in self.param_groups:
            for x in group["params"]:
                if x.grad is None:
                    continue
                state, momentum = self.state[x], group["momentum"]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(x)
                moment = state["momentum_buffer"].lerp_(x.grad, 1 - momentum)
                update = orthogonal(x.grad.lerp(moment, momentum), self.dtype)
                x.mul_(1 - group["lr"] * group["weight_decay"])
                x.add_(update, alpha=-group["lr"] * 0.2 * max(x.shape) ** 0.5)


def orthogonal(matrix: Tensor, dtype: torch.dtype) -> Tensor:
    """Five Newton-Schulz iterations: the same singular vectors, with values between about 0.7 and 1.2. -> in `dtype`"""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.to(dtype, copy=True)
    x = x.T if tall else x
    x.div_(x.norm().clamp(min=EPS))
    for _ in range(ROUNDS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x.T if tall else x
