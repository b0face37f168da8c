"""Trains WordPiece by likelihood: joins the pair whose joining gains most for its counts. Schuster and Nakajima 2012.

    gain(a, b) = count(ab) / (count(a) count(b))      among pairs that occur at least `least` times

Wu et al. 2016, 4.1, describe the same trainer; its program was not released. Without the least count, pairs of rare
characters would come first: a pair of two characters that occur once has the largest gain there is.

P slots of pairs that are frequent enough
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

CONTINUES = "##"
SWEPT = 1_000  # merges between two removals of dead slots

Pair = tuple[int, int]


def split(word: str) -> list[str]:
    """Returns a word's characters as pieces: a ##b ##c."""
    return [word[:1], *(CONTINUES + character for character in word[1:])]


def learn(words: Mapping[str, int], *, pieces: Sequence[str], count: int, least: int) -> list[str]:
    """Returns up to `count` pieces in the order in which they are joined.

    Args:
        words: The count of each word.
        pieces: The pieces of single characters, with "##" inside a word.
        count: Maximum number of new pieces.
        least: Minimum count of a pair.
    """
    state = _State(words, pieces, least)
    found: list[str] = []
    while len(found) < count and (pair := state.best()) is not None:
        if (name := state.join(pair)) is not None:
            found.append(name)
    return found


class _State:
    """The words as pieces, and the counts of pieces and pairs.

    A gain changes whenever a count of its two pieces does, so that no queue stays in order. The gains of all frequent
    pairs are computed again for each join, which numpy does in less time than a join takes.
    """

    def __init__(self, words: Mapping[str, int], pieces: Sequence[str], least: int) -> None:
        self.names = list(pieces)
        self.ids = {name: i for i, name in enumerate(self.names)}
        self.words = [[self.ids[piece] for piece in split(word)] for word in words]
        self.counts, self.least = list(words.values()), max(1, least)
        self.piece_counts = np.zeros(2 * len(pieces) + 1024, np.int64)
        self.pairs, self.where = Counter[Pair](), dict[Pair, set[int]]()
        for number, (word, count) in enumerate(zip(self.words, self.counts, strict=True)):
            np.add.at(self.piece_counts, word, count)
            for pair in pairwise(word):
                self.pairs[pair] += count
                self.where.setdefault(pair, set()).add(number)
        self.joins = 0
        self._sweep()

    def _sweep(self) -> None:
        """Gives a slot to each frequent pair."""
        live = [pair for pair, count in self.pairs.items() if count >= self.least]
        self.slots = {pair: slot for slot, pair in enumerate(live)}
        self.pair_of = live
        room = 2 * len(live) + 1024
        self.sides_P2 = np.zeros((room, 2), np.int64)
        self.sides_P2[: len(live)] = np.array(live, np.int64).reshape(-1, 2)
        self.count_P = np.zeros(room, np.int64)
        self.count_P[: len(live)] = [self.pairs[pair] for pair in live]

    def best(self) -> Pair | None:
        """Returns the pair with the largest gain, of equals the first by name; None where none is frequent enough."""
        size = len(self.pair_of)
        gains_P = self.count_P[:size] / np.maximum(1, self.piece_counts[self.sides_P2[:size]]).prod(-1, dtype=float)
        top = gains_P.max(initial=0.0)
        if top <= 0:
            return None
        equals = [self.pair_of[slot] for slot in np.flatnonzero(gains_P == top).tolist()]
        return min(equals, key=lambda pair: (self.names[pair[0]], self.names[pair[1]]))

    def join(self, pair: Pair) -> str | None:
        """Joins a pair wherever it stands. Returns the new piece, or None where another pair has made it before."""
        first, second = pair
        name = self.names[first] + self.names[second].removeprefix(CONTINUES)
        new = self.ids.get(name)
        fresh = new is None
        if new is None:
            new = self.ids[name] = len(self.names)
            self.names.append(name)
            if new >= len(self.piece_counts):
                self.piece_counts = np.concatenate([self.piece_counts, np.zeros_like(self.piece_counts)])
        for number in sorted(self.where[pair]):
            self._rewrite(number, pair, new)
        self.joins += 1
        if self.joins % SWEPT == 0 or len(self.pair_of) + 1024 > len(self.count_P):
            self._sweep()
        return name if fresh else None

    def _rewrite(self, number: int, pair: Pair, new: int) -> None:
        word, count = self.words[number], self.counts[number]
        joined, at = list[int](), 0
        while at < len(word):
            if word[at : at + 2] == [*pair]:
                joined.append(new)
                at += 2
            else:
                joined.append(word[at])
                at += 1
        times = len(word) - len(joined)
        if not times:
            return
        for piece, change in ((pair[0], -times), (pair[1], -times), (new, times)):
            self.piece_counts[piece] += change * count
        before, after = Counter(pairwise(word)), Counter(pairwise(joined))
        for each in {**before, **after}:
            self._add(each, (after[each] - before[each]) * count)
            if not after[each]:
                self.where[each].discard(number)
            elif not before[each]:
                self.where.setdefault(each, set()).add(number)
        self.words[number] = joined

    def _add(self, pair: Pair, change: int) -> None:
        self.pairs[pair] += change
        total = self.pairs[pair]
        slot = self.slots.get(pair)
        if slot is None and total >= self.least and len(self.pair_of) < len(self.count_P):
            slot = self.slots[pair] = len(self.pair_of)
            self.pair_of.append(pair)
            self.sides_P2[slot] = pair
        if slot is not None:
            self.count_P[slot] = total if total >= self.least else 0
