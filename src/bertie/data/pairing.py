"""Documents -> instances: which text is in each sequence, and which two texts form a pair.

Each pairing makes plans (data/plans.py). A new one is a class here with a `plan` method.

M sentences · R pairs with a random second text
"""

import random
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from bertie.data.plans import (
    ROW,
    Advance,
    Int,
    SamplePlan,
    Sentences,
    blocks,
    counting,
    make_instances,
    plan_statistics,
    silent,
    walk,
)
from bertie.errors import DataError
from bertie.order import U64, Draws, key, mix, permutation, unit_floats
from bertie.registry import Registry

# The share of sequences made shorter on purpose, so that the model also learns on short ones (the release's default).
SHORT_SHARE = 0.1


@dataclass(frozen=True)
class DocSentences:
    """One segment: as many consecutive whole sentences of one document as fit (DOC-SENTENCES in Liu et al. 2019, 4.2).

    A sentence longer than a sequence continues in the next ones. Every token is in exactly one instance.
    """

    label: None = None
    segments: int = 1
    duplicates: int = 1  # nothing is drawn, so every epoch has the same instances
    crosses: ClassVar[bool] = False

    def plan(self, sentences: Sentences, *, max_length: int, seed: U64, advance: Advance = silent) -> SamplePlan:
        """Returns the instances of one pass."""
        room = max_length - 2
        starts, stops = [], []
        for low, high in blocks(sentences):
            fit = np.searchsorted(sentences.stops, sentences.starts[low:high] + room, side="right")
            following = np.clip(fit, np.arange(low, high) + 1, sentences.document_ends(low, high))
            first = walk(following, low)
            starts.append(sentences.starts[first])
            stops.append(sentences.stops[following[first - low] - 1])
            advance(high - low)
        start, stop = np.concatenate(starts), np.concatenate(stops)
        pieces = -(-(stop - start) // room)
        start = np.repeat(start, pieces) + room * counting(pieces)
        length = np.minimum(np.repeat(stop, pieces) - start, room)
        rows = make_instances(start, start, length, np.zeros_like(length), np.zeros_like(length))
        return SamplePlan(rows, plan_statistics(sentences, rows, sentences_split=int((pieces - 1).astype(bool).sum())))


@dataclass(frozen=True)
class FullSentences(DocSentences):
    """One segment of consecutive whole sentences, of one document or several (FULL-SENTENCES in Liu et al. 2019, 4.2).

    A separator follows a document that ends inside a sequence. A row's a_length counts only the tokens of the texts.
    """

    crosses: ClassVar[bool] = True

    def plan(self, sentences: Sentences, *, max_length: int, seed: U64, advance: Advance = silent) -> SamplePlan:
        """Returns the instances of one pass."""
        room = max_length - 2
        size = sentences.stops - sentences.starts
        before = np.concatenate([[0], np.cumsum(size)])
        stops = before[1:] + sentences.document_of(np.arange(len(sentences)))  # a separator after each document
        following = np.searchsorted(stops, stops - size + room, side="right")
        following = np.maximum(following, np.arange(1, len(sentences) + 1))
        first = walk(following, 0)
        start, length = sentences.starts[first], before[following[first]] - before[first]
        advance(len(sentences))
        pieces = -(-length // room)
        start = np.repeat(start, pieces) + room * counting(pieces)
        length = np.minimum(np.repeat(length, pieces) - room * counting(pieces), room)
        rows = make_instances(start, start, length, np.zeros_like(length), np.zeros_like(length))
        return SamplePlan(rows, plan_statistics(sentences, rows, sentences_split=int((pieces - 1).astype(bool).sum())))


PACKINGS: Registry[type[DocSentences]] = Registry(
    "packing", [("doc_sentences", DocSentences), ("full_sentences", FullSentences)]
)
"""The content of sequences of objectives without pairs."""


@dataclass(frozen=True)
class OtherVectors:
    """One text, with its own feature vectors (label 0) or those of another row (1); share: how many get another's.

    Rows of a table have feature vectors (objectives/captions.py), documents of a corpus have none to plan.
    """

    share: float
    label: ClassVar[str] = "itm_labels"
    segments: ClassVar[int] = 1
    crosses: ClassVar[bool] = False
    duplicates: ClassVar[int] = 1

    def plan(self, sentences: Sentences, *, max_length: int, seed: U64, advance: Advance = silent) -> SamplePlan:
        """Raises DataError."""
        raise DataError("A corpus of texts has no feature vectors. Pass a table with a column of them (--features).")


@dataclass(frozen=True)
class NextSentencePairs:
    """Two segments; label 1 where the second does not follow the first in its document (Devlin et al. 2018, 3.1).

    form "original": the algorithm of create_pretraining_data.py in google-research/bert, line by line. form
    "corrected": the same task without the side effects of this algorithm:

    * A fair coin decides the label for all chunks. In the original form, chunks of one sentence are always random, so
      54% of labels are random on English Wikipedia.
    * A random B is never from the same document. In the original form, it is after ten unlucky draws.
    * Documents are drawn by their length. In the original form, they are drawn uniformly, so that text of short
      documents occurs far more often.
    * A chunk has at least two sentences, and as many whole ones as fit. In the original form, it has one too many, and
      then it is truncated.
    * A random B is as long as the text that it replaces. In the original form, the lengths of A and B alone predict 58%
      of labels.
    * A last sentence without a following one is used as a random B.
    """

    form: Literal["original", "corrected"] = "corrected"
    duplicates: int = 10  # the release's dupe_factor
    label: str = "nsp_labels"
    segments: int = 2
    crosses: ClassVar[bool] = False

    def plan(self, sentences: Sentences, *, max_length: int, seed: U64, advance: Advance = silent) -> SamplePlan:
        """Returns the instances of one pass."""
        return (_original if self.form == "original" else _corrected)(sentences, max_length - 3, seed, advance)


@dataclass(frozen=True)
class SentenceOrderPairs:
    """Two consecutive segments of one document; label 1 where they are swapped (Lan et al. 2019, 3.1).

    They are split as the corrected pairs above, and a fair coin swaps them. A document of one sentence is not used.
    """

    duplicates: int = 10
    label: str = "sop_labels"
    segments: int = 2
    crosses: ClassVar[bool] = False

    def plan(self, sentences: Sentences, *, max_length: int, seed: U64, advance: Advance = silent) -> SamplePlan:
        """Returns the instances of one pass."""
        first, split, end, swapped = _chunks(sentences, max_length - 3, seed, advance, put_back=False)
        lone = end - first == 1
        cut = (column[~lone] for column in (first, split, end))
        a, a_stop, b, b_stop = _truncated(*_segments(sentences, *cut), max_length - 3, key(seed, 1))
        in_order = swapped[~lone] == 0
        left, left_stop = np.where(in_order, a, b), np.where(in_order, a_stop, b_stop)
        right, right_stop = np.where(in_order, b, a), np.where(in_order, b_stop, a_stop)
        rows = make_instances(left, right, left_stop - left, right_stop - right, swapped[~lone])
        return SamplePlan(rows, plan_statistics(sentences, rows, sentences_unused=int(lone.sum())))


def _original(sentences: Sentences, room: int, seed: U64, advance: Advance) -> SamplePlan:
    """`create_instances_from_document` of google-research/bert, with sentence lengths instead of sentences."""
    draw = random.Random(int(seed)).random
    starts, stops = sentences.starts.data, sentences.stops.data  # memory views: their items are Python ints, and quick
    bounds: list[int] = sentences.bounds.tolist()
    num_documents = len(bounds) - 1
    rows: list[tuple[int, int, int, int, int]] = []
    finished = []
    reported = 0
    for document in range(num_documents):
        first, end = bounds[document], bounds[document + 1]
        target = room
        if draw() < SHORT_SHARE:
            target = 2 + int(draw() * (room - 1))  # randint(2, room)
        chunk, i = first, first
        while i < end:
            if i == end - 1 or stops[i] - starts[chunk] >= target:
                size = i + 1 - chunk
                a_end = chunk + 1
                if size >= 2:
                    a_end = chunk + 1 + int(draw() * (size - 1))  # randint(1, size - 1)
                a, a_length = starts[chunk], stops[a_end - 1] - starts[chunk]
                if size == 1 or draw() < 0.5:
                    label = 1
                    target_b = target - a_length
                    for _ in range(10):
                        other = int(draw() * num_documents)
                        if other != document:
                            break
                    other_end = bounds[other + 1]
                    b_first = bounds[other] + int(draw() * (other_end - bounds[other]))
                    b, last = starts[b_first], b_first
                    while stops[last] - b < target_b and last + 1 < other_end:
                        last += 1
                    b_length = stops[last] - b
                    i = a_end - 1  # the sentences of the chunk that were not used are put back
                else:
                    label = 0
                    b, b_length = starts[a_end], stops[i] - starts[a_end]
                while a_length + b_length > room:  # truncate_seq_pair
                    if a_length > b_length:
                        a_length -= 1
                        a += draw() < 0.5
                    else:
                        b_length -= 1
                        b += draw() < 0.5
                rows.append((a, b, a_length, b_length, label))
                chunk = i + 1
            i += 1
        if len(rows) >= 1 << 16 or document == num_documents - 1:  # tuples take ten times the room
            finished.append(np.array(rows, ROW))
            rows.clear()
            advance(end - reported)
            reported = end
    instances = np.concatenate(finished) if finished else np.zeros(0, ROW)
    return SamplePlan(instances, plan_statistics(sentences, instances))


def _corrected(sentences: Sentences, room: int, seed: U64, advance: Advance) -> SamplePlan:
    """Yields chunks whose label is a coin flip; for random, the next chunk starts at the split."""
    first, split, end, is_random = _chunks(sentences, room, seed, advance, put_back=True)
    lone = end - first == 1
    leftover = first[lone]
    first, split, end, is_random = first[~lone], split[~lone], end[~lone], is_random[~lone]
    a, a_stop, b, b_stop = _segments(sentences, first, split, end)
    rows = np.flatnonzero(is_random)
    b[rows], b_stop[rows], unused = _random_texts(
        sentences, sentences.document_of(first[rows]), (b_stop - b)[rows], room - (a_stop - a)[rows], leftover, seed
    )
    a, a_stop, b, b_stop = _truncated(a, a_stop, b, b_stop, room, key(seed, 1))
    instances = make_instances(a, b, a_stop - a, b_stop - b, is_random)
    return SamplePlan(instances, plan_statistics(sentences, instances, sentences_unused=unused))


def _chunks(
    sentences: Sentences, room: int, seed: U64, advance: Advance, *, put_back: bool
) -> tuple[Int, Int, Int, Int]:
    """Returns chunks of at least two sentences: (first sentence, split, end, a fair coin of 0 or 1), each (chunks,).

    First the chunk that would start at each sentence, then the sequence of chunks. Segment A is [first, split), B
    [split, end). put_back: where the coin is 1, the next chunk starts at the split, not at the end. A last sentence
    without a following one is a chunk of its own.
    """
    starts, stops = sentences.starts, sentences.stops
    chunks: list[tuple[Int, ...]] = []
    for low, high in blocks(sentences):
        first = np.arange(low, high)
        document_end = sentences.document_ends(low, high)
        draws = Draws(key(seed, 0, first))
        short, size, where, coin = draws.uniform(0, 4).T
        target = np.where(short < SHORT_SHARE, 2 + (size * (room - 1)).astype(np.int64), room)
        end = np.searchsorted(stops, starts[low:high] + target, side="right")
        end = np.minimum(np.maximum(end, first + 2), document_end)
        lone = document_end - end == 1  # one sentence would be left over: make it two, or take it in
        end = np.where(lone, np.where(end - first > 2, end - 1, document_end), end)
        split = first + 1 + (where * (end - first - 1)).astype(np.int64)
        tails = (coin < 0.5).astype(np.int64)
        again = put_back & (tails == 1) & (end > first + 1)
        chosen = walk(np.where(again, split, end), low)
        chunks.append(tuple(column[chosen - low] for column in (first, split, end, tails)))
        advance(high - low)
    first, split, end, tails = (np.concatenate(columns) for columns in zip(*chunks, strict=True))
    return first, split, end, tails


def _segments(sentences: Sentences, first: Int, split: Int, end: Int) -> tuple[Int, Int, Int, Int]:
    """Returns the token ranges of both segments of chunks."""
    return sentences.starts[first], sentences.stops[split - 1], sentences.starts[split], sentences.stops[end - 1]


def _random_texts(
    sentences: Sentences, own: Int, lengths: Int, room: Int, leftover: Int, seed: U64
) -> tuple[Int, Int, int]:
    """Returns a text for each of R random pairs: (token starts (R,), token stops (R,), unused leftover sentences).

    own (R,): the pair's document, which the text is not from if there is another. A text starts at a uniformly drawn
    sentence of other documents, or at a leftover one. lengths, room (R,): see `_texts`.
    """
    takers = permutation(max(1, len(own)), key(seed, 2))[np.arange(len(own))]
    taken = np.full(len(own), -1)
    for _ in range(10):  # a leftover's taker is of another document; where it is not, ask the next one
        owners, takers = takers[: len(leftover)], takers[len(leftover) :]
        offered = leftover[: len(owners)]
        agreed = own[owners] != sentences.document_of(offered)
        taken[owners[agreed]] = offered[agreed]
        leftover = np.concatenate([offered[~agreed], leftover[len(owners) :]])

    own_first, own_size = sentences.bounds[own], np.diff(sentences.bounds)[own]
    others = len(sentences) - own_size
    start, stop, miss = np.zeros_like(lengths), np.zeros_like(lengths), np.full(len(own), np.iinfo(np.int64).max)
    rows = np.arange(len(own))
    for attempt in range(5):  # a text much shorter or longer than wanted is drawn again; the best one stays
        begin = (unit_floats(mix(key(seed, 3 + attempt, rows))) * others[rows]).astype(np.int64)
        begin += np.where((others[rows] > 0) & (begin >= own_first[rows]), own_size[rows], 0)
        begin = np.where(taken[rows] >= 0, taken[rows], begin)
        found_start, found_stop = _texts(sentences, begin, lengths[rows], room[rows])
        off = np.abs(found_stop - found_start - lengths[rows])
        better = off < miss[rows]
        put = rows[better]
        start[put], stop[put], miss[put] = found_start[better], found_stop[better], off[better]
        rows = rows[(miss[rows] > lengths[rows] // 8) & (taken[rows] < 0)]
    return start, stop, len(leftover)


def _texts(sentences: Sentences, begin: Int, lengths: Int, room: Int) -> tuple[Int, Int]:
    """Returns token ranges of as many whole sentences from `begin` as are closest to `lengths` tokens and fit `room`.

    At least one sentence. A text whose document ends too early starts earlier instead.
    """
    starts, stops = sentences.starts, sentences.stops
    document = sentences.document_of(begin)
    document_first, document_end = sentences.bounds[document], sentences.bounds[document + 1]

    start = starts[begin]
    fewer = np.clip(np.searchsorted(stops, start + lengths, side="right"), begin + 1, document_end)
    more = np.minimum(fewer + 1, document_end)
    end = np.where(_nearer(stops[more - 1] - start, stops[fewer - 1] - start, lengths, room), more, fewer)
    stop = stops[end - 1]

    fewer = np.clip(np.searchsorted(starts, stop - lengths, side="left"), document_first, begin)
    more = np.maximum(fewer - 1, document_first)
    earlier = np.where(_nearer(stop - starts[more], stop - starts[fewer], lengths, room), more, fewer)
    return starts[np.where(end == document_end, earlier, begin)], stop


def _nearer(longer: Int, shorter: Int, target: Int, room: Int) -> NDArray[np.bool_]:
    """Returns where the longer of two lengths fits and is closer to the wanted one."""
    return (longer <= room) & (longer - target < target - shorter)


def _truncated(a: Int, a_stop: Int, b: Int, b_stop: Int, room: int, seed: U64) -> tuple[Int, Int, Int, Int]:
    """Truncates pairs to `room` tokens as `truncate_seq_pair`: the longer one first, at both ends.

    A closed form of its loop over tokens. How many tokens are removed at the front is uniform here.
    """
    rows = np.flatnonzero(a_stop - a + b_stop - b > room)
    a_length, b_length = (a_stop - a)[rows], (b_stop - b)[rows]
    b_half = room // 2
    a_cut = a_length - np.where(b_length <= b_half, room - b_length, np.minimum(a_length, room - b_half))
    b_cut = b_length - (room - (a_length - a_cut))
    share = Draws(key(seed, np.arange(len(rows)))).uniform(0, 2)
    for begin, stop, cut, where in ((a, a_stop, a_cut, share[:, 0]), (b, b_stop, b_cut, share[:, 1])):
        front = (where * (cut + 1)).astype(np.int64)
        begin[rows] += front
        stop[rows] -= cut - front
    return a, a_stop, b, b_stop
