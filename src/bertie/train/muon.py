"""Muon: updates a hidden matrix by the orthogonal matrix nearest to its momentum (Jordan et al. 2024).

torch's Muon always multiplies in bfloat16, which is a hundred times slower than float32 on a processor that emulates
it. Here the dtype is an argument. In bfloat16, both give the same bits.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
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
            by_shape = defaultdict[torch.Size, list[Tensor]](list)
            for x in group["params"]:
                if x.grad is not None:
                    by_shape[x.shape].append(x)
            for matrices in by_shape.values():
                for x, update in zip(matrices, self._updates(matrices, group["momentum"]), strict=True):
                    x.mul_(1 - group["lr"] * group["weight_decay"])
                    x.add_(update, alpha=-group["lr"] * 0.2 * max(x.shape) ** 0.5)

    def _updates(self, matrices: Sequence[Tensor], momentum: float) -> Iterable[Tensor]:
        """Returns the updates of matrices of one shape. On an accelerator, they are orthogonalized together, since a
        small model has many of them, and each product takes longer to launch than to compute."""
        moments = (self._moment(x, momentum) for x in matrices)
        if matrices[0].device.type == "cpu":
            return (orthogonal(moment, self.dtype) for moment in moments)
        return orthogonal(torch.stack([*moments]), self.dtype)

    def _moment(self, x: Tensor, momentum: float) -> Tensor:
        """Updates the momentum of a matrix. -> Nesterov's look ahead"""
        state, gradient = self.state[x], x.grad
        assert gradient is not None
        if not state:
            state["momentum_buffer"] = torch.zeros_like(x)
        moment: Tensor = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        return gradient.lerp(moment, momentum)


def orthogonal(matrix: Tensor, dtype: torch.dtype) -> Tensor:
    """Five Newton-Schulz iterations: the same singular vectors, with values between about 0.7 and 1.2.

    matrix (R, C), or several of them, (N, R, C) -> the same shape in `dtype`
    """
    tall = matrix.shape[-2] > matrix.shape[-1]
    multiplied_and_added = torch.addmm if matrix.ndim == 2 else torch.baddbmm
    x = matrix.to(dtype, copy=True)
    x = x.mT if tall else x
    x.div_(x.norm(dim=(-2, -1), keepdim=True).clamp(min=EPS))
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = multiplied_and_added(x, multiplied_and_added(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x.mT if tall else x
