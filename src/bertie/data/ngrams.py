"""Word n-grams as numbers, so that sets of them are compared without storing text.

A word is a sequence of letters and digits in lower case. Each Han character and each kana is a word, since there are no
spaces between words. Punctuation is ignored.
"""

import re

import numpy as np
import xxhash

from bertie.data.draws import U64, mix

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
