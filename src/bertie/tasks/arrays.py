"""NumPy functions for predictions: softmax, sigmoid, the mean over windows.

E examples · W sequences · L outputs of a head
"""

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float32]


def softmax(logits: Float) -> Float:
    """Returns probabilities along the last dimension. (..., L) -> (..., L)"""
    powers: Float = np.exp(logits - logits.max(-1, keepdims=True))
    powers /= powers.sum(-1, keepdims=True)
    return powers


def sigmoid(logits: Float) -> Float:
    """Returns the sigmoid without overflow. (...) -> (...)"""
    small = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1 / (1 + small), small / (1 + small)).astype(np.float32)


def unit_vectors(vectors: Float) -> Float:
    """Returns vectors of length 1; zero vectors stay zero. (..., H) -> (..., H)"""
    units: Float = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return units
