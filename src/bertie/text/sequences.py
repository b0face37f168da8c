"""`Sequences`: token ids of many sequences, end to end. Uses only NumPy, for any engine.

E examples · W sequences (an example has several with windows) · T tokens of all of them · N requested positions
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Int = NDArray[np.int64]
Arrays = Mapping[str, NDArray[Any]]
NOWHERE = np.zeros(0, np.int64)
VECTORS, STANDS, UNSEEN = "vectors", "stands", "unseen"
"""Of `Sequences.extra`: a vector for each token (T, D), for which tokens it stands (T,) bool, and which of these
vectors the model does not see (T,) bool."""


@dataclass(frozen=True)
class Sequences:
    """W sequences of E examples, including special tokens, without padding.

    Attributes:
        input_ids: Token ids (T,), of any type of integer.
        token_type_ids: The segment of each token (T,).
        lengths: The number of tokens of each sequence (W,).
        positions: The tokens for which a head over the vocabulary is asked (N,), as ascending rows of T.
        extra: Arrays of T rows that a head reads in addition to the tokens, by name.
        owners: The example of each sequence (W,), ascending. None: each sequence is an example.
        too_long: The examples that are too long.
        cut: The examples whose question is truncated, whatever the handling of long texts.
        places: Arrays of T rows with the origin of tokens (words, characters), for tasks whose answer is in the text.
        labels: What is learned, by name; each objective or task documents its own.
        sample_ids: The numbers of the sequences in the order of the data (W,). None: 0, 1, 2 ...
        tabular: The numbers of other columns of the rows (W, D) float32; None where no column is read.
    """

    input_ids: NDArray[Any]
    token_type_ids: NDArray[Any]
    lengths: Int
    positions: Int = field(default_factory=lambda: NOWHERE)
    extra: Arrays = field(default_factory=dict)
    owners: Int | None = None
    too_long: Int = field(default_factory=lambda: NOWHERE)
    cut: Int = field(default_factory=lambda: NOWHERE)
    places: Arrays = field(default_factory=dict)
    labels: Arrays = field(default_factory=dict)
    sample_ids: Int | None = None
    tabular: NDArray[np.float32] | None = None

    def mean_of_windows(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns the mean over each example's windows. values (W, L) -> (E, L)"""
        if len(values) == self.examples:
            return values
        mean_EL: NDArray[np.float32] = np.add.reduceat(values * self.weight[:, None], self.windows[:-1])
        return mean_EL

    @classmethod
    def of(cls, ids: Sequence[Sequence[int] | Int], types: Sequence[Sequence[int]] | None = None) -> "Sequences":
        """Returns sequences from the token ids of each, and their segments, by default one."""
        ids_T = np.concatenate([NOWHERE, *(np.asarray(one, np.int64) for one in ids)])
        types_T = np.zeros_like(ids_T) if types is None else np.concatenate([NOWHERE, *map(np.array, types)])
        return cls(ids_T, types_T, np.array([len(one) for one in ids], np.int64))

    @classmethod
    def of_examples(
        cls,
        ids: Sequence[NDArray[np.int32]],
        types: Sequence[NDArray[np.uint8]],
        windows: Sequence[int],
        too_long: Sequence[int],
    ) -> "Sequences":
        """Returns examples from the ids and the segments of each sequence. windows: as the property."""
        return cls(
            np.concatenate([np.zeros(0, np.int32), *ids]),
            np.concatenate([np.zeros(0, np.uint8), *types]),
            np.array([len(one) for one in ids], np.int64),
            owners=np.repeat(np.arange(len(windows) - 1), np.diff(windows)),
            too_long=np.array(too_long, np.int64),
        )

    @classmethod
    def joined(cls, parts: "Sequence[Sequences]") -> "Sequences":
        """Returns what a model reads of several, in order. All have the extra arrays and labels of the first."""
        if len(parts) == 1:
            return parts[0]
        begins = np.cumsum([0, *(len(ids.input_ids) for ids in parts[:-1])])
        return cls(
            np.concatenate([ids.input_ids for ids in parts]),
            np.concatenate([ids.token_type_ids for ids in parts]),
            np.concatenate([ids.lengths for ids in parts]),
            np.concatenate([ids.positions + begin for ids, begin in zip(parts, begins, strict=True)]),
            {name: np.concatenate([ids.extra[name] for ids in parts]) for name in parts[0].extra},
            labels={name: np.concatenate([ids.labels[name] for ids in parts]) for name in parts[0].labels},
            sample_ids=np.concatenate([ids.numbers for ids in parts]),
        )

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def starts(self) -> Int:
        """The start of each sequence, and T. -> (W + 1,)"""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    @cached_property
    def sequence(self) -> Int:
        """The sequence of each token (T,)."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @cached_property
    def column(self) -> Int:
        """The position of each token in its sequence (T,)."""
        columns: Int = np.arange(len(self.input_ids)) - np.repeat(self.starts[:-1], self.lengths)
        return columns

    @property
    def numbers(self) -> Int:
        """The numbers of the sequences in the order of the data (W,)."""
        return np.arange(len(self)) if self.sample_ids is None else self.sample_ids

    @cached_property
    def example(self) -> Int:
        """The example of each sequence (W,)."""
        return np.arange(len(self)) if self.owners is None else self.owners

    @cached_property
    def windows(self) -> Int:
        """The first sequence of each example, and W. -> (E + 1,)"""
        return np.concatenate([[0], np.cumsum(np.bincount(self.example))])

    @property
    def examples(self) -> int:
        """The number of examples, E."""
        return len(self.windows) - 1

    @cached_property
    def weight(self) -> NDArray[np.float32]:
        """The weight of each sequence (W,). The weights of an example's windows sum to 1."""
        return (1 / np.diff(self.windows)[self.example]).astype(np.float32)

    @cached_property
    def tokens(self) -> Int:
        """The number of tokens of each example (E,). Tokens in several windows count in each."""
        tokens: Int = np.diff(self.starts[self.windows])
        return tokens

    def count(self, ids: Iterable[int]) -> Int:
        """Returns how many of each example's tokens (E,) are among `ids`. Tokens in several windows count in each."""
        before = np.concatenate([[0], np.cumsum(np.isin(self.input_ids, [*ids]))])
        counts: Int = np.diff(before[self.starts[self.windows]])
        return counts

    @cached_property
    def fits(self) -> NDArray[np.bool_]:
        """Whether each example (E,) fits into one sequence."""
        fits = np.ones(self.examples, np.bool_)
        fits[self.too_long] = False
        return fits

    def with_labels(self, **labels: NDArray[Any]) -> "Sequences":
        """Returns the same sequences with more labels."""
        return replace(self, labels={**self.labels, **labels})

    def without_vectors(self) -> tuple[Int, "Sequences"]:
        """Returns the tokens in whose place no feature vector stands: their rows of T, and the sequences of them."""
        if STANDS not in self.extra:
            return np.arange(len(self.input_ids)), self
        rows = np.flatnonzero(~self.extra[STANDS])
        lengths = np.bincount(self.sequence[rows], minlength=len(self))
        return rows, Sequences(self.input_ids[rows], self.token_type_ids[rows], lengths, sample_ids=self.sample_ids)

    def grouped(self, sizes: Sequence[int]) -> "Sequences":
        """Combines examples of one sequence each into examples with `sizes` sequences."""
        owners = np.repeat(np.arange(len(sizes)), sizes)
        return replace(self, owners=owners, too_long=np.unique(owners[self.too_long]))

    def without_last(self, tokens: int) -> "Sequences":
        """Returns the same without the last `tokens` tokens of each sequence."""
        rows = ranges(self.starts[:-1], self.starts[1:] - tokens)
        ids, types = self.input_ids[rows], self.token_type_ids[rows]
        return replace(self, input_ids=ids, token_type_ids=types, lengths=self.lengths - tokens)

    def part(self, start: int, stop: int) -> "Sequences":
        """Returns the examples from start to stop."""
        sequences = np.arange(self.windows[start], self.windows[stop])
        rows = slice(int(self.starts[self.windows[start]]), int(self.starts[self.windows[stop]]))
        long, cut = (of[(of >= start) & (of < stop)] - start for of in (self.too_long, self.cut))
        places = {name: array[rows] for name, array in self.places.items()}
        owners = self.example[sequences] - start
        return replace(self.take(sequences), owners=owners, too_long=long, cut=cut, places=places)

    def rows(self, sequences: Int) -> Int:
        """Returns the rows of T of some sequences, in the given order."""
        return ranges(self.starts[sequences], self.starts[sequences + 1])

    def position_rows(self, sequences: Int) -> Int:
        """Returns the rows of N of some sequences, in the given order."""
        first, end = np.searchsorted(self.positions, (self.starts[sequences], self.starts[sequences + 1]))
        return ranges(first, end)

    def take(self, sequences: Int) -> "Sequences":
        """Returns what an engine reads of some of the sequences, in the given order."""
        rows, head_rows, lengths = self.rows(sequences), self.position_rows(sequences), self.lengths[sequences]
        counts = np.diff(np.searchsorted(self.positions, self.starts))[sequences]
        moved = np.repeat(np.cumsum(lengths) - lengths - self.starts[sequences], counts)
        return Sequences(
            self.input_ids[rows],
            self.token_type_ids[rows],
            lengths,
            self.positions[head_rows] + moved,
            {name: array[rows] for name, array in self.extra.items()},
            tabular=None if self.tabular is None else self.tabular[sequences],
        )


def ranges(starts: Int, stops: Int) -> Int:
    """Returns all of range(starts[0], stops[0]), range(starts[1], stops[1]) ... in one array."""
    lengths = stops - starts
    ends = np.cumsum(lengths)
    numbers: Int = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)
    return numbers


def spread_positions(lengths: Int, counts: Int) -> tuple[Int, Int, Int]:
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
