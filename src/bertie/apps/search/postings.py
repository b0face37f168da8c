"""The postings of an index: for each term, the passages that have it and how often, as arrays; BM25 over them.

    blocks    block, lengths, gone     the number of terms of each passage of a block; 0: no passage (any more)
    postings  block, term, rows        the passages of the block that have the term, and how often each has it

A block is BLOCK consecutive passages: the row of a passage is id % BLOCK, a number of two bytes. New passages are added
to the arrays of the last block. A removed passage gets the length 0, and stays in the arrays until a block has more
removed passages than others. All of it is part of the transaction of the caller.

N passages of a block · P passages with a term
"""

import sqlite3
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

POSTINGS_BLOCK = 1 << 16
LISTED = 500  # values in one query: older SQLite allows 999
MAX_REPETITIONS = 255  # repetitions in a passage that are counted: more make no difference to BM25
K1, B = 1.2, 0.75

SCHEMA = """
CREATE TABLE blocks (block INTEGER PRIMARY KEY, lengths BLOB NOT NULL, gone INTEGER NOT NULL);
CREATE TABLE postings (
    block INTEGER NOT NULL, term TEXT NOT NULL, rows BLOB NOT NULL, PRIMARY KEY (block, term)) WITHOUT ROWID;
"""

_Rows = NDArray[np.uint16]
Times = NDArray[np.uint8]
Lengths = NDArray[np.uint32]
Float = NDArray[np.float32]


def pack_postings(rows: Sequence[int] | _Rows, times: Sequence[int] | Times) -> bytes:
    """Returns the arrays of a term as bytes: two for each row, and then one for each number of times."""
    return np.asarray(rows, "<u2").tobytes() + np.asarray(times, np.uint8).tobytes()


def unpack_postings(data: bytes) -> tuple[_Rows, Times]:
    """Returns the rows that have a term, and how often each has it. (P,)"""
    count = len(data) // 3
    return np.frombuffer(data, "<u2", count), np.frombuffer(data, np.uint8, offset=2 * count)


@dataclass(frozen=True)
class State:
    """What a search keeps between questions: by block, the length norm of BM25 (N,), and whether some are gone."""

    change: int
    passages: int
    norms: Mapping[int, tuple[Float, bool]]


class Postings:
    """The postings of an open database. What `add` was given is written by `flush`."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self._block = 0
        self._lengths: list[tuple[int, int]] = []
        self._terms: defaultdict[str, tuple[array[int], bytearray]] = defaultdict(lambda: (array("H"), bytearray()))
        self._state: State | None = None

    # Changes ----------------------------------------------------------------------------------------------------------

    def add(self, passage: int, terms: Sequence[str]) -> None:
        """Adds the terms of a passage, whose number is higher than those before."""
        block, row = divmod(passage, POSTINGS_BLOCK)
        if block != self._block:
            self.flush()
            self._block = block
        self._lengths.append((row, len(terms)))
        for term, times in Counter(terms).items():
            rows, counts = self._terms[term]
            rows.append(row)
            counts.append(min(times, MAX_REPETITIONS))

    def flush(self) -> None:
        """Writes what was added."""
        if self._lengths:
            row = self.db.execute("SELECT lengths, gone FROM blocks WHERE block = ?", (self._block,)).fetchone()
            before = np.frombuffer(row[0], "<u4") if row else np.zeros(0, np.uint32)
            rows, lengths = np.array(self._lengths).T
            lengths_N = np.zeros(max(len(before), int(rows.max()) + 1), "<u4")
            lengths_N[: len(before)] = before
            lengths_N[rows] = lengths
            self._put(self._block, lengths_N, row[1] if row else 0)
            self.db.executemany("INSERT OR REPLACE INTO postings VALUES (?, ?, ?)", self._merged(new=row is None))
        self._lengths.clear()
        self._terms.clear()

    def _merged(self, *, new: bool) -> Iterator[tuple[int, str, bytes]]:
        sql = "SELECT rows FROM postings WHERE block = ? AND term = ?"
        for term in sorted(self._terms):
            rows, times = self._terms[term]
            old = None if new else self.db.execute(sql, (self._block, term)).fetchone()
            if old:
                old_rows, old_times = unpack_postings(old[0])
                data = pack_postings(np.append(old_rows, rows), np.append(old_times, np.frombuffer(times, np.uint8)))
            else:
                data = pack_postings(np.frombuffer(rows, np.uint16), np.frombuffer(times, np.uint8))
            yield self._block, term, data

    def remove(self, passages: Iterable[int]) -> None:
        """Removes passages, which are written."""
        by_block: defaultdict[int, list[int]] = defaultdict(list)
        for passage in passages:
            by_block[passage // POSTINGS_BLOCK].append(passage % POSTINGS_BLOCK)
        for block, rows in sorted(by_block.items()):
            row = self.db.execute("SELECT lengths, gone FROM blocks WHERE block = ?", (block,)).fetchone()
            if row is None:  # passages without terms
                continue
            lengths_N, gone = np.frombuffer(row[0], "<u4").copy(), row[1]
            lengths_N[rows] = 0
            gone += len(rows)
            if gone > np.count_nonzero(lengths_N):
                self._squeeze(block, lengths_N)
                gone = 0
            self._put(block, lengths_N, gone)

    def _squeeze(self, block: int, lengths_N: Lengths) -> None:
        """Leaves removed passages out of the arrays of a block."""
        sql = "SELECT term, rows FROM postings WHERE block = ?"
        changed: list[tuple[bytes, str]] = []
        for term, data in self.db.execute(sql, (block,)):
            rows, times = unpack_postings(data)
            left = lengths_N[rows] > 0
            if not left.all():
                changed.append((pack_postings(rows[left], times[left]), term))
        self.db.executemany(
            "DELETE FROM postings WHERE block = ? AND term = ?", [(block, term) for data, term in changed if not data]
        )
        self.db.executemany(
            "UPDATE postings SET rows = ? WHERE block = ? AND term = ?",
            [(data, block, term) for data, term in changed if data],
        )

    def _put(self, block: int, lengths_N: Lengths, gone: int) -> None:
        if lengths_N.any():
            row = (block, lengths_N.astype("<u4").tobytes(), gone)
            self.db.execute("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?)", row)
        else:
            self.db.execute("DELETE FROM blocks WHERE block = ?", (block,))

    # Reads ------------------------------------------------------------------------------------------------------------

    def blocks(self) -> list[tuple[int, Lengths, int]]:
        """Returns (block, lengths (N,), number of removed passages that are still in its arrays)."""
        rows = self.db.execute("SELECT block, lengths, gone FROM blocks ORDER BY block")
        return [(block, np.frombuffer(data, "<u4"), gone) for block, data, gone in rows]

    def of_block(self, block: int) -> Iterator[tuple[str, _Rows, Times]]:
        """Yields the terms of a block with their arrays."""
        for term, data in self.db.execute("SELECT term, rows FROM postings WHERE block = ?", (block,)):
            yield term, *unpack_postings(data)

    def mean_length(self) -> float:
        """Returns the mean number of terms of a passage that has some."""
        lengths = [lengths_N for _, lengths_N, _ in self.blocks()]
        return float(sum(int(one.sum()) for one in lengths) / max(1, sum(np.count_nonzero(one) for one in lengths)))

    def state(self, change: int) -> State:
        """Returns the norms of the passages. change: the number of the index's last change."""
        state = self._state
        if state is None or state.change != change:
            blocks, mean = self.blocks(), self.mean_length()
            norms = {block: (_norm(lengths_N, mean), gone > 0) for block, lengths_N, gone in blocks}
            passages = sum(int(np.count_nonzero(lengths_N)) for _, lengths_N, _ in blocks)
            state = self._state = State(change, passages, norms)
        return state

    def sizes(self, terms: Iterable[str], state: State) -> Counter[str]:
        """Returns how many passages have each term, removed ones included; no entry for a term that none has."""
        sizes: Counter[str] = Counter()
        for block in state.norms:
            for term, size in self._asked(block, terms, "length(rows)"):
                sizes[term] += size // 3
        return sizes

    def best(self, query: Mapping[str, int], top: int, state: State) -> list[tuple[int, float]]:
        """Returns (passage, BM25 score) of the passages with the highest scores, best first.

        query: the terms, and how often the question has each. The idf is that of Lucene: log(1 + (N - n + .5) /
        (n + .5)).
        """
        blocks = {
            block: {term: unpack_postings(data) for term, data in self._asked(block, query, "rows")}
            for block in state.norms
        }
        holding: Counter[str] = Counter()
        for block, terms in blocks.items():
            norm_N, gaps = state.norms[block]
            for term, (rows, _) in terms.items():
                holding[term] += int(np.isfinite(norm_N[rows]).sum()) if gaps else len(rows)
        weights = {
            term: np.float32(query[term] * (K1 + 1) * np.log1p((state.passages - n + 0.5) / (n + 0.5)))
            for term, n in holding.items()
        }
        best: list[tuple[int, float]] = []
        for block, terms in blocks.items():
            norm_N, _ = state.norms[block]
            scores_N = np.zeros(len(norm_N), np.float32)
            for term, (rows, times) in terms.items():
                times_P = times.astype(np.float32)
                scores_N[rows] += weights[term] * times_P / (times_P + norm_N[rows])
            least = best[top - 1][1] if len(best) >= top else 0.0
            chosen = np.flatnonzero(scores_N > least)
            if len(chosen) > top:
                limit = np.partition(scores_N[chosen], -top)[-top]
                chosen = chosen[scores_N[chosen] >= limit]
            chosen = chosen[np.argsort(-scores_N[chosen], kind="stable")[:top]]
            best += zip((chosen + block * POSTINGS_BLOCK).tolist(), scores_N[chosen].tolist(), strict=True)
            best = sorted(best, key=lambda one: (-one[1], one[0]))[:top]
        return best

    def _asked(self, block: int, terms: Iterable[str], what: str) -> Iterator[tuple[str, Any]]:
        listed = [*terms]
        for part in (listed[start : start + LISTED] for start in range(0, len(listed), LISTED)):
            marks = ",".join("?" * len(part))
            yield from self.db.execute(
                f"SELECT term, {what} FROM postings WHERE block = ? AND term IN ({marks})", (block, *part)
            )


def _norm(lengths_N: Lengths, mean: float) -> Float:
    """Returns the length norm of each passage; infinite for none, so that its score is 0."""
    norm_N = K1 * (1 - B + B * lengths_N.astype(np.float32) / np.float32(mean or 1))
    return np.where(lengths_N > 0, norm_N, np.inf).astype(np.float32)
