"""Statistics of a corpus as numbers that can be added and subtracted."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertie.files import JsonObject

Int64 = NDArray[np.int64]

MAX_SENTENCE_WORDS = 255  # words; longer sentences are counted as this long

# Letters by script, as ranges of code points (Unicode 16, Blocks.txt); what is left is "other".
SCRIPTS = {
    "Latin": [(0x41, 0x5B), (0x61, 0x7B), (0xC0, 0x250), (0x1E00, 0x1F00)],
    "Hangul": [(0xAC00, 0xD7A4), (0x1100, 0x1200), (0x3130, 0x3190), (0xFFA0, 0xFFDD)],
    "Han": [(0x4E00, 0xA000), (0x3400, 0x4DC0), (0xF900, 0xFB00), (0x20000, 0x32000)],
    "Kana": [(0x3041, 0x3100), (0x31F0, 0x3200), (0xFF66, 0xFFA0)],
    "Cyrillic": [(0x400, 0x530)],
    "Greek": [(0x370, 0x400), (0x1F00, 0x2000)],
    "Arabic": [(0x620, 0x700), (0x750, 0x780)],
    "Hebrew": [(0x5D0, 0x5F3)],
    "Devanagari": [(0x900, 0x980)],
    "Thai": [(0xE01, 0xE5C)],
}
_OTHER_LETTERS = [(0x250, 0x370), (0x530, 0x590), (0x780, 0x900), (0x980, 0xE00), (0xE80, 0x1100), (0x1200, 0x1E00)]
_LETTERS = [*SCRIPTS, "other"]


@dataclass(frozen=True)
class Statistics:
    """characters, words (between spaces); lengths (LONGEST + 1,): sentences by words; scripts: letters of each."""

    characters: int
    words: int
    lengths: Int64
    scripts: Int64

    @classmethod
    def zero(cls) -> "Statistics":
        """Returns the statistics of no text."""
        return cls(0, 0, np.zeros(MAX_SENTENCE_WORDS + 1, np.int64), np.zeros(len(_LETTERS), np.int64))

    @classmethod
    def of(cls, values: NDArray[np.uint8], sentences: Int64) -> "Statistics":
        """Returns the statistics of UTF-8 text (V,) whose sentences, none empty, have the bounds (M + 1,)."""
        if len(sentences) < 2:
            return cls.zero()
        spaces = np.diff(np.searchsorted(np.flatnonzero(values == 0x20), sentences))
        beyond = values[values >= 0x80]
        characters = len(values) - int(np.count_nonzero((beyond & 0xC0) == 0x80))
        # The bytes beyond ASCII, put end to end, are the characters beyond ASCII.
        points = np.frombuffer(beyond.tobytes().decode().encode("utf-32-le"), np.uint32)
        scripts_N = _script_of()[points]
        scripts = np.array([np.count_nonzero(scripts_N == number) for number in range(1, len(_LETTERS) + 1)])
        scripts[0] += np.count_nonzero((values | 0x20) - np.uint8(0x61) < 26)  # A to Z, a to z
        lengths = np.bincount(np.minimum(spaces + 1, MAX_SENTENCE_WORDS), minlength=MAX_SENTENCE_WORDS + 1)
        return cls(characters, int(spaces.sum()) + len(spaces), lengths, scripts)

    def __add__(self, other: "Statistics") -> "Statistics":
        return Statistics(*(mine + theirs for mine, theirs in zip(self._all, other._all, strict=True)))

    def __sub__(self, other: "Statistics") -> "Statistics":
        return Statistics(*(mine - theirs for mine, theirs in zip(self._all, other._all, strict=True)))

    @property
    def _all(self) -> tuple[Any, ...]:
        return self.characters, self.words, self.lengths, self.scripts

    def to_dict(self) -> dict[str, object]:
        """Returns JSON values."""
        return {
            "characters": self.characters,
            "words": self.words,
            "lengths": self.lengths.tolist(),
            "scripts": {name: count for name, count in zip(_LETTERS, self.scripts.tolist(), strict=True) if count},
        }

    @classmethod
    def from_dict(cls, tree: JsonObject) -> "Statistics":
        """Returns statistics from `to_dict`'s values."""
        scripts = [tree["scripts"].get(name, 0) for name in _LETTERS]
        return cls(tree["characters"], tree["words"], np.array(tree["lengths"]), np.array(scripts))


@cache
def _script_of() -> NDArray[np.uint8]:
    """Code point -> 1 + its index in _LETTERS, 0 when it is not a letter."""
    table = np.zeros(0x110000, np.uint8)
    for number, ranges in enumerate([*SCRIPTS.values(), _OTHER_LETTERS], 1):
        for start, stop in ranges:
            table[start:stop] = number
    table[[0xD7, 0xF7]] = 0  # × and ÷
    return table


def quantiles(histogram: Int64, shares: tuple[float, ...]) -> list[int]:
    """Returns the quantiles of a histogram over 0, 1, 2 ..."""
    total = np.cumsum(histogram)
    return [int(np.searchsorted(total, share * total[-1])) for share in shares]
