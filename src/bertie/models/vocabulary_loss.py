"""Cross-entropy over a vocabulary without storing all logits.

N predictions and a few rows more · C of them at a time · V vocabulary · H hidden size.
The additional rows give products one of few shapes.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bertie.nn.layout import rounded, with_rows

CHUNK_LOGITS = 1 << 24  # logits held at a time: 32 MiB in bf16, 549 predictions of BERT's vocabulary
ON_GPU = 4  # times as many there: a GPU takes longer to launch the kernels of many chunks than to run those of few
ALIGNED = 64  # words; BERT's 30,522 are no multiple of 8, which tensor cores' loads need
SMALLEST = 1e-38  # probability a target is taken to have at least: a loss of at most 87 nats, never infinity


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, *, z_loss: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Returns the summed cross-entropy of softmax(hidden weight^T + bias), and the number of correct predictions.

    hidden (N, H) in the compute dtype, weight (V, H), bias (V,), targets (N,) int64 -> sum in nats, float32 scalar;
    correct, int64 scalar: only the target has the highest logit. Rows of hidden after the last target do not count, nor
    those of negative targets. The gradient is the softmax except for one entry per row, so it is computed in the
    forward pass. The forward pass computes a chunk of predictions at a time and stores no logits.

    z_loss: weight of the squared logarithm of the softmax's denominator, which is added (Chowdhery et al. 2022, 5).
    """
    hidden = with_rows(hidden, rounded(len(hidden)))
    targets = F.pad(targets, (0, len(hidden) - len(targets)), value=-1)
    total, correct = _LinearCrossEntropy.apply(hidden, weight, bias, targets, z_loss)  # type: ignore[no-untyped-call]
    return total, correct


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor, targets_N: Tensor, z_loss: float
    ) -> Any:
        w_VH, b_V = _aligned(weight_VH.to(hidden_NH.dtype), bias_V.to(hidden_NH.dtype))
        total = torch.zeros((), device=hidden_NH.device)
        correct = torch.zeros((), dtype=torch.int64, device=hidden_NH.device)
        grad_hidden, grad_weight, grad_bias = [], None, None
        chunk, copies = rows_at_a_time(weight_VH), 8 if weight_VH.is_cuda else 1  # a row alone leaves tensor cores idle
        for start in range(0, max(1, len(hidden_NH)), chunk):
            h_CH, targets_C = hidden_NH[start : start + chunk], targets_N[start : start + chunk]
            counts_C1, at_C1 = (targets_C >= 0).to(h_CH.dtype)[:, None], targets_C.clamp(min=0)[:, None]
            probs_CV = torch.addmm(b_V, h_CH, w_VH.T).softmax(1)
            target_C1 = probs_CV.gather(1, at_C1)
            probs_CV.scatter_(1, at_C1, -1)  # what is left are the others
            correct += ((target_C1[:, 0] > _row_max(probs_CV)) & (targets_C >= 0)).sum()
            log_target_C1 = target_C1.float().clamp_min(SMALLEST).log()
            total -= (log_target_C1 * counts_C1).sum()
            if z_loss:
                log_z_C1 = (h_CH.float() * w_VH[at_C1[:, 0]]).sum(1, keepdim=True) + b_V[at_C1] - log_target_C1
                total += z_loss * (log_z_C1.square() * counts_C1).sum()
                target_C1 = target_C1 * (pull_C1 := (1 + 2 * z_loss * log_z_C1).to(h_CH.dtype))
                probs_CV *= pull_C1
            if any(ctx.needs_input_grad):
                probs_CV.scatter_(1, at_C1, target_C1 - 1)  # now d loss / d logits, where a target counts
                grad_hidden.append(probs_CV @ w_VH * counts_C1)
                grad_weight = _add(grad_weight, probs_CV.T @ (h_CH * counts_C1))
                # a product: torch's sum over rows in float32 would copy all of them first
                grad_bias = _add(grad_bias, (counts_C1.T.expand(copies, -1) @ probs_CV)[0])
        if grad_hidden:
            size = len(weight_VH)
            ctx.save_for_backward(torch.cat(grad_hidden), grad_weight[:size], grad_bias[:size])  # type: ignore[index]
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
            None,
        )


def _aligned(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Adds words that no text has, with probability 0: a GPU's products are three times as fast at multiples of 64."""
    more = -len(weight) % ALIGNED if weight.device.type == "cuda" else 0
    if not more:
        return weight, bias
    return F.pad(weight, (0, 0, 0, more)), F.pad(bias, (0, more), value=torch.finfo(bias.dtype).min)


def rows_at_a_time(weight: Tensor) -> int:
    """Returns how many predictions have their logits in memory at a time. weight (V, H)"""
    return max(1, CHUNK_LOGITS * (1 if weight.device.type == "cpu" else ON_GPU) // len(weight))


def _add(total: Tensor | None, part: Tensor) -> Tensor:
    return part.float() if total is None else total.add_(part)


def _row_max(x_CV: Tensor) -> Tensor:
    """(C, V) -> (C,). Folds halves (which may overlap) onto each other: on a CPU ten times as fast as amax."""
    while x_CV.device.type == "cpu" and (width := x_CV.shape[1]) > 64:
        half = (width + 1) // 2
        x_CV = torch.maximum(x_CV[:, :half], x_CV[:, -half:])
    return x_CV.amax(1)
