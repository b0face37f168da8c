"""Vectors of words from those of their tokens.

T tokens · W words · H hidden size
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bertie.platform import Encoding, UsageError, nearest

Int = NDArray[np.int64]
Array = NDArray[np.float32]
NOT_A_WORD = -1
POOLINGS = ("mean", "first")
"""How the tokens of a word become one vector: their mean, or the first of them."""


def words_of_tokens(encoding: Encoding, spans: Sequence[tuple[int, int]]) -> Int:
    """Returns the word of each token, NO_WORD for special tokens and tokens outside of words. -> (T,)

    spans: the characters of each word, in order. A token over several words belongs to the first of them.
    """
    starts_W, ends_W = np.array([*spans, (1 << 62, 1 << 62)], np.int64).T
    starts_T, ends_T = np.array(encoding.offsets, np.int64).reshape(-1, 2).T
    words_T = np.searchsorted(ends_W, starts_T, "right")
    outside = (starts_W[words_T] >= ends_T) | np.array([one is None for one in encoding.sequence_ids], np.bool_)
    return np.where(outside, NOT_A_WORD, words_T)


def pooled(vectors: Array, words: Int, pooling: str = "mean") -> Array:
    """Returns one vector per word from those of its tokens: their mean, or the first. vectors (T, H) -> (W, H)

    words (T,): the word of each token in ascending order, or NO_WORD. A word without tokens has no row. Raises
    UsageError for an unknown pooling.
    """
    check_pooling(pooling)
    inside = np.flatnonzero(words != NOT_A_WORD)
    if not len(inside):
        return np.zeros((0, vectors.shape[-1]), np.float32)
    starts = np.flatnonzero(np.diff(words[inside], prepend=NOT_A_WORD))
    if pooling == "first":
        return vectors[inside[starts]]
    counts = np.diff(starts, append=len(inside))
    mean: Array = (np.add.reduceat(vectors[inside], starts, axis=0) / counts[:, None]).astype(np.float32)
    return mean


def check_pooling(pooling: str) -> None:
    """Raises UsageError for an unknown pooling of the tokens of a word."""
    if pooling not in POOLINGS:
        raise UsageError(f"Unknown pooling {pooling!r} of the tokens of a word. {nearest(pooling, POOLINGS)}")
