"""Cross-entropy against another model's probabilities, without storing all logits of either.

N positions · C of them at a time · V vocabulary · H hidden size of the student · G of the teacher
"""

from typing import Any

import torch
from torch import Tensor

from bertie.nn.loss import right, rows_at_a_time

LogitOperands = tuple[Tensor, Tensor, Tensor]
"""The operands of logits: hidden states (N, H), weight (V, H), bias (V,)."""


def soft_targets_loss(student: LogitOperands, teacher: LogitOperands, *, temperature: float) -> tuple[Tensor, Tensor]:
    """Returns the summed KL(teacher || student) of the probabilities at a temperature, and how often both have the same
    maximum.

    Multiplied by temperature^2, so that gradients have the same size at any temperature (Hinton et al. 2015, 2). -> sum
    in nats, float32 scalar; count, int64 scalar. Only the student has gradients, which are computed in the forward
    pass, a chunk of positions at a time.
    """
    total, agreed = _SoftTargets.apply(*student, *(x.detach() for x in teacher), temperature)  # type: ignore[no-untyped-call]
    return total, agreed


class _SoftTargets(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor,
        teacher_NG: Tensor,
        teacher_VG: Tensor,
        teacher_V: Tensor,
        temperature: float,
    ) -> Any:
        ours_VH, ours_V = weight_VH.to(hidden_NH.dtype), bias_V.to(hidden_NH.dtype)
        theirs_VG, theirs_V = teacher_VG.to(teacher_NG.dtype), teacher_V.to(teacher_NG.dtype)
        total = torch.zeros((), device=hidden_NH.device)
        agreed = torch.zeros((), dtype=torch.int64, device=hidden_NH.device)
        grad_hidden_NH = torch.empty_like(hidden_NH)
        grad_weight_VH, grad_bias_V = torch.zeros_like(weight_VH), torch.zeros_like(bias_V)
        chunk = rows_at_a_time(weight_VH)
        for start in range(0, len(hidden_NH), chunk):
            h_CH, g_CG = hidden_NH[start : start + chunk], teacher_NG[start : start + chunk]
            ours_CV = (torch.addmm(ours_V, h_CH, ours_VH.T).float() / temperature).log_softmax(1)
            theirs_CV = (torch.addmm(theirs_V, g_CG, theirs_VG.T).float() / temperature).log_softmax(1)
            wanted_CV = theirs_CV.exp()
            total += (wanted_CV * (theirs_CV - ours_CV)).sum() * temperature**2
            agreed += right(ours_CV, theirs_CV.argmax(1)).sum()
            if any(ctx.needs_input_grad):
                grad_CV = ((ours_CV.exp() - wanted_CV) * temperature).to(h_CH.dtype)  # d total / d logits
                grad_hidden_NH[start : start + chunk] = grad_CV @ ours_VH
                grad_weight_VH += grad_CV.T @ h_CH
                grad_bias_V += grad_CV.sum(0)
        ctx.save_for_backward(grad_hidden_NH, grad_weight_VH, grad_bias_V)
        ctx.mark_non_differentiable(agreed)
        return total, agreed

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor, _: Any) -> Any:
        hidden_NH, weight_VH, bias_V = ctx.saved_tensors
        grads = hidden_NH * grad_total.to(hidden_NH.dtype), weight_VH * grad_total, bias_V * grad_total
        return *grads, None, None, None, None
