"""Random numbers as a function: draw number n of sample i, in epoch e, under seed s, is computed without state.

A sample's masks therefore do not depend on its batch, on the number of workers, or on where a run was resumed. The
mixer is splitmix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators").
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]


def mix(x: U64) -> U64:
    """splitmix64's finalizer: spreads every input bit over all output bits. (...) uint64 -> (...) uint64"""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def key(*parts: int | NDArray[np.integer]) -> U64:
    """Returns one 64-bit key from integers or integer arrays, which broadcast. Order matters: key(1, 2) != key(2,
    1)."""
    state = np.zeros((), np.uint64)
    for part in parts:
        state = mix(state ^ np.asarray(part).astype(np.uint64))
    return np.asarray(state)


def unit_floats(bits: U64) -> NDArray[np.float64]:
    """Returns random bits as floats in [0, 1). (...) -> (...)"""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class Draws:
    """Random numbers for a batch of B samples. keys (B,) uint64, usually key(seed, epoch, sample_ids)."""

    keys: U64

    @classmethod
    def of(cls, *parts: int | NDArray[np.integer]) -> "Draws":
        """Returns the draws under the key of some integers or arrays: seed, epoch, samples."""
        return cls(key(*parts))

    def bits(self, stream: int, n: int) -> U64:
        """Returns (B, n) random 64-bit integers. Each use of randomness has its own `stream`, so that draws are
        independent."""
        return mix(key(self.keys, stream)[:, None] ^ mix(np.arange(n, dtype=np.uint64)))

    def bits_at(self, stream: int, rows: NDArray[np.integer], columns: NDArray[np.integer]) -> U64:
        """Returns some cells of `bits`, for batches of uneven rows. rows, columns (N,) -> (N,)"""
        return mix(key(self.keys, stream)[rows] ^ mix(columns.astype(np.uint64)))

    def uniform(self, stream: int, n: int) -> NDArray[np.float64]:
        """Returns (B, n) floats in [0, 1)."""
        return unit_floats(self.bits(stream, n))

    def integers(self, stream: int, n: int, high: int) -> NDArray[np.int64]:
        """Returns (B, n) integers in [0, high). The bias is below high / 2**53."""
        return (self.uniform(stream, n) * high).astype(np.int64)
