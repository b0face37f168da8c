"""Concatenated sequences of token ids, and their grouping to batches. Uses only NumPy, for any engine.

B sequences · T tokens of all of them · N requested positions
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Int = NDArray[np.int64]
NOWHERE = np.zeros(0, np.int64)
VECTORS, STANDS = "vectors", "stands"
"""Of `Ids.extra`: a vector for each token (T, D), and for which tokens it stands (T,) bool."""


@dataclass(frozen=True)
class Ids:
    """B sequences, including special tokens. input_ids, token_type_ids (T,) int64: without padding; lengths (B,).

    positions (N,): the positions for a head over the vocabulary, as ascending rows of T. extra: arrays of T rows that a
    head reads in addition to the tokens, by name.
    """

    input_ids: Int
    token_type_ids: Int
    lengths: Int
    positions: Int = field(default_factory=lambda: NOWHERE)
    extra: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> "Ids":
        """Returns sequences of one segment each, from their token ids."""
        ids = np.concatenate([NOWHERE, *(np.asarray(one, np.int64) for one in sequences)])
        return cls(ids, np.zeros_like(ids), np.array([len(one) for one in sequences], np.int64))

    @classmethod
    def joined(cls, parts: "Sequence[Ids]") -> "Ids":
        """Returns the sequences of several, in order. All have the extra arrays of the first."""
        if len(parts) == 1:
            return parts[0]
        begins = np.cumsum([0, *(len(ids.input_ids) for ids in parts[:-1])])
        return cls(
            np.concatenate([ids.input_ids for ids in parts]),
            np.concatenate([ids.token_type_ids for ids in parts]),
            np.concatenate([ids.lengths for ids in parts]),
            np.concatenate([ids.positions + begin for ids, begin in zip(parts, begins, strict=True)]),
            {name: np.concatenate([ids.extra[name] for ids in parts]) for name in parts[0].extra},
        )

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def starts(self) -> Int:
        """The start of each sequence, and T. -> (B + 1,)"""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    def tokens(self, sequences: Int) -> Int:
        """Returns the rows of T of some sequences, in the given order."""
        return ranges(self.starts[sequences], self.starts[sequences + 1])

    def asked(self, sequences: Int) -> Int:
        """Returns the rows of N of some sequences, in the given order."""
        first, end = np.searchsorted(self.positions, (self.starts[sequences], self.starts[sequences + 1]))
        return ranges(first, end)

    def take(self, sequences: Int) -> "Ids":
        """Returns some of the sequences, in the given order."""
        tokens, asked, lengths = self.tokens(sequences), self.asked(sequences), self.lengths[sequences]
        counts = np.diff(np.searchsorted(self.positions, self.starts))[sequences]
        moved = np.repeat(np.cumsum(lengths) - lengths - self.starts[sequences], counts)
        return Ids(
            self.input_ids[tokens],
            self.token_type_ids[tokens],
            lengths,
            self.positions[asked] + moved,
            {name: array[tokens] for name, array in self.extra.items()},
        )


def ranges(starts: Int, stops: Int) -> Int:
    """Returns all of range(starts[0], stops[0]), range(starts[1], stops[1]) ... in one array."""
    lengths = stops - starts
    ends = np.cumsum(lengths)
    numbers: Int = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)
    return numbers


def spread(lengths: Int, counts: Int) -> tuple[Int, Int, Int]:
    """Returns where sequences of `lengths` tokens go when `counts` vectors follow each: the rows of the tokens, those
    of the vectors, and the new lengths."""
    whole = lengths + counts
    starts = np.cumsum(whole) - whole
    return ranges(starts, starts + lengths), ranges(starts + lengths, starts + whole), whole


def token_budget(lengths: ArrayLike, *, max_tokens: int, max_sequences: int | None = None) -> list[Int]:
    """Returns batches of sequences of similar length with at most `max_tokens` tokens when padded, count x longest.

    The longest sequences are first, so that a lack of memory shows at once. A sequence longer than the budget is a
    batch of its own. -> the sequence numbers of each batch; a pure function of the lengths.
    """
    lengths = np.asarray(lengths, np.int64)
    order = np.argsort(-lengths, kind="stable")
    batches = []
    start = 0
    while start < len(order):
        count = max(1, max_tokens // max(1, int(lengths[order[start]])))
        if max_sequences is not None:
            count = min(count, max_sequences)
        batches.append(order[start : start + count])
        start += count
    return batches
