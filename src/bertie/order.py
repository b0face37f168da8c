"""Deterministic data order: the sample at index i of epoch e is computed from the seed, without shuffling or state.

A run resumed at step n computes step n, and any number of workers or ranks has the same global batches. An epoch has
every sample once; a batch may extend over the boundary of two epochs.

Random numbers are a function, too: draw number n of sample i, in epoch e, under seed s. A sample's masks therefore do
not depend on its batch, on the number of workers, or on where a run was resumed. The mixer is splitmix64 (Steele, Lea,
Flood 2014, "Fast splittable pseudorandom number generators").
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertie.errors import NoRows

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


Int = NDArray[np.int64]

# Luby and Rackoff 1988 prove four rounds enough for large domains; small ones mix better with a few more.
FEISTEL_ROUNDS = 8


class Permutation:
    """A random permutation of range(n), of which each element is computed in O(1) time and memory.

    A Feistel network permutes the integers of the smallest sufficient number of bits. It is applied again to a result
    outside range(n) ("cycle walking": Black and Rogaway 2002, "Ciphers with arbitrary finite domains"), on average less
    than once.
    """

    def __init__(self, n: int, key_: int | U64) -> None:
        self.n = n
        bits = max(2, (n - 1).bit_length())
        self._left, self._right = np.uint64(bits // 2), np.uint64(bits - bits // 2)
        self._keys = key(np.asarray(key_, np.uint64), np.arange(FEISTEL_ROUNDS))

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, places: Int | int) -> Int:
        """Returns the elements at some indices. (...) integers in [0, n) -> (...) int64"""
        values = np.asarray(places).astype(np.uint64).ravel()
        outside = np.arange(values.size)
        while outside.size:
            values[outside] = self._pass(values[outside])
            outside = outside[values[outside] >= self.n]
        return values.astype(np.int64).reshape(np.shape(places))

    def _pass(self, x: U64) -> U64:
        low, high = self._right, self._left  # bits of each half; they swap every round, and back in an even number
        for round_key in self._keys:
            left, right = x >> low, x & ((np.uint64(1) << low) - np.uint64(1))
            left = left ^ (mix(right ^ round_key) >> (np.uint64(64) - high))
            x = (right << high) | left
            low, high = high, low
        return x


def permutation(n: int, key_: int | U64) -> Permutation:
    """Returns the permutation of range(n) for a key."""
    return Permutation(n, key_)


def number_samples(step: int, batch_size: int, *, rank: int = 0, world: int = 1, first: int = 0) -> Int:
    """Returns the numbers of the samples of step `step` (from 0) on one of `world` ranks; step 0 begins with `first`.

    Ranks have consecutive parts of the global batch, which may differ by one sample. -> (B,) int64
    """
    start = first + step * batch_size
    return np.arange(start + rank * batch_size // world, start + (rank + 1) * batch_size // world)


class Order:
    """The samples of each step.

    `size` is the number of samples of an epoch. Where epochs differ, `size` is a function from epoch to that number.
    The function repeats every `cycle` epochs and is called only as needed. Raises DataError when there are no samples.
    """

    def __init__(self, size: int | Callable[[int], int], seed: int, *, cycle: int = 1) -> None:
        self._size: Callable[[int], int] = size if callable(size) else lambda _: size
        self._cycle = cycle
        self._seed = seed
        if self._size(0) < 1:
            raise NoRows("The training data is empty. Check the corpus with: bertie corpus FOLDER --show")

    def sample_ids(self, step: int, batch_size: int, *, rank: int = 0, world: int = 1) -> Int:
        """Returns the samples of step `step` (from 0) on one of `world` ranks. -> (B,) int64, B the rank's part"""
        return self.samples(step, batch_size, rank=rank, world=world)[1]

    def samples(self, step: int, batch_size: int, *, rank: int = 0, world: int = 1) -> tuple[Int, Int]:
        """Returns the same with the epoch of each sample: (epochs (B,), sample ids (B,))."""
        return self.at(number_samples(step, batch_size, rank=rank, world=world))

    def at(self, places: Int) -> tuple[Int, Int]:
        """Returns the samples at some indices of the whole run. places (N,) in any order -> epochs (N,), sample ids
        (N,)"""
        epochs, ids = np.zeros_like(places), np.zeros_like(places)
        left = np.ones(len(places), bool)
        while left.any():
            epoch, first = self.epoch_at(int(places[left].min()))
            size = self._size(epoch % self._cycle)
            here = left & (places < first + size)
            ids[here] = permutation(size, key(self._seed, epoch))[places[here] - first]
            epochs[here] = epoch
            left &= ~here
        return epochs, ids

    def epoch_at(self, place: int) -> tuple[int, int]:
        """Returns the epoch of sample number `place` of the whole run, and the number of that epoch's first sample."""
        first = 0
        for epoch in range(self._cycle):
            if place < first + self._size(epoch):
                return epoch, first
            first += self._size(epoch)
        cycles, rest = divmod(place, first)  # `first` is now the length of a whole cycle
        epoch, within = self.epoch_at(rest)
        return cycles * self._cycle + epoch, cycles * first + within


def taken(sizes: Sequence[int], *, exponent: float = 1.0, cap: int | None = None) -> list[int]:
    """Returns how many examples of each task an epoch has: in proportion to min(size, cap) to a power.

    An epoch has as many as the tasks have together, each counted up to the cap. An exponent of 1 / T is T5's
    temperature T. Raffel et al. 2020, 3.5.2; Liu et al. 2019 (MT-DNN) with an exponent of 1.
    """
    counted = np.array([min(size, cap or size) for size in sizes], np.float64)
    rates = counted**exponent
    return [max(1, round(count)) for count in counted.sum() * rates / rates.sum()]


def balanced(labels: Sequence[Hashable], seed: int) -> "MixedOrder":
    """Returns an order with equally many examples of each label in an epoch, which has about as many as there are."""
    numbers: dict[Hashable, list[int]] = {}
    for i, label in enumerate(labels):
        numbers.setdefault(label, []).append(i)
    sizes = [len(some) for some in numbers.values()]
    return MixedOrder(sizes, taken(sizes, exponent=0), seed, np.concatenate([*numbers.values()]).astype(np.int64))


class MixedOrder:
    """The examples of each step, of tasks whose examples follow one another. As `Order`, it has no state.

    sizes: examples of each task; taken: of each in an epoch. A task with fewer examples repeats, with more it continues
    in the next epoch. rows: the number of each example, where those of a task do not follow one another.
    """

    def __init__(self, sizes: Sequence[int], taken: Sequence[int], seed: int, rows: Int | None = None) -> None:
        self.sizes, self.seed, self.rows = np.array(sizes), seed, rows
        self.taken, self.starts = np.array(taken), np.cumsum([0, *sizes])
        self._bounds = np.cumsum([0, *taken])
        self._places = Order(int(self._bounds[-1]), seed)

    def sample_ids(self, step: int, batch_size: int, *, rank: int = 0, world: int = 1) -> Int:
        """Returns the examples of step `step` (from 0) on one of `world` ranks. -> (B,) int64"""
        epoch_B, place_B = self._places.samples(step, batch_size, rank=rank, world=world)
        task_B = np.searchsorted(self._bounds, place_B, "right") - 1
        number_B = epoch_B * self.taken[task_B] + place_B - self._bounds[task_B]  # of all of this task in the run
        turn_B, within_B = np.divmod(number_B, self.sizes[task_B])
        ids_B = np.zeros_like(place_B)
        for task, turn in {*zip(task_B.tolist(), turn_B.tolist(), strict=True)}:
            here = (task_B == task) & (turn_B == turn)
            order = permutation(int(self.sizes[task]), key(self.seed, task + 1, turn))
            ids_B[here] = self.starts[task] + order[within_B[here]]
        return ids_B if self.rows is None else self.rows[ids_B]
