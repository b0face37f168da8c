"""Sequences examples, and the batches of any step, computed from (seed, step).

    texts -> ids -> tokens that fit the model -> Sequences -> Batch

E examples · W sequences (an example has several with windows) · T tokens
"""

import copy
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import xxhash
from numpy.typing import NDArray

from bertie.errors import DataError
from bertie.io.tables import Example
from bertie.order import MixedOrder, Order
from bertie.text.encoding import Frame, longest_first
from bertie.text.sequences import STANDS, VECTORS, Arrays, Int, Sequences, ranges, spread_positions
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TooLong

if TYPE_CHECKING:
    from bertie.models.batch import Batch


_FEW = 16  # examples up to which they are encoded one by one


@dataclass(frozen=True)
class Targets:
    """The targets by their names in `Batch.labels`.

    sequence: arrays of W rows; token: arrays of T rows.
    """

    sequence: Arrays = field(default_factory=dict)
    token: Arrays = field(default_factory=dict)


def batch_of_examples(sequences: Sequences, chosen: Int, targets: Targets = Targets()) -> "Batch":
    """Returns the packed batch of sequences in the given order. Its sample_ids are the numbers of their examples."""
    from bertie.models.batch import Batch

    rows = sequences.rows(chosen)
    labels = {name: array[chosen] for name, array in targets.sequence.items()}
    labels |= {name: array[rows] for name, array in targets.token.items()}
    return Batch.of(replace(sequences.take(chosen), labels=labels, sample_ids=sequences.example[chosen]))


def encode_examples(
    examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int, too_long: TooLong = "truncate"
) -> Sequences:
    """Returns token ids of examples, including special tokens, not longer than `max_length`.

    "truncate" cuts long examples, and "window" makes several sequences. Under "error", long examples are cut too, and
    the caller, who knows their origin, refuses those in `too_long`.
    """
    encoded = encode_ids(list_token_ids(examples, tokenizer), tokenizer, max_length=max_length, too_long=too_long)
    if all(example.vectors is None for example in examples):
        return encoded
    return with_vectors(encoded, [example.vectors for example in examples], tokenizer.special_id("pad") or 0)


def with_vectors(encoded: Sequences, vectors: Sequence[NDArray[np.float32] | None], pad_id: int) -> Sequences:
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
    token_rows, vector_rows, lengths_W = spread_positions(encoded.lengths, counts_E[encoded.example])
    total = int(lengths_W.sum())
    ids, types = np.full(total, pad_id, np.int32), np.zeros(total, np.uint8)
    ids[token_rows], types[token_rows] = encoded.input_ids, encoded.token_type_ids
    vectors_TD, stands_T = np.zeros((total, none.shape[1]), np.float32), np.zeros(total, np.bool_)
    vectors_TD[vector_rows] = np.concatenate([none, *(each[example] for example in encoded.example.tolist())])
    stands_T[vector_rows] = True
    extra = {VECTORS: vectors_TD, STANDS: stands_T}
    return replace(encoded, input_ids=ids, token_type_ids=types, lengths=lengths_W, extra=extra)


def encode_ids(
    examples: Iterable[Sequence[Sequence[int]]],
    tokenizer: Tokenizer,
    *,
    max_length: int,
    too_long: TooLong = "truncate",
    keep: Literal["start", "end"] = "start",
) -> Sequences:
    """`encode_examples` of examples whose one or two texts are token ids already, without special tokens.

    keep: which end of a text is left when it is cut.
    """
    segments = [*map(list, examples)]
    encode = encode_one_by_one if len(segments) < _FEW else encode_together
    return encode(segments, tokenizer, max_length=max_length, too_long=too_long, keep=keep)


def encode_one_by_one(
    examples: Sequence[Sequence[Sequence[int]]],
    tokenizer: Tokenizer,
    *,
    max_length: int,
    too_long: TooLong,
    keep: Literal["start", "end"],
) -> Sequences:
    """`encode_ids`, the quickest for few examples: 15 us for one, and 7 us each."""
    ids: list[NDArray[np.int32]] = []
    types: list[NDArray[np.uint8]] = []
    windows, long = [0], []
    for number, segments in enumerate(examples):
        sizes = [len(segment) for segment in segments]
        frame = tokenizer.frames[len(segments) - 1]
        if sum(sizes) + frame.size > max_length:
            long.append(number)
        for parts in assign_pieces(sizes, max_length=max_length, special=frame.size, windows=too_long == "window"):
            if keep == "end" and too_long != "window":
                parts = tuple(slice(n - part.stop, n) for n, part in zip(sizes, parts, strict=True))
            chosen = [segment[part] for segment, part in zip(segments, parts, strict=True)]
            ids.append(np.array(frame.ids(chosen), np.int32))
            types.append(np.array(frame.types([len(segment) for segment in chosen]), np.uint8))
        windows.append(len(ids))
    return Sequences.of_examples(ids, types, windows, long)


def encode_together(
    examples: Sequence[Sequence[Sequence[int]]],
    tokenizer: Tokenizer,
    *,
    max_length: int,
    too_long: TooLong,
    keep: Literal["start", "end"],
) -> Sequences:
    """`encode_ids`, the quickest for many examples: 100 us for one, and 1 to 2 us each."""
    texts = [*itertools.chain.from_iterable(examples)]
    sizes_S, count_E = (np.array([*map(len, of)], np.int64) for of in (texts, examples))
    first_E = np.cumsum(count_E) - count_E  # an example's first text
    room_E = max_length - np.array([0, *(frame.size for frame in tokenizer.frames)])[count_E]
    total_E = np.diff(np.cumsum(np.concatenate([[0], sizes_S]))[np.append(first_E, len(texts))])
    long = np.flatnonzero(total_E > room_E)
    pieces = [
        assign_pieces(
            sizes_S[first_E[example] :][: count_E[example]].tolist(),
            max_length=max_length,
            special=max_length - int(room_E[example]),
            windows=too_long == "window",
        )
        for example in long.tolist()
    ]
    sequences_E = np.ones(len(examples), np.int64)
    sequences_E[long] = [*map(len, pieces)]
    owners_W = np.repeat(np.arange(len(examples)), sequences_E)
    count_W = count_E[owners_W]
    text_V = ranges(first_E[owners_W], first_E[owners_W] + count_W)  # the texts of all sequences
    start_V, stop_V = np.zeros_like(text_V), sizes_S[text_V]
    cut_V = ranges(*(of[np.isin(owners_W, long)] for of in (np.cumsum(count_W) - count_W, np.cumsum(count_W))))
    parts = [part for piece in itertools.chain.from_iterable(pieces) for part in piece]
    start_V[cut_V], stop_V[cut_V] = [part.start for part in parts], [part.stop for part in parts]
    if keep == "end" and too_long != "window":
        start_V, stop_V = sizes_S[text_V] - stop_V, sizes_S[text_V] - start_V
    begin_S = np.cumsum(sizes_S) - sizes_S
    ids = np.fromiter(itertools.chain.from_iterable(texts), np.int32, int(sizes_S.sum()))
    framed = _framed(ids, begin_S[text_V] + start_V, begin_S[text_V] + stop_V, count_W, tokenizer.frames)
    return Sequences(*framed, owners=owners_W, too_long=long)


def _framed(
    ids: NDArray[np.int32], start_V: Int, stop_V: Int, count_W: Int, frames: Sequence[Frame]
) -> tuple[NDArray[np.int32], NDArray[np.uint8], Int]:
    """Returns ids, segments and lengths of sequences with their special tokens.

    start_V, stop_V: where the texts are in `ids`; count_W: how many each sequence has.
    """
    items = [_items(frame) for frame in frames]  # of a sequence: each special token and each text
    count_I = np.array([0, *map(len, items)])[count_W]
    first_I, first_V = np.cumsum(count_I) - count_I, np.cumsum(count_W) - count_W
    start, stop, types = (np.zeros(int(count_I.sum()), np.int64) for _ in range(3))
    special = sorted({value for frame in items for kind, value, _ in frame if kind == "id"})
    for texts, frame in enumerate(items, 1):
        own_W = count_W == texts
        for place, (kind, value, segment) in enumerate(frame):
            at = first_I[own_W] + place
            types[at] = segment
            if kind == "id":
                start[at] = len(ids) + special.index(value)
                stop[at] = start[at] + 1
            else:
                start[at], stop[at] = start_V[first_V[own_W] + value], stop_V[first_V[own_W] + value]
    whole = np.concatenate([ids, np.array(special, np.int32)])[ranges(start, stop)]
    ends = np.concatenate([[0], np.cumsum(stop - start)])
    return whole, np.repeat(types, stop - start).astype(np.uint8), np.diff(ends[np.append(first_I, len(start))])


def _items(frame: Frame) -> list[tuple[Literal["id", "text"], int, int]]:
    """Returns the special tokens and texts of a frame in order: id of a token or number of a text, and its segment."""
    items: list[tuple[Literal["id", "text"], int, int]] = []
    for number, (ids, types) in enumerate(zip(frame.gaps, frame.gap_types, strict=True)):
        if number:
            items.append(("text", number - 1, frame.text_types[number - 1]))
        items += [("id", token, segment) for token, segment in zip(ids, types, strict=True)]
    return items


def list_token_ids(examples: Sequence[Example], tokenizer: Tokenizer) -> Iterator[list[list[int]]]:
    """Returns the token ids of each example's one or two texts."""
    for start in range(0, len(examples), 1000):
        chunk = examples[start : start + 1000]
        ids = iter(tokenizer.ids([text for example in chunk for text in example.texts]))
        yield from (list(itertools.islice(ids, len(example.texts))) for example in chunk)


def assign_pieces(
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
        cut = longest_first(sizes[0], sizes[1], room) if len(sizes) == 2 else (room,)
        return [tuple(slice(0, size) for size in cut)]
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
        encoded: Sequences,
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
        self.order = order or Order(encoded.examples, seed)

    Targets: TypeAlias = Targets

    @staticmethod
    def encode(examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int) -> Sequences:
        """Returns the token ids of examples, each of one sequence. See `encode_examples`."""
        return encode_examples(examples, tokenizer, max_length=max_length)

    @staticmethod
    def steps_of(examples: int, *, batch_size: int, epochs: float) -> int:
        """Returns the number of steps of some epochs. See `steps_of`."""
        return steps_of(examples, batch_size=batch_size, epochs=epochs)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with the examples, their labels, the tokenizer and the handling of long texts."""
        digest = xxhash.xxh3_128()
        encoded, targets = self.encoded, self.targets
        vectors = {name: array for name, array in encoded.extra.items() if name == VECTORS}
        tabular = {} if encoded.tabular is None else {"tabular": encoded.tabular}
        arrays = {**targets.sequence, **targets.token, **vectors, **tabular}
        for array in (encoded.input_ids, encoded.token_type_ids, encoded.starts, encoded.windows, *arrays.values()):
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
        return [batch_of_examples(self.encoded, ranges(first[part], end[part]), self.targets) for part in parts]


def steps_of(examples: int, *, batch_size: int, epochs: float) -> int:
    """Returns the number of optimizer steps of `epochs` passes over the examples."""
    return max(1, round(epochs * examples / batch_size))
