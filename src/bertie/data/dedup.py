"""Deduplication: exact duplicates by a hash of the text, near duplicates by MinHash (Broder 1997). The first one is
kept.

Near duplicates are searched band by band (Indyk and Motwani 1998). Texts with equal values in all rows of a band of
their signatures share a bucket. A text is compared with the other candidates of the bucket, so not all pairs of texts
are compared. The memory is about 50 bytes per text; the signatures, 512 bytes each, may be a memory-mapped file.

N texts · P = PERMUTATIONS
"""

import re

import numpy as np
import xxhash
from numpy.typing import NDArray

from bertie.console import console
from bertie.order import U64, key, mix

_ALONE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"  # kana and Han, Unicode 16 (Blocks.txt)
_WORD = re.compile(rf"[{_ALONE}]|[^\W{_ALONE}]+")
_BASE = 0xD6E8FEB86659FD93  # any odd number has an inverse modulo 2^64
_INVERSE = pow(_BASE, -1, 1 << 64)


def word_hashes(text: str) -> U64:
    """Returns the words of a text, (n,), each as its xxh3-64."""
    words = "\n".join(_WORD.findall(text.lower())).encode().split()
    return np.frombuffer(b"".join(map(xxhash.xxh3_64_digest, words)), ">u8").astype(np.uint64)


def runs(words_n: U64, length: int) -> U64:
    """Returns every n-gram of `length` consecutive words as one number. (n,) -> (max(0, n - length + 1),)

    A polynomial hash (Karp and Rabin 1987), modulo 2^64: the cost does not depend on the length.
    """
    n = len(words_n)
    if n < length:
        return np.empty(0, np.uint64)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(words_n * _powers(_BASE, n), dtype=np.uint64)])
    return mix((sums[length:] - sums[:-length]) * _powers(_INVERSE, n - length + 1))


def _powers(base: int, n: int) -> U64:
    """base^1 ... base^n modulo 2^64."""
    return np.multiply.accumulate(np.full(n, base, np.uint64))


Mask = NDArray[np.bool_]
Signatures = NDArray[np.uint32]

HASH = np.dtype([("high", "<u8"), ("low", "<u8")])  # xxh3-128: among 10^12 texts, a chance of 10^-15 of a false match
PERMUTATIONS = 128  # an estimated similarity is off by 0.035 (one standard deviation, at 0.8)
SHINGLE = 5  # words
FOUND = 0.95  # the share of pairs right at the threshold that must meet in a bucket; more alike ones nearly all do
LEADERS = 64  # of a bucket: texts that a text is compared with; bounds the time where thousands are half alike
_BLOCK = 1 << 13  # shingles, or texts, at once: 8 MB

_FACTORS, _TERMS = (key(0x516, n, np.arange(PERMUTATIONS)) for n in (0, 1))


def first_seen(hashes: NDArray[np.void]) -> Mask:
    """Returns which of N hashes (dtype HASH) occur for the first time. -> (N,) bool"""
    order = np.lexsort((hashes["low"], hashes["high"]))  # stable: among equals the first stays first
    ordered = hashes[order]
    first = np.ones(len(hashes), np.bool_)
    first[order[1:]] = ordered[1:] != ordered[:-1]
    return first


def signature(text: str) -> Signatures:
    """Returns the MinHash (P,) of a text's word 5-grams. The fraction of equal values estimates the Jaccard similarity.

    A shorter text is one n-gram. The hashes are multiply-add-shift of the n-grams' numbers.
    """
    hashes = word_hashes(text)
    shingles = (
        runs(hashes, min(SHINGLE, len(hashes)))
        if len(hashes)
        else key(xxhash.xxh3_64_intdigest(text.encode())).reshape(1)
    )
    least = np.full(PERMUTATIONS, np.iinfo(np.uint32).max, np.uint32)
    for start in range(0, len(shingles), _BLOCK):
        hashed = shingles[start : start + _BLOCK] * (_FACTORS | np.uint64(1))[:, None] + _TERMS[:, None]
        least = np.minimum(least, (hashed >> np.uint64(32)).min(axis=1).astype(np.uint32))
    return least


def rows_in_band(threshold: float) -> int:
    """Returns the maximum size of a band with which a pair at the threshold shares a bucket with probability FOUND."""
    fit = (r for r in range(PERMUTATIONS, 1, -1) if 1 - (1 - threshold**r) ** (PERMUTATIONS // r) >= FOUND)
    return next(fit, 1)


def first_alike(signatures: Signatures, candidates: Mask, threshold: float) -> Mask:
    """Returns which of N texts are candidates without an earlier near duplicate. (N, P), (N,) -> (N,) bool

    Near duplicates have an estimated Jaccard similarity of at least `threshold`. Removed texts still count as
    references:
    in a chain of texts, each similar to the one before, possibly only the first is kept. Pairs without a common bucket
    are
    not found.
    """
    mask = candidates.copy()
    rows = rows_in_band(threshold)
    bands = range(0, PERMUTATIONS - rows + 1, rows)
    with console.progress("comparing", len(bands), unit="bands") as advance:
        for band in bands:
            numbers = np.flatnonzero(mask)
            keys = np.concatenate([_keys(signatures[some, band : band + rows]) for some in _blocks(numbers)])
            order = np.argsort(keys, kind="stable")
            numbers, keys = numbers[order], keys[order]
            for _ in range(LEADERS):
                heads = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)])
                leaders = np.repeat(numbers[heads], np.diff(np.append(heads, len(keys))))
                followers = leaders != numbers
                leaders, numbers, keys = leaders[followers], numbers[followers], keys[followers]
                alike = _similarity(signatures, leaders, numbers) >= threshold
                mask[numbers[alike]] = False
                numbers, keys = numbers[~alike], keys[~alike]
                if not len(numbers):
                    break
            advance()
    return mask


def _keys(band_NR: Signatures) -> U64:
    """Returns one number for the values of each text in a band. (N, R) -> (N,)"""
    keys = np.zeros(len(band_NR), np.uint64)
    for column in band_NR.T:
        keys = mix(keys ^ column)
    return keys


def _similarity(signatures: Signatures, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns the fraction of equal values of pairs of texts. (R,), (R,) -> (R,)"""
    pairs = zip(_blocks(a), _blocks(b), strict=True)
    return np.concatenate([(signatures[some] == signatures[others]).mean(axis=1) for some, others in pairs])


def _blocks(numbers: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    return [numbers[start : start + _BLOCK] for start in range(0, max(len(numbers), 1), _BLOCK)]
