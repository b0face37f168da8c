"""Cross-entropy over a vocabulary without ever holding all the logits.

N predictions · C of them at a time · V vocabulary · H hidden size
"""

from typing import Any

import torch
from torch import Tensor

CHUNK_LOGITS = 1 << 23  # logits held at a time: 16 MiB in bf16, which stays near the caches


def linear_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Summed cross-entropy of softmax(hidden weight^T + bias), and how many predictions were right.

    hidden (N, H) in the compute dtype, weight (V, H), bias (V,), targets (N,) int64 -> sum in nats, float32 scalar;
    correct, int64 scalar. The logits are made and turned into their gradient a chunk at a time, in the forward pass.
    """
    total, correct = _LinearCrossEntropy.apply(hidden, weight, bias, targets)  # type: ignore[no-untyped-call]
    return total, correct


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor, targets_N: Tensor) -> Any:
        w_VH, b_V = weight_VH.to(hidden_NH.dtype), bias_V.to(hidden_NH.dtype)
        total = torch.zeros((), device=hidden_NH.device)
        correct = torch.zeros((), dtype=torch.int64, device=hidden_NH.device)
        grads = any(ctx.needs_input_grad)
        grad_hidden_NH = torch.empty_like(hidden_NH) if grads else None
        grad_weight_VH = torch.zeros_like(weight_VH, dtype=torch.float32) if grads else None
        grad_bias_V = torch.zeros_like(bias_V, dtype=torch.float32) if grads else None
        chunk = max(1, CHUNK_LOGITS // len(weight_VH))
        for start in range(0, len(hidden_NH), chunk):
            rows = slice(start, start + chunk)
            h_CH, targets_C1 = hidden_NH[rows], targets_N[rows, None]
            logits_CV = torch.addmm(b_V, h_CH, w_VH.T)
            target_C = logits_CV.gather(1, targets_C1)[:, 0].float()
            correct += (target_C >= logits_CV.amax(1).float()).sum()
            log_z_C = logits_CV.logsumexp(1).float()
            total += (log_z_C - target_C).sum()
            if grad_hidden_NH is None or grad_weight_VH is None or grad_bias_V is None:
                continue
            # d loss / d logits = softmax - one-hot, written over the logits
            grad_CV = logits_CV.sub_(log_z_C[:, None].to(logits_CV.dtype)).exp_()
            grad_CV.scatter_add_(1, targets_C1, grad_CV.new_full((), -1.0).expand_as(targets_C1))
            torch.mm(grad_CV, w_VH, out=grad_hidden_NH[rows])
            grad_weight_VH += grad_CV.T @ h_CH
            grad_bias_V += grad_CV.sum(0, dtype=torch.float32)
        ctx.save_for_backward(grad_hidden_NH, grad_weight_VH, grad_bias_V)
        ctx.dtypes = weight_VH.dtype, bias_V.dtype
        ctx.mark_non_differentiable(correct)
        return total, correct

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor, _: Any) -> Any:
        grad_hidden, grad_weight, grad_bias = ctx.saved_tensors
        return (
            grad_hidden * grad_total.to(grad_hidden.dtype),
            (grad_weight * grad_total).to(ctx.dtypes[0]),
            (grad_bias * grad_total).to(ctx.dtypes[1]),
            None,
        )
