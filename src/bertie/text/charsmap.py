"""The compiled normalization rules of a SentencePiece model ("charsmap"), checked before the library reads them.

The library does not check them: damaged rules make it read beyond the end of an array, which ends the process. Four
bytes contain the size of a trie of byte strings (a double array, 32 bits per unit). The replacements follow, each ended
by a zero byte. google/sentencepiece, src/normalizer.cc; the library's reader is the crate spm_precompiled.
"""

import numpy as np

_BYTES = np.arange(1, 256)


def check_charsmap(data: bytes) -> None:
    """Raises ValueError unless all positions that a text can lead to are inside the rules."""
    size = int.from_bytes(data[:4], "little")
    if len(data) < 4 or not 0 < size <= len(data) - 4 or size % 4:
        raise ValueError(f"its charsmap of {len(data):,} bytes is truncated")
    units, replacements = np.frombuffer(data, "<u4", size // 4, 4).astype(np.int64), data[4 + size :]
    replacements.decode()
    offsets = (units >> 10) << ((units & 1 << 9) >> 6)
    labels = units & (1 << 31 | 0xFF)
    mask = np.zeros(len(units), np.bool_)
    bases = offsets[:1]  # where the children of the nodes just reached begin: that of byte c at base ^ c
    while len(bases):
        if (bases | 0xFF).max() >= len(units):
            raise ValueError("its charsmap points beyond its end")
        bases = np.unique(bases[~mask[bases]])
        mask[bases] = True
        positions = bases[:, None] ^ _BYTES
        reached = positions[labels[positions] == _BYTES]
        bases = reached ^ offsets[reached]
        ends = bases[units[reached] >> 8 & 1 == 1]
        if len(ends) and (ends.max() >= len(units) or not _begin(units[ends] & (1 << 31) - 1, replacements)):
            raise ValueError("its charsmap has a replacement that does not exist")


def _begin(starts: np.ndarray, text: bytes) -> bool:
    """Returns whether a character, or the end, begins at each of these positions of a UTF-8 text."""
    heads = np.append((np.frombuffer(text, np.uint8) & 0xC0) != 0x80, True)
    return bool(starts.max() <= len(text)) and bool(heads[starts].all())
