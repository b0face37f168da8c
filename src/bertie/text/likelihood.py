"""Trains WordPiece by likelihood: joins the pair whose joining gains most for its counts. Schuster and Nakajima 2012.

    gain(a, b) = count(ab) / (count(a) count(b))      among pairs that occur at least `least` times

Wu et al. 2016, 4.1, describe the same trainer; its program was not released. Without the least count, pairs of rare
characters would come first: a pair of two characters that occur once has the largest gain there is.

P slots of pairs that are frequent enough
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

CONTINUES = "##"
SWEPT = 1_000  # merges between two removals of dead slots

_Pair = tuple[int, int]


def initial_pieces(word: str) -> list[str]:
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
    tokens: list[str] = []
    while len(tokens) < count and (pair := state.best()) is not None:
        if (name := state.join(pair)) is not None:
            tokens.append(name)
    return tokens


class _State:
    """The words as pieces, and the counts of pieces and pairs.

    A gain changes whenever a count of its two pieces does, also upward, so that no queue stays in order. A join changes
    the counts of three pieces: the gains of their pairs alone are computed again, and numpy finds the largest of all.
    """

    def __init__(self, words: Mapping[str, int], pieces: Sequence[str], least: int) -> None:
        self.names = list(pieces)
        self.ids = {name: i for i, name in enumerate(self.names)}
        self.words = [[self.ids[piece] for piece in initial_pieces(word)] for word in words]
        self.counts, self.least = list(words.values()), max(1, least)
        self.pairs, self.where = dict[_Pair, int](), dict[_Pair, list[int]]()
        totals = [0] * len(self.names)
        for number, (word, count) in enumerate(zip(self.words, self.counts, strict=True)):
            for piece in word:
                totals[piece] += count
            for pair in pairwise(word):
                self.pairs[pair] = self.pairs.get(pair, 0) + count
                self.where.setdefault(pair, []).append(number)
        self.piece_counts = np.zeros(2 * len(pieces) + 1024)
        self.piece_counts[: len(totals)] = totals
        self.joins = 0
        self._sweep()

    def _sweep(self) -> None:
        """Gives a slot to each frequent pair."""
        live = [pair for pair, count in self.pairs.items() if count >= self.least]
        self.pair_of, self.slots = live, {pair: slot for slot, pair in enumerate(live)}
        self.slots_of: list[list[int]] = [[] for _ in self.names]
        for slot, pair in enumerate(live):
            for piece in {*pair}:
                self.slots_of[piece].append(slot)
        room = 2 * len(live) + 1024
        self.sides_2P = np.zeros((2, room), np.int64)
        self.sides_2P[:, : len(live)] = np.array(live, np.int64).reshape(-1, 2).T
        self.count_P, self.gains_P = np.zeros(room), np.zeros(room)
        self.count_P[: len(live)] = [self.pairs[pair] for pair in live]
        self._weigh(np.arange(len(live)))

    def _weigh(self, slots: NDArray[np.int64]) -> None:
        """Computes the gains of some pairs."""
        first, second = self.piece_counts[self.sides_2P[:, slots]]
        self.gains_P[slots] = self.count_P[slots] / np.maximum(1, first * second)

    def best(self) -> _Pair | None:
        """Returns the pair with the largest gain, of equals the first by name; None where none is frequent enough."""
        gains_P = self.gains_P[: len(self.pair_of)]
        top = gains_P.max(initial=0.0)
        if top <= 0:
            return None
        equals = [self.pair_of[slot] for slot in np.flatnonzero(gains_P == top).tolist()]
        return min(equals, key=lambda pair: (self.names[pair[0]], self.names[pair[1]]))

    def join(self, pair: _Pair) -> str | None:
        """Joins a pair wherever it stands. Returns the new piece, or None where another pair has made it before."""
        first, second = pair
        name = self.names[first] + self.names[second].removeprefix(CONTINUES)
        new = self.ids.get(name)
        fresh = new is None
        if new is None:
            new = self.ids[name] = len(self.names)
            self.names.append(name)
            self.slots_of.append([])
            if new >= len(self.piece_counts):
                self.piece_counts = np.concatenate([self.piece_counts, np.zeros_like(self.piece_counts)])
        joined, changes = self._rewrite(pair, new)
        for piece, change in ((first, -joined), (second, -joined), (new, joined)):
            self.piece_counts[piece] += change
        self.joins += 1
        for each, change in changes.items():
            if change:
                self.pairs[each] = self.pairs.get(each, 0) + change
        if self.joins % SWEPT == 0 or len(self.pair_of) + len(changes) > len(self.count_P):
            self._sweep()
        else:
            for each, change in changes.items():
                if change:
                    self._count(each)
            self._weigh(np.array([slot for piece in (first, second, new) for slot in self.slots_of[piece]], np.int64))
        return name if fresh else None

    def _rewrite(self, pair: _Pair, new: int) -> tuple[int, dict[_Pair, int]]:
        """Joins a pair in all words that have it, from the left. Returns how often, and the changes of the counts of
        pairs."""
        first, second = pair
        joined, changes = 0, dict[_Pair, int]()

        def change(each: _Pair, by: int) -> None:
            changes[each] = changes.get(each, 0) + by

        for number in self.where.pop(pair):  # some of them have lost the pair to another join
            word, count, at = self.words[number], self.counts[number], 0
            while at < len(word) - 1:
                if word[at] == first and word[at + 1] == second:
                    change(pair, -count)
                    if at:
                        change((word[at - 1], first), -count)
                        change((word[at - 1], new), count)
                        self.where.setdefault((word[at - 1], new), []).append(number)
                    if at + 2 < len(word):
                        change((second, word[at + 2]), -count)
                        change((new, word[at + 2]), count)
                        self.where.setdefault((new, word[at + 2]), []).append(number)
                    word[at : at + 2] = [new]
                    joined += count
                at += 1
        return joined, changes

    def _count(self, pair: _Pair) -> None:
        """Writes the count of a pair to its slot, which it gets when it is frequent enough."""
        total, slot = self.pairs[pair], self.slots.get(pair)
        if slot is None and total >= self.least:
            slot = self.slots[pair] = len(self.pair_of)
            self.pair_of.append(pair)
            self.sides_2P[:, slot] = pair
            for piece in {*pair}:
                self.slots_of[piece].append(slot)
        if slot is not None:
            self.count_P[slot] = total if total >= self.least else 0
