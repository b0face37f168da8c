"""Duplicates: exact ones by a hash of the text, near ones by MinHash (Broder 1997). The first one stays."""

from typing import Any, Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

from bertie.console import progress
from bertie.errors import UsageError

Mask = NDArray[np.bool_]

HASH = np.dtype([("high", "<u8"), ("low", "<u8")])  # xxh3-128: among 10^12 texts, a chance of 10^-15 of a false match
PERMUTATIONS = 128
SHINGLE = 5  # words; for text without spaces, characters of a word are not looked into


def first_seen(hashes: NDArray[Any]) -> Mask:
    """Which of N hashes (dtype HASH) are the first of their kind. -> (N,) bool"""
    order = np.lexsort((hashes["low"], hashes["high"]))  # stable: among equals the first stays first
    ordered = hashes[order]
    first = np.ones(len(hashes), np.bool_)
    first[order[1:]] = ordered[1:] != ordered[:-1]
    return first


class Signer(Protocol):
    """What makes signatures."""

    def __call__(self, text: str) -> NDArray[np.uint32]:
        """A text's signature, (PERMUTATIONS,)."""
        ...


def signer() -> Signer:
    """The MinHash of a text's runs of five words. Raises UsageError when datasketch is not installed."""
    minhash = _datasketch().MinHash

    def sign(text: str) -> NDArray[np.uint32]:
        words = text.lower().split()
        runs = {" ".join(words[i : i + SHINGLE]) for i in range(max(1, len(words) - SHINGLE + 1))}
        made = minhash(PERMUTATIONS, seed=1, hashfunc=xxhash.xxh32_intdigest)
        made.update_batch([run.encode() for run in runs])
        return made.hashvalues.astype(np.uint32)  # type: ignore[no-any-return]

    return sign


def first_alike(signatures: NDArray[np.uint32], candidates: Mask, threshold: float) -> Mask:
    """Which of N texts are candidates, and like no kept one before them. (N, PERMUTATIONS), (N,) -> (N,) bool

    Alike: an estimated Jaccard similarity of `threshold` or more. What the index of bands misses stays.
    """
    library = _datasketch()
    index = library.MinHashLSH(threshold=threshold, num_perm=PERMUTATIONS)
    kept = np.zeros(len(signatures), np.bool_)
    with progress("comparing", len(signatures), unit="documents") as advance:
        for number in np.flatnonzero(candidates).tolist():
            values = signatures[number]
            minhash = library.MinHash(PERMUTATIONS, seed=1)
            minhash.hashvalues[:] = values
            alike = index.query(minhash)
            if not any((signatures[other] == values).mean() >= threshold for other in alike):
                index.insert(number, minhash)
                kept[number] = True
            advance()
    return kept


def _datasketch() -> Any:
    try:
        import datasketch
    except ImportError:
        raise UsageError(
            'Near duplicates need the package datasketch, which is not installed. Run: pip install "bertie[dedup]" '
            "(exact duplicates need nothing)."
        ) from None
    return datasketch
