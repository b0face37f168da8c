"""Linear layers and norms with float32 weights that compute in the dtype of their input.

A model thus runs in bf16 from end to end when its embeddings are cast, while the optimizer has float32 parameters and
gradients. torch.autocast would keep the residual stream and the norms in float32, twice the memory traffic.
"""

from collections.abc import Callable
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn, ones, zeros


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
        return F.linear(x, self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype))


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
