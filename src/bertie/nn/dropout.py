"""Dropout; probability 0 and evaluation cost nothing."""

import torch.nn.functional as F
from torch import Tensor


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Zero each element with probability p and scale the rest by 1 / (1 - p), in training only. (...) -> (...)"""
    return F.dropout(x, p) if training and p > 0 else x
