"""Encoded examples, and the batches of any step, computed from (seed, step).

    texts -> ids -> tokens that fit the model -> Encoded -> Batch

E examples · W sequences (an example has several with windows) · T tokens
"""

import copy
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xxhash
from numpy.typing import NDArray

from bertie.data.ids import NOWHERE, STANDS, VECTORS, Ids, Int, ranges, spread
from bertie.data.mixed import MixedOrder
from bertie.data.order import Order
from bertie.data.tables import Example
from bertie.errors import DataError
from bertie.text.encoding import longest_first
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TooLong

if TYPE_CHECKING:
    from bertie.data.batch import Batch

Arrays = Mapping[str, NDArray[Any]]
ASKED = "asked"  # of `Encoded.places`: the tokens for which a head over the vocabulary is asked


@dataclass(frozen=True)
class Targets:
    """The targets by their names in `Batch.labels`.

    sequence: arrays of W rows; token: arrays of T rows.
    """

    sequence: Arrays = field(default_factory=dict)
    token: Arrays = field(default_factory=dict)


@dataclass(frozen=True)
class Encoded:
    """E examples as token ids, concatenated.

    Attributes:
        ids: Token ids (T,) int32.
        types: The segment of each token (T,) uint8.
        starts: The start of each sequence, and the end (W + 1,).
        windows: The first sequence of each example, and the end (E + 1,).
        too_long: The examples that are too long.
        places: Arrays of T rows with the origin of tokens (words, characters), for tasks whose answer is in the text.
        extra: Arrays of T rows that the head needs in addition to the tokens (`Ids.extra`).
        cut: The examples whose question is truncated, whatever the handling of long texts.
    """

    ids: NDArray[np.int32]
    types: NDArray[np.uint8]
    starts: Int
    windows: Int
    too_long: Int
    places: Arrays = field(default_factory=dict)
    extra: Arrays = field(default_factory=dict)
    cut: Int = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def of(
        cls,
        ids: Sequence[NDArray[np.int32]],
        types: Sequence[NDArray[np.uint8]],
        windows: Sequence[int],
        too_long: Sequence[int],
        places: Arrays | None = None,
    ) -> "Encoded":
        """Returns examples from the ids and the segments of each sequence."""
        return cls(
            np.concatenate([np.zeros(0, np.int32), *ids]),
            np.concatenate([np.zeros(0, np.uint8), *types]),
            np.cumsum([0, *map(len, ids)], dtype=np.int64),
            np.array(windows, np.int64),
            np.array(too_long, np.int64),
            places or {},
        )

    def __len__(self) -> int:
        return len(self.windows) - 1

    @cached_property
    def lengths(self) -> Int:
        """The number of tokens of each sequence (W,)."""
        lengths: Int = np.diff(self.starts)
        return lengths

    @cached_property
    def example(self) -> Int:
        """The example of each sequence (W,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.windows))

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
        before = np.concatenate([[0], np.cumsum(np.isin(self.ids, [*ids]))])
        counts: Int = np.diff(before[self.starts[self.windows]])
        return counts

    @cached_property
    def fits(self) -> NDArray[np.bool_]:
        """Whether each example (E,) fits into one sequence."""
        fits = np.ones(len(self), np.bool_)
        fits[self.too_long] = False
        return fits

    def grouped(self, sizes: Sequence[int]) -> "Encoded":
        """Combines examples of one sequence each into examples with `sizes` sequences."""
        windows = np.cumsum([0, *sizes], dtype=np.int64)
        return replace(self, windows=windows, too_long=np.unique(np.searchsorted(windows, self.too_long, "right") - 1))

    def without_last(self, tokens: int) -> "Encoded":
        """Returns the same without the last `tokens` tokens of each sequence."""
        kept = ranges(self.starts[:-1], self.starts[1:] - tokens)
        starts = np.cumsum([0, *(self.lengths - tokens)], dtype=np.int64)
        return replace(self, ids=self.ids[kept], types=self.types[kept], starts=starts)

    def part(self, start: int, stop: int) -> "Encoded":
        """Returns the examples from start to stop."""
        windows = self.windows[start : stop + 1]
        first, last = int(windows[0]), int(windows[-1])
        tokens = slice(int(self.starts[first]), int(self.starts[last]))
        long, cut = (of[(of >= start) & (of < stop)] - start for of in (self.too_long, self.cut))
        return Encoded(
            self.ids[tokens],
            self.types[tokens],
            self.starts[first : last + 1] - tokens.start,
            windows - first,
            long,
            {name: array[tokens] for name, array in self.places.items()},
            {name: array[tokens] for name, array in self.extra.items()},
            cut,
        )

    def packed(self, sequences: Int | None = None) -> Ids:
        """Returns the sequences in the given order, or all of them, as input of an engine."""
        chosen = np.arange(len(self.lengths)) if sequences is None else sequences
        tokens = ranges(self.starts[chosen], self.starts[chosen + 1])
        ids, types = self.ids[tokens].astype(np.int64), self.types[tokens].astype(np.int64)
        extra = {name: array[tokens] for name, array in self.extra.items()}
        asked = np.flatnonzero(self.places[ASKED][tokens]) if ASKED in self.places else NOWHERE
        return Ids(ids, types, self.lengths[chosen], asked, extra)

    def batch(self, sequences: Int, targets: Targets = Targets()) -> "Batch":
        """Returns the packed batch of sequences in the given order. Its sample_ids are the numbers of their
        examples."""
        import torch

        from bertie.data.collate import batch_of

        tokens = ranges(self.starts[sequences], self.starts[sequences + 1])
        labels = {name: array[sequences] for name, array in targets.sequence.items()}
        labels |= {name: array[tokens] for name, array in targets.token.items()}
        batch = batch_of(self.packed(sequences), self.example[sequences])
        return batch.with_labels(**{name: torch.from_numpy(label) for name, label in labels.items()})


def encode(
    examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int, too_long: TooLong = "truncate"
) -> Encoded:
    """Returns token ids of examples, including special tokens, not longer than `max_length`.

    "truncate" cuts long examples, and "window" makes several sequences. Under "error", long examples are cut too, and
    the caller, who knows their origin, refuses those in `too_long`.
    """
    encoded = encode_ids(ids_of(examples, tokenizer), tokenizer, max_length=max_length, too_long=too_long)
    if all(example.vectors is None for example in examples):
        return encoded
    return with_vectors(encoded, [example.vectors for example in examples], tokenizer.special_id("pad") or 0)


def with_vectors(encoded: Encoded, vectors: Sequence[NDArray[np.float32] | None], pad_id: int) -> Encoded:
    """Returns examples whose feature vectors follow the tokens of each of their sequences. pad_id: the id in their
    places.

    Raises DataError for vectors of different sizes.
    """
    sizes = {one.shape[1] for one in vectors if one is not None}
    if len(sizes) > 1:
        raise DataError(f"Feature vectors have different sizes: {', '.join(map(str, sorted(sizes)[:5]))} numbers.")
    none = np.zeros((0, sizes.pop()), np.float32)
    each = [none if one is None else one for one in vectors]
    counts_E = np.array([len(one) for one in each], np.int64)
    token_rows, vector_rows, lengths_W = spread(encoded.lengths, counts_E[encoded.example])
    total = int(lengths_W.sum())
    ids, types = np.full(total, pad_id, np.int32), np.zeros(total, np.uint8)
    ids[token_rows], types[token_rows] = encoded.ids, encoded.types
    vectors_TD, stands_T = np.zeros((total, none.shape[1]), np.float32), np.zeros(total, np.bool_)
    vectors_TD[vector_rows] = np.concatenate([none, *(each[example] for example in encoded.example.tolist())])
    stands_T[vector_rows] = True
    starts = np.cumsum([0, *lengths_W], dtype=np.int64)
    extra = {VECTORS: vectors_TD, STANDS: stands_T}
    return replace(encoded, ids=ids, types=types, starts=starts, extra=extra)


def encode_ids(
    examples: Iterable[Sequence[Sequence[int]]],
    tokenizer: Tokenizer,
    *,
    max_length: int,
    too_long: TooLong = "truncate",
    keep: Literal["start", "end"] = "start",
) -> Encoded:
    """`encode` of examples whose one or two texts are token ids already, without special tokens.

    keep: which end of a text is left when it is cut.
    """
    ids: list[NDArray[np.int32]] = []
    types: list[NDArray[np.uint8]] = []
    windows, long = [0], []
    for number, segments in enumerate(examples):
        sizes = [len(segment) for segment in segments]
        frame = tokenizer.frames[len(segments) - 1]
        if sum(sizes) + frame.size > max_length:
            long.append(number)
        for parts in pieces(sizes, max_length=max_length, special=frame.size, windows=too_long == "window"):
            if keep == "end" and too_long != "window":
                parts = tuple(slice(n - part.stop, n) for n, part in zip(sizes, parts, strict=True))
            chosen = [segment[part] for segment, part in zip(segments, parts, strict=True)]
            ids.append(np.array(frame.ids(chosen), np.int32))
            types.append(np.array(frame.types([len(segment) for segment in chosen]), np.uint8))
        windows.append(len(ids))
    return Encoded.of(ids, types, windows, long)


def ids_of(examples: Sequence[Example], tokenizer: Tokenizer) -> Iterator[list[list[int]]]:
    """Returns the token ids of each example's one or two texts."""
    for start in range(0, len(examples), 1000):
        chunk = examples[start : start + 1000]
        ids = iter(tokenizer.ids([text for example in chunk for text in example.texts]))
        yield from (list(itertools.islice(ids, len(example.texts))) for example in chunk)


def pieces(
    sizes: Sequence[int], *, max_length: int, special: int | None = None, windows: bool = False
) -> list[tuple[slice, ...]]:
    """Returns which tokens of an example's one or two segments are in each sequence of at most `max_length` tokens.

    sizes: tokens of each segment; special: the number of special tokens, by default BERT's. Truncation removes tokens
    from the end of the longer segment, as `_truncate_seq_pair` of google-research/bert. Windows move over the longer
    segment, share a quarter with the next one, and the last one ends where the text ends. The shorter segment is in
    every window, in at most half of it.
    """
    room = max_length - (1 + len(sizes) if special is None else special)  # [CLS], and [SEP] after each segment
    if sum(sizes) <= room:
        return [tuple(slice(0, size) for size in sizes)]
    if not windows:
        kept = longest_first(sizes[0], sizes[1], room) if len(sizes) == 2 else (room,)
        return [tuple(slice(0, size) for size in kept)]
    long = max(range(len(sizes)), key=sizes.__getitem__)
    short = min(min(sizes), room // 2) if len(sizes) == 2 else 0
    size = room - short
    stride = max(1, size - size // 4)
    starts = [*range(0, sizes[long] - size, stride), sizes[long] - size]
    return [
        tuple(slice(start, start + size) if i == long else slice(0, short) for i in range(len(sizes)))
        for start in starts
    ]


class TaskSource:
    """The batches for `fit`: `batch_size` examples per step, in an order that is a function of seed and epoch.

    The examples of a step are sorted by length and split into micro-batches, so that there is little padding.
    """

    def __init__(
        self,
        encoded: Encoded,
        targets: Targets,
        *,
        batch_size: int,
        micro_batch_size: int | None,
        seed: int,
        order: MixedOrder | None = None,
    ) -> None:
        self.encoded = encoded
        self.targets = targets
        self.batch_size = batch_size
        self.micro_batch_size = micro_batch_size or batch_size
        self.order = order or Order(len(encoded), seed)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with the examples, their labels, the tokenizer and the handling of long texts."""
        digest = xxhash.xxh3_128()
        encoded, targets = self.encoded, self.targets
        vectors = {name: array for name, array in encoded.extra.items() if name == VECTORS}
        told = {**targets.sequence, **targets.token, **vectors}
        for array in (encoded.ids, encoded.types, encoded.starts, encoded.windows, *told.values()):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def with_computed(self, token: Arrays) -> "TaskSource":
        """Returns the same batches with more arrays of T rows, which are not part of the fingerprint."""
        source = copy.copy(self)
        source.__dict__["fingerprint"] = self.fingerprint
        source.targets = Targets(self.targets.sequence, {**self.targets.token, **token})
        return source

    def batches(self, step: int, *, rank: int = 0, world: int = 1) -> "list[Batch]":
        """Returns the micro-batches of step `step` (from 0) on one of `world` ranks."""
        ids = self.order.sample_ids(step, self.batch_size, rank=rank, world=world)
        first, end = self.encoded.windows[ids], self.encoded.windows[ids + 1]
        by_length = np.argsort(self.encoded.starts[end] - self.encoded.starts[first], kind="stable")
        # of equal size: a last one of few texts would have nothing to compare them with
        parts = np.array_split(by_length, -(-len(ids) // self.micro_batch_size)) if len(ids) else []
        return [self.encoded.batch(ranges(first[part], end[part]), self.targets) for part in parts]


def steps_of(examples: int, *, batch_size: int, epochs: float) -> int:
    """Returns the number of optimizer steps of `epochs` passes over the examples."""
    return max(1, round(epochs * examples / batch_size))
