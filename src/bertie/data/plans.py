"""A plan: the instances of one pass over a corpus, computed from the lengths of its sentences.

It is a pure function of (sentences, pairing, max_length, seed), and reads no tokens. It has token ranges, so that
making an instance costs two slices, and statistics of all tokens.

M sentences · D documents · N instances of the plan
"""

import errno
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Protocol

import numpy as np
import xxhash
from numpy.typing import ArrayLike, NDArray

from bertie.console import console
from bertie.errors import DataError
from bertie.files import atomic_write, file_hash, read_json, seal, write_json
from bertie.order import U64, key

Int = NDArray[np.int64]

# One instance: segment A is a_length tokens from token number a of the corpus; B likewise (b_length 0: no segment B).
ROW = np.dtype([("a", "<i8"), ("b", "<i8"), ("a_length", "<u2"), ("b_length", "<u2"), ("label", "u1")])
MAX_ROW_LENGTH = 2**16 - 1  # what ROW's lengths can hold

# Of the algorithms that make plans. A change of any changes it, so that no plan of another one is taken for its own.
VERSION = 2

# Sentences planned at once: bounds the memory of the passes below.
PLAN_BLOCK = 1 << 20
# Sentences whose plan is made at once (2 x 10^8 tokens): a plan takes up to 400 bytes an instance while it is made.
_GROUP = 1 << 23
# Beyond so many sentences, where they lie is kept in files that the system may page out: 16 bytes a sentence.
IN_MEMORY = 1 << 24


@dataclass(frozen=True)
class Sentences:
    """The positions of sentences and documents. starts, stops (M,): token ranges; bounds (D + 1,): first sentences.

    Sentences of one document are consecutive; there may be gaps between documents. No sentence and no document is
    empty.
    """

    starts: Int
    stops: Int
    bounds: Int

    @classmethod
    def of(cls, lengths: ArrayLike, bounds: ArrayLike, documents: NDArray[np.bool_] | None = None) -> "Sentences":
        """Returns positions from the token counts of all sentences and the first sentence of each document (with the
        end).

        documents (D,): which ones to keep. Sentences without tokens and documents without sentences are dropped.
        """
        lengths, bounds = np.asarray(lengths), np.asarray(bounds, np.int64)
        starts, stops, kept_before = _column(len(lengths)), _column(len(lengths)), np.empty(len(bounds), np.int64)
        token = total = 0
        for low in range(0, len(lengths), PLAN_BLOCK):
            some = lengths[low : low + PLAN_BLOCK].astype(np.int64)
            ends = token + np.cumsum(some)
            keep = some > 0
            if documents is not None:
                keep &= documents[np.searchsorted(bounds, np.arange(low, low + len(some)), side="right") - 1]
            count = np.cumsum(keep)
            here = slice(*np.searchsorted(bounds, (low, low + len(some))))
            kept_before[here] = total + (count - keep)[bounds[here] - low]
            token, after = int(ends[-1]), total + int(count[-1])
            starts[total:after], stops[total:after] = (ends - some)[keep], ends[keep]
            total = after
        kept_before[bounds == len(lengths)] = total
        return cls(starts[:total], stops[:total], np.unique(kept_before))

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def num_documents(self) -> int:
        """The number of documents, D."""
        return len(self.bounds) - 1

    @property
    def tokens(self) -> int:
        """The number of tokens of all sentences."""
        return int((self.stops - self.starts).sum())

    def stretches(self, start: int, length: int) -> list[tuple[int, int]]:
        """Returns the token ranges of `length` tokens from `start` on, one for each of their documents."""
        starts, stops = self._documents
        document = int(np.searchsorted(starts, start, side="right")) - 1
        pairs = []
        while length > 0:
            stop = min(start + length, int(stops[document]))
            pairs.append((start, stop))
            length -= stop - start
            document += 1
            start = int(starts[document]) if length else stop
        return pairs

    @cached_property
    def _documents(self) -> tuple[Int, Int]:
        """Returns the first token of each document, and the one after its last."""
        return self.starts[self.bounds[:-1]], self.stops[self.bounds[1:] - 1]

    def document_ends(self, low: int, high: int) -> Int:
        """Returns the end of the document of each sentence in [low, high), which are document bounds."""
        first, last = np.searchsorted(self.bounds, (low, high))
        bounds = self.bounds[first : last + 1]
        return np.repeat(bounds[1:], np.diff(bounds))

    def document_of(self, sentences: Int) -> Int:
        """Returns the document of each of some sentences."""
        return np.searchsorted(self.bounds, sentences, side="right") - 1


def _column(n: int) -> Int:
    """Returns space for n numbers: in memory, or in a temporary file, which is deleted with the array."""
    if n <= IN_MEMORY:
        return np.empty(n, np.int64)
    with TemporaryFile() as file:
        file.truncate(8 * n)
        return np.asarray(np.memmap(file, np.int64, "r+", shape=(n,)))


@dataclass(frozen=True)
class SamplePlan:
    """rows (N,) of dtype ROW, and statistics of all sentences and tokens: used, truncated, or dropped with the
    reason."""

    rows: NDArray[Any]
    report: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.rows)


Advance = Callable[[int], None]
"""Called with the number of further sentences that have been paired."""


def silent(amount: int) -> None:
    """Ignores progress."""


class Pairing(Protocol):
    """Protocol of a pairing. Its options are part of the plan's name."""

    @property
    def label(self) -> str | None:
        """The name of the plan's `label` column in a batch's labels; None without labels."""
        ...

    @property
    def segments(self) -> int:
        """The number of segments in a sequence: 1 or 2. There is one [CLS] before them, and a [SEP] after each."""
        ...

    @property
    def crosses(self) -> bool:
        """Whether a text continues after the end of its document, with a separator between."""
        ...

    @property
    def duplicates(self) -> int:
        """The number of different plans: epoch e has plan e % duplicates."""
        ...

    def plan(self, sentences: Sentences, *, max_length: int, seed: U64, advance: Advance = silent) -> SamplePlan:
        """Returns the instances of one pass, at most max_length long with special tokens. `advance` is called with
        progress."""
        ...


def plan_instances(
    pairing: Pairing, sentences: Sentences, *, max_length: int, seed: U64, advance: Advance = silent
) -> SamplePlan:
    """Returns the instances of one pass, computed for GROUP sentences at a time, so that memory is bounded.

    A random second segment is from the same group. Groups have one size, so that none has only one document.
    """
    if len(sentences) <= _GROUP:
        return pairing.plan(sentences, max_length=max_length, seed=seed, advance=advance)
    rows, report = [], Counter[str]()
    for number, (low, high) in enumerate(blocks(sentences, -(-len(sentences) // -(-len(sentences) // _GROUP)))):
        first, last = np.searchsorted(sentences.bounds, (low, high))
        bounds = sentences.bounds[first : last + 1] - low
        group = Sentences(sentences.starts[low:high], sentences.stops[low:high], bounds)
        plan = pairing.plan(group, max_length=max_length, seed=key(seed, number), advance=advance)
        rows.append(plan.rows)
        report.update(plan.report)
    return SamplePlan(np.concatenate(rows), dict(report))


def blocks(sentences: Sentences, size: int | None = None) -> list[tuple[int, int]]:
    """Returns ranges of sentences, whole documents each, of about `size` (BLOCK) sentences or one long document."""
    bounds, size = sentences.bounds, size or PLAN_BLOCK
    cuts = np.unique(bounds[np.searchsorted(bounds, np.arange(size, len(sentences), size))])
    return list(pairwise([0, *cuts.tolist(), len(sentences)]))


def walk(following: Int, start: int) -> Int:
    """Returns start, following[0], its following ... up to the end; numbers count from `start`. The only loop in
    Python."""
    after: list[int] = (following - start).tolist()
    visited = []
    i = 0
    while i < len(after):
        visited.append(i)
        i = after[i]
    return np.array(visited, np.int64) + start


def counting(counts: Int) -> Int:
    """0 .. counts[0] - 1, 0 .. counts[1] - 1, ... in one array."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


def make_instances(a: Int, b: Int, a_length: Int, b_length: Int, label: Int) -> NDArray[Any]:
    """Returns instances from their columns, (N,) each."""
    rows = np.empty(len(a), ROW)
    for name, column in (("a", a), ("b", b), ("a_length", a_length), ("b_length", b_length), ("label", label)):
        rows[name] = column
    return rows


def plan_statistics(sentences: Sentences, rows: NDArray[Any], **more: int) -> dict[str, int]:
    """Returns the statistics of a plan: what exists, what is read, and what is in no instance."""
    two = rows[rows["b_length"] > 0]  # with a second segment
    used = _covered(np.concatenate([rows["a"], two["b"]]), np.concatenate([rows["a_length"], two["b_length"]]))
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
    """Returns the number of tokens in at least one of the ranges."""
    order = np.argsort(starts)
    starts, stops = starts[order], (starts + lengths)[order]
    reached = np.maximum.accumulate(stops)
    before = np.concatenate([starts[:1], reached[:-1]])
    return int(np.maximum(stops - np.maximum(starts, before), 0).sum())


# What is held out of training to validate on: this share of the tokens, within these bounds (a tenth at the most).
HELD_OUT_SHARE = 0.01
HELD_OUT_TOKENS = (10_000, 500_000)


def choose_held_out(lengths: ArrayLike, bounds: ArrayLike) -> NDArray[np.bool_]:
    """Returns which documents (D,) are held out for validation: a fixed choice for any seed and max_length.

    They are drawn by document number until a fraction of the tokens is reached, without documents that have half of it.
    There are at least two, so that next-sentence prediction can be validated, or none, for a corpus of a few long
    documents.
    """
    bounds = np.asarray(bounds)
    tokens, filled = np.zeros(len(bounds) - 1, np.int64), np.diff(bounds) > 0
    tokens[filled] = np.add.reduceat(np.asarray(lengths), bounds[:-1][filled], dtype=np.int64)
    total = int(tokens.sum())
    lowest, highest = HELD_OUT_TOKENS
    limit = min(max(total * HELD_OUT_SHARE, min(lowest, total / 10)), highest)
    order = np.argsort(key(0x5EED, np.arange(len(tokens))))
    order = order[(tokens[order] > 0) & (tokens[order] <= limit / 2)]
    order = order[np.cumsum(tokens[order]) <= limit]
    chosen = np.zeros(len(tokens), bool)
    if len(order) >= 2 and int((tokens > 0).sum()) - len(order) >= 2:
        chosen[order] = True
    return chosen


def cached_plan(make: Callable[[], SamplePlan], folder: Path | None, identity: str) -> SamplePlan:
    """Returns a plan from a folder, memory-mapped. It is computed and stored there when it is missing.

    A damaged plan is computed again with a warning. Without a writable folder, the plan is in memory.
    """
    if folder is None:
        return make()
    name = xxhash.xxh3_128_hexdigest(f"{VERSION} {identity}".encode())[:16]
    path = folder / f"plan-{name}.npy"
    if (stored := _kept(path)) is not None:
        return stored
    plan = make()
    try:
        folder.mkdir(exist_ok=True)
        with atomic_write(path) as file:
            np.save(file, plan.rows, allow_pickle=False)
        facts = {"bytes": path.stat().st_size, "hash": file_hash(path), "report": dict(plan.report)}
        write_json(path.with_suffix(".json"), {**facts, "seal": seal(facts)})  # last: without it there is no plan
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        return plan
    return _kept(path) or plan


def damaged(folder: Path) -> list[Path]:
    """Returns the plans of a folder whose hash differs."""
    paths = [path for path in sorted(folder.glob("plan-*.npy")) if path.with_suffix(".json").exists()]
    return [path for path in paths if not _kept(path)]


def _kept(path: Path) -> SamplePlan | None:
    """Reads a plan and checks every byte; None where there is none, or it is damaged."""
    if not path.with_suffix(".json").exists():
        return None
    try:
        facts = read_json(path.with_suffix(".json"))
        if facts["seal"] != seal(facts) or facts["bytes"] != path.stat().st_size or facts["hash"] != file_hash(path):
            raise ValueError("it does not match its hash")
        return SamplePlan(np.load(path, mmap_mode="r", allow_pickle=False), facts["report"])
    except (DataError, OSError, ValueError, KeyError, TypeError) as error:
        console.warn(f"{path} is damaged ({error}) and is written again.")
        return None
