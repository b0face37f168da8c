"""`Int4Weight`: a matrix with four bits per number, as it is stored in a model folder. Uses only NumPy.

    w[n, k] = low[n, k // size] + step[n, k // size] q[n, k],   q = 0 ... 15

Rows fall into G groups of `size` neighboring features, each with its own step and lowest value (asymmetric). Only the
weights are small: they are dequantized when a folder is opened, and every engine computes with float numbers.

In a file, the weight's public name has the numbers q, two in a byte: an even feature in the low half, the next one in
the high half. Names that end in `_step` and `_low` have the rest, in float16: 4 + 32 / size bits for each number.

N output features · K input features · G groups
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
_LEVELS = 16
_GROUP_SIZE = 32  # features of a group, at most; with 64, all-MiniLM's vectors keep a cosine of 0.987 instead of 0.990


@dataclass(frozen=True)
class Int4Weight:
    """values (N, K / 2) uint8, step and low (N, G) float16."""

    values: NDArray[np.uint8]
    step: NDArray[np.float16]
    low: NDArray[np.float16]

    PARTS: ClassVar = ("step", "low")
    BITS: ClassVar = 4
    LEVELS: ClassVar = _LEVELS

    @staticmethod
    def groups(features: int) -> NDArray[np.int64]:
        """Returns the group of each feature."""
        return group_features(features)

    @classmethod
    def shape(cls, stored: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of the matrix from that of the values in a file."""
        return (*stored[:-1], 2 * stored[-1]) if stored else stored

    @classmethod
    def packed(cls, numbers: NDArray[np.generic], step: NDArray[np.generic], low: NDArray[np.generic]) -> "Int4Weight":
        """Returns the matrix of numbers from 0 to 15. numbers (N, K), step and low (N, G)."""
        small = numbers.astype(np.uint8)
        values = (small[:, ::2] | small[:, 1::2] << 4).astype(np.uint8)
        return cls(values, step.astype(np.float16), low.astype(np.float16))

    def numbers(self) -> NDArray[np.uint8]:
        """Returns the numbers from 0 to 15. -> (N, K)"""
        return np.stack([self.values & 15, self.values >> 4], -1).reshape(len(self.values), -1)

    def dequantized(self) -> Floats:
        """Returns the matrix in float32."""
        group = group_features(2 * self.values.shape[1])
        values: Floats = self.numbers() * self.step.astype(np.float32)[:, group] + self.low.astype(np.float32)[:, group]
        return values

    def parts(self, count: int) -> "list[Int4Weight]":
        """Returns the matrices that are fused here and separate in the Hugging Face format."""
        arrays = (np.split(array, count) for array in (self.values, self.step, self.low))
        return [Int4Weight(*own) for own in zip(*arrays, strict=True)]

    @classmethod
    def fused(cls, parts: "Sequence[Int4Weight]") -> "Int4Weight":
        """Returns one matrix of several that read the same rows."""
        values, step, low = (np.concatenate([getattr(p, name) for p in parts]) for name in ("values", "step", "low"))
        return cls(values, step, low)

    def named(self, name: str) -> dict[str, NDArray[Any]]:
        """Returns the arrays by their names in a file."""
        return {name: self.values, **{f"{name}_{part}": getattr(self, part) for part in self.PARTS}}

    @classmethod
    def of(cls, values: NDArray[Any], parts: Mapping[str, NDArray[Any]]) -> "Int4Weight":
        """Reads the arrays of a file. Raises ValueError for arrays that do not match."""
        step, low = (parts[part] for part in cls.PARTS)
        if values.dtype != np.uint8 or values.ndim != 2 or not values.shape[1]:
            raise ValueError("values must be uint8 (N, K / 2)")
        shape = (len(values), int(group_features(2 * values.shape[1])[-1]) + 1)
        if any(array.shape != shape or array.dtype != np.float16 for array in (step, low)):
            raise ValueError(f"steps and lowest values must be float16 {shape}")
        if not all(np.isfinite(array).all() for array in (step, low)):
            raise ValueError("a step or lowest value is not a finite number")
        return cls(values, step, low)


def group_features(features: int) -> NDArray[np.int64]:
    """Returns the group of each feature: as few groups as hold `_GROUP_SIZE` features each, of equal size. -> (K,)"""
    size = -(-features // -(-features // _GROUP_SIZE))
    return np.arange(features) // size
