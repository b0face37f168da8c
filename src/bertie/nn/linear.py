"""Linear layers and norms with float32 weights that compute in the dtype of their input.

A model thus runs in bf16 from end to end when its embeddings are cast, while the optimizer has float32 parameters and
gradients. torch.autocast would keep the residual stream and the norms in float32, twice the memory traffic.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn, ones, zeros
from torch.autograd.function import once_differentiable

from bertie.nn.seeds import current_seeds


class Linear(nn.Linear):
    """y = x W^T + b in x's dtype. x (..., in_features) -> (..., out_features)

    parts: the number of matrices that are fused in the weight, for optimizers that need entire matrices
    (train/optim.py).
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, parts: int = 1) -> None:
        super().__init__(in_features, out_features, bias)
        self.parts = parts

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in_features) -> (..., out_features)"""
        if _mixed_on_gpu(x, self.weight):
            return _product(x, self.weight, self.bias)
        return F.linear(x, self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype))

    def without_bias(self, x: Tensor) -> Tensor:
        """`forward` without the bias."""
        return _product(x, self.weight, None) if _mixed_on_gpu(x, self.weight) else F.linear(x, self.weight.to(x.dtype))


def _mixed_on_gpu(x: Tensor, weight: Tensor) -> bool:
    return x.device.type == "cuda" and weight.dtype == torch.float32 != x.dtype and current_seeds() is not None


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    y: Tensor = _Product.apply(x.flatten(0, -2), weight, bias)  # type: ignore[no-untyped-call]
    return y if x.ndim == 2 else y.view(*x.shape[:-1], -1)


class _Product(torch.autograd.Function):
    """x W^T + b in half precision, whose product for the weight's gradient writes float32. x (R, I) -> (R, O)

    torch's own backward pass writes it in half precision, and converts it in another pass.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        seeds = current_seeds()
        ctx.into = None if seeds is None else seeds.gradients.pop(id(weight), None)
        weight = weight.to(x.dtype)
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, None if bias is None else bias.to(x.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            grad @ weight if of_x else None,
            torch.mm(grad.mT, x, out_dtype=torch.float32, out=ctx.into) if of_weight else None,
            grad.sum(0, dtype=torch.float32) if of_bias else None,
        )


class LayerNorm(nn.LayerNorm):
    """Layer normalization in x's dtype; the statistics inside the kernel are float32. (..., H) -> (..., H)"""

    def forward(self, x: Tensor) -> Tensor:
        """(..., H) -> (..., H)"""
        return F.layer_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)


class UnbiasedNorm(nn.Module):
    """Layer normalization with a scale and without a shift, in x's dtype. (..., H) -> (..., H)"""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(ones(size))

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return F.layer_norm(x, self.weight.shape, self.weight.to(x.dtype), None, self.eps)


class Affine(nn.Module):
    """A scale and a shift of each feature instead of a norm: without sums, so faster on a phone.

    (..., H) -> (..., H). Sun et al. 2020, 3.4 (NoNorm).
    """

    def __init__(self, size: int, eps: float = 0.0) -> None:
        super().__init__()  # eps: as norms have, and nothing here is divided
        self.weight = nn.Parameter(ones(size))
        self.bias = nn.Parameter(zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        """(..., H) -> (..., H)"""
        return x * self.weight.to(x.dtype) + self.bias.to(x.dtype)


class RMSNorm(nn.Module):
    """Divides by the root mean square, then scales; no mean is subtracted. Zhang and Sennrich 2019.

    (..., H) -> (..., H) in x's dtype.
    """

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(ones(size))

    def forward(self, x: Tensor) -> Tensor:
        """(..., H) -> (..., H)"""
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


NormType = Literal["layer", "rms", "affine", "unbiased"]
NORMS: dict[NormType, Callable[[int, float], nn.Module]] = {
    "layer": LayerNorm,
    "rms": RMSNorm,
    "affine": Affine,
    "unbiased": UnbiasedNorm,
}
