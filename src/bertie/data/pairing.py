"""Documents -> instances: which stretch of text goes into each sequence, and which two go together.

A *plan* lists the instances of one pass over the corpus. It is made from the lengths of sentences alone (no token is
read), is a pure function of (sentences, pairing, max_length, key), and holds plain token ranges, so that making an
instance costs two slices.

M sentences · D documents · N instances of the plan
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertie.console import progress
from bertie.data.draws import U64, Draws, key
from bertie.data.order import permutation

Int = NDArray[np.int64]

# One instance: segment A is a_length tokens from token number a of the corpus; B likewise (b_length 0: no segment B).
ROW = np.dtype([("a", "<i8"), ("b", "<i8"), ("a_length", "<u2"), ("b_length", "<u2"), ("label", "u1")])
MAX_LENGTH = 2**16 - 1  # what ROW's lengths can hold

# The share of sequences made shorter on purpose, so that the model also learns on short ones (the release's default).
SHORT_SHARE = 0.1

# Sentences planned at once: bounds the memory of the passes below.
BLOCK = 1 << 20


@dataclass(frozen=True)
class Sentences:
    """Where sentences and documents lie. starts, stops (M,): token range of each; bounds (D + 1,): its first sentence.

    Sentences of one document lie end to end; between documents there may be gaps. None is empty, no document is.
    """

    starts: Int
    stops: Int
    bounds: Int

    @classmethod
    def of(cls, lengths: ArrayLike, bounds: ArrayLike, documents: NDArray[np.bool_] | None = None) -> "Sentences":
        """From the token counts of all sentences and the first sentence of each document (with the end).

        documents (D,): which ones to keep. Sentences without tokens, and documents without sentences, are left out.
        """
        lengths, bounds = np.asarray(lengths, np.int64), np.asarray(bounds, np.int64)
        stops = np.cumsum(lengths)
        kept = lengths > 0
        if documents is not None:
            kept &= np.repeat(documents, np.diff(bounds))
        kept_before = np.concatenate([[0], np.cumsum(kept)])
        return cls((stops - lengths)[kept], stops[kept], np.unique(kept_before[bounds]))

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def num_documents(self) -> int:
        """D"""
        return len(self.bounds) - 1

    @property
    def tokens(self) -> int:
        """All tokens of all sentences."""
        return int((self.stops - self.starts).sum())

    def document_of(self, sentences: Int) -> Int:
        """The document each of some sentences belongs to."""
        return np.searchsorted(self.bounds, sentences, side="right") - 1


@dataclass(frozen=True)
class Plan:
    """rows (N,) of dtype ROW, and the account of every sentence and token: used how often, cut, or left out and why."""

    rows: NDArray[Any]
    report: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.rows)


class Pairing(Protocol):
    """A way to make instances. Also its options, by which plans are told apart."""

    @property
    def label(self) -> str | None:
        """Name, among a batch's labels, of the plan's `label` column; None when there is nothing to tell."""
        ...

    @property
    def segments(self) -> int:
        """Segments in a sequence: 1 or 2. One [CLS] stands before them all, one [SEP] after each."""
        ...

    @property
    def duplicates(self) -> int:
        """How many plans there are before they repeat: epoch e has plan e % duplicates."""
        ...

    def plan(self, sentences: Sentences, *, max_length: int, seed: U64) -> Plan:
        """The instances of one pass, none longer than max_length with its special tokens. Pure."""
        ...


@dataclass(frozen=True)
class FullSentences:
    """One segment: as many consecutive whole sentences of one document as fit (DOC-SENTENCES in Liu et al. 2019, 4.2).

    A sentence longer than a sequence is continued in the next ones. Every token stands in exactly one instance.
    """

    label: None = None
    segments: int = 1
    duplicates: int = 1  # nothing is drawn, so every epoch has the same instances

    def plan(self, sentences: Sentences, *, max_length: int, seed: U64) -> Plan:
        """The instances of one pass."""
        room = max_length - 2
        starts, stops = [], []
        for low, high in blocks(sentences):
            fit = np.searchsorted(sentences.stops, sentences.starts[low:high] + room, side="right")
            ends = np.repeat(sentences.bounds[1:], np.diff(sentences.bounds))[low:high]
            following = np.clip(fit, np.arange(low, high) + 1, ends)
            first = walk(following, low)
            starts.append(sentences.starts[first])
            stops.append(sentences.stops[following[first - low] - 1])
        start, stop = np.concatenate(starts), np.concatenate(stops)
        pieces = -(-(stop - start) // room)
        start = np.repeat(start, pieces) + room * _counting(pieces)
        length = np.minimum(np.repeat(stop, pieces) - start, room)
        rows = _rows(start, start, length, np.zeros_like(length), np.zeros_like(length))
        return Plan(rows, _report(sentences, rows, sentences_split=int((pieces - 1).astype(bool).sum())))


@dataclass(frozen=True)
class NextSentencePairs:
    """Two segments; label 1 where the second is not what follows the first in its document (Devlin et al. 2018, 3.1).

    form "original": the algorithm of create_pretraining_data.py in the BERT release, line by line.
    form "corrected": the same task without what the release's algorithm does to it:

    * a fair coin decides the label, whatever the chunk (there, chunks of one sentence are always random, which makes
      58 % of labels random in typical text, and short first segments give the answer away);
    * a random B is never from the same document (there, it is when ten draws in a row hit it), and documents are drawn
      by their length (there, all alike, so that text of short documents is seen far more often);
    * a chunk is at least two sentences, as many whole ones as fit (there, one too many, and then its ends are cut off);
    * a random B is as long as the text it stands for, so that length tells nothing of the label;
    * a last sentence that has none to follow it is used as somebody's random B.
    """

    form: Literal["original", "corrected"] = "corrected"
    duplicates: int = 10  # the release's dupe_factor
    label: str = "nsp_labels"
    segments: int = 2

    def plan(self, sentences: Sentences, *, max_length: int, seed: U64) -> Plan:
        """The instances of one pass."""
        return (_original if self.form == "original" else _corrected)(sentences, max_length - 3, seed)


def _original(sentences: Sentences, room: int, seed: U64) -> Plan:
    """`create_instances_from_document` of the release, over sentence lengths in place of sentences."""
    draw = random.Random(int(seed)).random
    starts, stops = memoryview(sentences.starts), memoryview(sentences.stops)  # items are Python ints, and quick
    bounds: list[int] = sentences.bounds.tolist()
    num_documents = len(bounds) - 1
    rows: list[tuple[int, int, int, int, int]] = []
    finished = []
    with progress("pairing", num_documents, unit="documents") as advance:
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
                        wanted = target - a_length
                        for _ in range(10):
                            other = int(draw() * num_documents)
                            if other != document:
                                break
                        other_end = bounds[other + 1]
                        b_first = bounds[other] + int(draw() * (other_end - bounds[other]))
                        b, last = starts[b_first], b_first
                        while stops[last] - b < wanted and last + 1 < other_end:
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
            if len(rows) >= BLOCK or document == num_documents - 1:
                finished.append(np.array(rows, ROW))
                rows.clear()
            advance()
    table = np.concatenate(finished) if finished else np.zeros(0, ROW)
    return Plan(table, _report(sentences, table))


def _corrected(sentences: Sentences, room: int, seed: U64) -> Plan:
    """For every sentence at once: the chunk and the label it would have as a chunk's first; then walk from chunk to chunk.

    A chunk is sentences [first, end), segment A its [first, split). When B is random, the next chunk starts at `split`.
    """
    starts, stops = sentences.starts, sentences.stops
    chunks: list[tuple[Int, ...]] = []
    with progress("pairing", len(sentences), unit="sentences") as advance:
        for low, high in blocks(sentences):
            first = np.arange(low, high)
            document_end = np.repeat(sentences.bounds[1:], np.diff(sentences.bounds))[low:high]
            draws = Draws(np.broadcast_to(key(seed, first), (high - low,)))
            short, size, where, coin = draws.uniform(0, 4).T
            target = np.where(short < SHORT_SHARE, 2 + (size * (room - 1)).astype(np.int64), room)
            end = np.searchsorted(stops, starts[low:high] + target, side="right")
            end = np.minimum(np.maximum(end, first + 2), document_end)
            lone = document_end - end == 1  # one sentence would be left over: make it two, or take it in
            end = np.where(lone, np.where(end - first > 2, end - 1, document_end), end)
            split = first + 1 + (where * (end - first - 1)).astype(np.int64)
            is_random = (coin < 0.5).astype(np.int64)
            chosen = walk(np.where((is_random == 1) & (end > first + 1), split, end), low)
            chunks.append(tuple(column[chosen - low] for column in (first, split, end, is_random)))
            advance(high - low)
    first, split, end, is_random = (np.concatenate(columns) for columns in zip(*chunks, strict=True))
    lone = end - first == 1
    leftover = first[lone]
    first, split, end, is_random = first[~lone], split[~lone], end[~lone], is_random[~lone]
    a, a_stop = starts[first], stops[split - 1]
    b, b_stop = starts[split], stops[end - 1]
    rows = np.flatnonzero(is_random)
    b[rows], b_stop[rows], unused = _random_texts(
        sentences, sentences.document_of(first[rows]), (b_stop - b)[rows], room - (a_stop - a)[rows], leftover, seed
    )
    a, a_stop, b, b_stop = _truncated(a, a_stop, b, b_stop, room, key(seed, 1))
    table = _rows(a, b, a_stop - a, b_stop - b, is_random)
    return Plan(table, _report(sentences, table, sentences_unused=unused))


def _random_texts(
    sentences: Sentences, own_document: Int, wanted: Int, room: Int, leftover: Int, seed: U64
) -> tuple[Int, Int, int]:
    """A text for each of R random pairs: (token starts (R,), token stops (R,), leftover sentences nobody took).

    It starts at a sentence drawn from all other documents alike, or at a leftover one, and has as many whole sentences
    as come nearest to `wanted` tokens; where its document ends too soon, it starts earlier.
    """
    starts, stops, bounds = sentences.starts, sentences.stops, sentences.bounds
    own_first, own_size = bounds[own_document], np.diff(bounds)[own_document]
    draws = Draws(np.broadcast_to(key(seed, 2, np.arange(len(wanted))), (len(wanted),))).uniform(0, 1)[:, 0]
    others = len(sentences) - own_size
    begin = (draws * others).astype(np.int64)
    begin = np.where((others > 0) & (begin >= own_first), begin + own_size, begin)

    takers = permutation(max(1, len(wanted)), key(seed, 3))[np.arange(len(wanted))]
    for _ in range(10):  # a leftover's taker is of another document; where it is not, ask the next one
        asked, takers = takers[: len(leftover)], takers[len(leftover) :]
        offered = leftover[: len(asked)]
        taken = own_document[asked] != sentences.document_of(offered)
        begin[asked[taken]] = offered[taken]
        leftover = np.concatenate([offered[~taken], leftover[len(asked) :]])

    document = sentences.document_of(begin)
    document_first, document_end = bounds[document], bounds[document + 1]
    below = np.searchsorted(stops, starts[begin] + wanted, side="right")  # the whole sentences that fit
    above = np.minimum(below + 1, document_end)
    below = np.clip(below, begin + 1, document_end)
    length_below, length_above = stops[below - 1] - starts[begin], stops[above - 1] - starts[begin]
    nearer = (length_above - wanted < wanted - length_below) & (length_above <= room)
    end = np.where(nearer, above, below)
    earliest = np.searchsorted(starts, stops[end - 1] - wanted, side="left")
    begin = np.where(end == document_end, np.clip(earliest, document_first, begin), begin)
    return starts[begin], stops[end - 1], len(leftover)


def _truncated(a: Int, a_stop: Int, b: Int, b_stop: Int, room: int, seed: U64) -> tuple[Int, Int, Int, Int]:
    """Cut pairs that are too long to `room` tokens as `truncate_seq_pair` does: the longer one first, at both ends.

    Its loop, which takes one token at a time, in closed form; how much of a cut falls at the front is uniform here.
    """
    rows = np.flatnonzero(a_stop - a + b_stop - b > room)
    a_length, b_length = (a_stop - a)[rows], (b_stop - b)[rows]
    b_half = room // 2
    a_cut = a_length - np.where(b_length <= b_half, room - b_length, np.minimum(a_length, room - b_half))
    b_cut = b_length - (room - (a_length - a_cut))
    share = Draws(np.broadcast_to(key(seed, np.arange(len(rows))), (len(rows),))).uniform(0, 2)
    for begin, stop, cut, where in ((a, a_stop, a_cut, share[:, 0]), (b, b_stop, b_cut, share[:, 1])):
        front = (where * (cut + 1)).astype(np.int64)
        begin[rows] += front
        stop[rows] -= cut - front
    return a, a_stop, b, b_stop


def blocks(sentences: Sentences) -> list[tuple[int, int]]:
    """Ranges of sentences, whole documents each, of about BLOCK sentences or one long document."""
    bounds = sentences.bounds
    cuts = np.unique(bounds[np.searchsorted(bounds, np.arange(0, len(sentences), BLOCK))])
    edges = [*cuts.tolist(), len(sentences)]
    return [(low, high) for low, high in zip(edges, edges[1:], strict=False) if high > low]


def walk(following: Int, start: int) -> Int:
    """start, following[0], following of that ... up to the end; numbers count from `start`. The one loop in Python."""
    after: list[int] = (following - start).tolist()
    visited = []
    i = 0
    while i < len(after):
        visited.append(i)
        i = after[i]
    return np.array(visited, np.int64) + start


def _counting(counts: Int) -> Int:
    """0 .. counts[0] - 1, 0 .. counts[1] - 1, ... in one array."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


def _rows(a: Int, b: Int, a_length: Int, b_length: Int, label: Int) -> NDArray[Any]:
    table = np.empty(len(a), ROW)
    for name, column in (("a", a), ("b", b), ("a_length", a_length), ("b_length", b_length), ("label", label)):
        table[name] = column
    return table


def _report(sentences: Sentences, rows: NDArray[Any], **more: int) -> dict[str, int]:
    """The account of a plan: what there is, what is read, and what no instance holds."""
    used = _covered(np.concatenate([rows["a"], rows["b"]]), np.concatenate([rows["a_length"], rows["b_length"]]))
    return {
        "instances": len(rows),
        "labelled_1": int(rows["label"].sum()),
        "documents": sentences.num_documents,
        "sentences": len(sentences),
        "tokens": sentences.tokens,
        "tokens_read": int(rows["a_length"].sum(dtype=np.int64) + rows["b_length"].sum(dtype=np.int64)),
        "tokens_in_no_instance": sentences.tokens - used,
        **more,
    }


def _covered(starts: Int, lengths: NDArray[np.integer]) -> int:
    """How many tokens lie in at least one of the ranges."""
    order = np.argsort(starts)
    starts, stops = starts[order], (starts + lengths)[order]
    reached = np.maximum.accumulate(stops)
    before = np.concatenate([starts[:1], reached[:-1]])
    return int(np.maximum(stops - np.maximum(starts, before), 0).sum())
