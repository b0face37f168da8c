"""Muon: updates a hidden matrix by the orthogonal matrix nearest to its momentum (Jordan et al. 2024).

torch's Muon always multiplies in bfloat16, which is a hundred times slower than float32 on a processor that emulates
it. Here the dtype is an argument. In bfloat16, both give the same bits.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

A, B, C = 3.4445, -4.7750, 2.0315  # the quintic of https://kellerjordan.github.io/posts/muon/
_ROUNDS = 5
_EPS = 1e-7  # of the norm, for a gradient of zeros


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalized. Learning rates of AdamW are suitable. dtype: of the products in `orthogonal`.

    Updates have the size of AdamW's: 0.2 times the square root of the longer side (Liu et al. 2025, 2.2).
    """

    def __init__(self, groups: list[dict[str, object]], *, lr: float, momentum: float, dtype: torch.dtype) -> None:
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": 0.0})
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Runs one update."""
        for group in self.param_groups:
            for matrices in _together([x for x in group["params"] if x.grad is not None]):
                moments = self._moments(matrices, group["momentum"])
                if len(moments) == 1:
                    updates = [orthogonal(moments[0], self.dtype)]
                else:
                    updates = [*orthogonal(torch.stack(moments), self.dtype).float()]
                torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(matrices, updates, alpha=-group["lr"] * 0.2 * max(matrices[0].shape) ** 0.5)

    def _moments(self, matrices: Sequence[Tensor], momentum: float) -> list[Tensor]:
        """Updates the momentum of matrices. -> Nesterov's look ahead of each"""
        for x in matrices:
            if not self.state[x]:
                self.state[x]["momentum_buffer"] = torch.zeros_like(x)
        buffers = [self.state[x]["momentum_buffer"] for x in matrices]
        gradients = [x.grad for x in matrices if x.grad is not None]
        torch._foreach_lerp_(buffers, gradients, 1 - momentum)
        return [*torch._foreach_lerp(gradients, buffers, momentum)]


def _together(matrices: Sequence[Tensor]) -> Iterable[list[Tensor]]:
    """Returns what is updated at a time: on an accelerator all matrices of a shape, since a small model has many of
    them, whose kernels take longer to launch than to run; on a CPU one matrix, to save memory."""
    together = defaultdict[object, list[Tensor]](list)
    for x in matrices:
        together[id(x) if x.device.type == "cpu" else x.shape].append(x)
    return together.values()


def orthogonal(matrix: Tensor, dtype: torch.dtype) -> Tensor:
    """Five Newton-Schulz iterations: the same singular vectors, with values between about 0.7 and 1.2.

    matrix (R, C), or several of them, (N, R, C) -> the same shape in `dtype`
    """
    tall = matrix.shape[-2] > matrix.shape[-1]
    multiplied_and_added = torch.addmm if matrix.ndim == 2 else torch.baddbmm
    x = matrix.to(dtype, copy=True)
    x = x.mT if tall else x
    x.div_(x.norm(dim=(-2, -1), keepdim=True).clamp(min=_EPS))
    for _ in range(_ROUNDS):
        gram = x @ x.mT
        x = multiplied_and_added(x, multiplied_and_added(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x.mT if tall else x
