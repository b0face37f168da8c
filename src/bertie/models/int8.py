"""`Int8Weight`: a matrix with one byte per number, as it is stored in a model folder. Uses only NumPy.

    w[n, k] = scale[group[k], n] values[n, k] inv[k]

Input features form groups with their own scales, so that a few large features do not reduce the precision of the
others. An integer product reads rows x inv + off: the smoothing and the shift of each input feature, which calibration
computes (compression/quantize.py). In a file, the weight's public name has the values. Names that end in `_scale`,
`_group`, `_inv` and `_off` have the rest. A format of packed weights is one class and one row of `FORMATS`.

N output features · K input features · G groups
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bertie.models.int4 import Int4Weight

Floats = NDArray[np.float32]
Int = NDArray[np.int64]
MOST_GROUPS = 4  # of input features
_MAX_FACTOR = 1e6  # of a scale, factor or offset: products of them stay finite


@dataclass(frozen=True)
class Int8Weight:
    """values (N, K) int8, scale (G, N) float32, group (K,) uint8, inv and off (K,) float32."""

    values: NDArray[np.int8]
    scale: Floats
    group: NDArray[np.uint8]
    inv: Floats
    off: Floats

    PARTS: ClassVar = ("scale", "group", "inv", "off")
    BITS: ClassVar = 8

    @classmethod
    def shape(cls, stored: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of the matrix from that of the values in a file."""
        return stored

    @classmethod
    def rows(cls, weight: Floats) -> "Int8Weight":
        """Quantizes a lookup table, such as word embeddings: each row to the nearest of its 255 values."""
        values, scale = nearest_rows(weight)
        features = weight.shape[1]
        ones, zeros = np.ones(features, np.float32), np.zeros(features, np.float32)
        return cls(values, scale[None], np.zeros(features, np.uint8), ones, zeros)

    def dequantized(self) -> Floats:
        """Returns the matrix in float32."""
        floats: Floats = (self.values * self.scale[self.group].T * self.inv).astype(np.float32)
        return floats

    def shifted(self) -> Floats:
        """Returns the contribution of the shift to each output, which is part of the bias. -> (N,)"""
        offsets: Floats = ((self.values * self.scale[self.group].T) @ self.off).astype(np.float32)
        return offsets

    def parts(self, count: int) -> "list[Int8Weight]":
        """Combines matrices that are fused here and separate in the Hugging Face format."""
        pairs = zip(np.split(self.values, count), np.split(self.scale, count, axis=1), strict=True)
        return [Int8Weight(values, scale, self.group, self.inv, self.off) for values, scale in pairs]

    @classmethod
    def fused(cls, parts: "Sequence[Int8Weight]") -> "Int8Weight":
        """Returns one matrix of several that read the same rows. Raises ValueError for those that do not."""
        if any(not np.array_equal(getattr(p, name), getattr(parts[0], name)) for p in parts for name in cls.PARTS[1:]):
            raise ValueError("matrices that are fused have the same groups, factors and offsets")
        values, scale = np.concatenate([p.values for p in parts]), np.concatenate([p.scale for p in parts], 1)
        return cls(values, scale, parts[0].group, parts[0].inv, parts[0].off)

    def within(self, most: int) -> "Int8Weight":
        """Returns the matrix with sums of weights that are added together (`added_together`) bounded by `most`.

        A row of a group that makes more is rounded once more, in wider steps.
        """
        values, scale = self.values.copy(), self.scale.copy()
        for group, sets in enumerate(added_together(self.group)):
            factor = excess(self.values[:, sets], most)
            wide = factor > 1
            own = np.ix_(wide, sets.ravel())
            values[own] = np.round(values[own] / factor[wide, None]).astype(np.int8)
            scale[group, wide] *= factor[wide]
        return Int8Weight(values, scale, self.group, self.inv, self.off)

    def named(self, name: str) -> dict[str, NDArray[Any]]:
        """Returns the arrays by their names in a file."""
        return {name: self.values, **{f"{name}_{part}": getattr(self, part) for part in self.PARTS}}

    @classmethod
    def of(cls, values: NDArray[Any], parts: Mapping[str, NDArray[Any]]) -> "Int8Weight":
        """Reads the arrays of a file. Raises ValueError for arrays that do not match."""
        scale, group, inv, off = (parts[part] for part in cls.PARTS)
        if values.dtype != np.int8 or values.ndim != 2 or scale.ndim != 2 or scale.shape[1] != len(values):
            raise ValueError("values must be int8 (N, K), and scales (G, N)")
        if any(array.shape != values.shape[1:] for array in (group, inv, off)) or group.dtype.kind not in "ui":
            raise ValueError("each of the K input features must have a group, a factor and an offset")
        if not all(array.dtype.kind == "f" and np.isfinite(array).all() for array in (scale, inv, off)):
            raise ValueError("a scale, factor or offset is not a finite number")
        if not all(np.abs(array.astype(np.float64)).max(initial=0) < _MAX_FACTOR for array in (scale, inv, off)):
            raise ValueError(f"a scale, factor or offset is {_MAX_FACTOR:g} or more")
        sizes = np.bincount(group, minlength=len(scale)) if group.min(initial=0) >= 0 else np.zeros(1)
        if len(sizes) > min(len(scale), MOST_GROUPS) or not sizes.all() or (len(sizes) > 1 and (sizes % 16).any()):
            raise ValueError(f"the input features fall into 1 to {MOST_GROUPS} groups of a multiple of 16 each")
        return cls(
            values, scale.astype(np.float32), group.astype(np.uint8), inv.astype(np.float32), off.astype(np.float32)
        )


def nearest_rows(rows: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Returns int8 rows and their scales: the largest number of a row becomes 127. (N, K) -> (N, K), (N,)"""
    scale = (np.abs(rows).max(1, initial=0) / np.float32(127)).astype(np.float32)
    scale[scale == 0] = 1
    return np.rint(rows / scale[:, None]).astype(np.int8), scale


def added_together(group: NDArray[np.generic]) -> list[Int]:
    """For each group of input features, those whose products AVX2 adds up in 16 bits. group (K,) -> (sets, 4) each

    The features of a group lie side by side. Two neighbors are added, and the same two of the next four.
    """
    features = [np.flatnonzero(group == number) for number in range(int(group.max(initial=0)) + 1)]
    return [own.reshape(-1, 2, 2, 2).swapaxes(1, 2).reshape(-1, 4) for own in features]


def excess(values: NDArray[np.generic], most: int) -> Floats:
    """Returns the factor of each row's steps that keeps sets in bounds. values (N, sets, n) -> (N,), 1 or more"""
    sums = np.maximum(np.maximum(values, 0).sum(2, dtype=np.int64), -np.minimum(values, 0).sum(2, dtype=np.int64))
    factors: Floats = np.maximum(sums.max(1, initial=0) / (most - values.shape[2] / 2), 1).astype(np.float32)
    factors[sums.max(1, initial=0) <= most] = 1
    return factors


INT8 = "bertie-int8"
PackedWeight = Int8Weight | Int4Weight
FORMATS: dict[str, type[Int8Weight] | type[Int4Weight]] = {INT8: Int8Weight, "bertie-int4": Int4Weight}
"""By the quant_method in config.json's quantization_config."""


def find_weight_format(name: str, names: Container[str]) -> type[Int8Weight] | type[Int4Weight] | None:
    """Returns the format of a stored weight, by the names of the arrays beside it; None: a float weight."""
    return next((one for one in FORMATS.values() if f"{name}_{one.PARTS[0]}" in names), None)


def fused(parts: Sequence[PackedWeight]) -> PackedWeight:
    """Returns one matrix of several that read the same rows. Raises ValueError for those that do not match."""
    kind = type(parts[0])
    if any(type(part) is not kind for part in parts):
        raise ValueError("matrices that are fused have the same format")
    weight: PackedWeight = kind.fused(parts)  # type: ignore[arg-type]
    return weight


def quantization(weights: Iterable[PackedWeight]) -> dict[str, object]:
    """Returns the quantization_config of a folder with these weights: that of the smallest format among them."""
    kinds = {type(weight) for weight in weights}
    method, kind = min(((name, one) for name, one in FORMATS.items() if one in kinds), key=lambda row: row[1].BITS)
    return {"quant_method": method, "bits": kind.BITS}
