"""Sequences of token ids end to end, and which of them make a batch. NumPy alone, so that any engine can read them.

B sequences · T tokens of all of them · N places that are asked
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Int = NDArray[np.int64]
NOWHERE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Ids:
    """B sequences, special tokens included. input_ids, token_type_ids (T,) int64: without padding; lengths (B,).

    places (N,): the tokens, as rows of T in ascending order, where a head over the vocabulary is asked. extra: arrays
    of T rows that a head reads with the tokens, by the names the head knows.
    """

    input_ids: Int
    token_type_ids: Int
    lengths: Int
    places: Int = field(default_factory=lambda: NOWHERE)
    extra: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def starts(self) -> Int:
        """(B + 1,) where each sequence begins, and T."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    def tokens(self, sequences: Int) -> Int:
        """The rows of T that some sequences have, in the order given."""
        return ranges(self.starts[sequences], self.starts[sequences + 1])

    def asked(self, sequences: Int) -> Int:
        """The rows of N that stand in some sequences, in the order given."""
        first, end = np.searchsorted(self.places, (self.starts[sequences], self.starts[sequences + 1]))
        return ranges(first, end)

    def take(self, sequences: Int) -> "Ids":
        """Some of the sequences, in the order given."""
        tokens, asked, lengths = self.tokens(sequences), self.asked(sequences), self.lengths[sequences]
        counts = np.diff(np.searchsorted(self.places, self.starts))[sequences]
        moved = np.repeat(np.cumsum(lengths) - lengths - self.starts[sequences], counts)
        return Ids(
            self.input_ids[tokens],
            self.token_type_ids[tokens],
            lengths,
            self.places[asked] + moved,
            {name: array[tokens] for name, array in self.extra.items()},
        )


def ranges(starts: Int, stops: Int) -> Int:
    """All of range(starts[0], stops[0]), range(starts[1], stops[1]) ... in one array."""
    lengths = stops - starts
    ends = np.cumsum(lengths)
    numbers: Int = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)
    return numbers


def token_budget(lengths: ArrayLike, *, max_tokens: int, max_sequences: int | None = None) -> list[Int]:
    """Batches of sequences of like length whose rectangle, count x longest, holds at most `max_tokens` tokens.

    Longest first, so that memory runs out at once or never. A sequence longer than the budget stands alone. Returns
    the sequence numbers of each batch; a pure function of the lengths.
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
