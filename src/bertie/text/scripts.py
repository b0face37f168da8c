"""The script of a word, and of a text: Latin, Hangul, Han ...

A letter's script is the first word of its name in Unicode.
"""

import unicodedata
from collections import Counter
from functools import lru_cache

_READ = 1000  # characters of a text that tell its script
_LETTERS = {"LETTER", "SYLLABLE", "IDEOGRAPH", "CHARACTER", "LIGATURE"}  # what Unicode calls the letters of scripts


def script(word: str) -> str:
    """Returns the script of a word's first letter (Latin, Hangul, Han ...), "number", or "symbol"."""
    return next((kind for kind in map(_script, word) if kind not in ("number", "symbol")), _script(word[:1]))


def main_script(text: str) -> str:
    """Returns the script of most letters among the first 1,000 characters of a text; "none" without letters."""
    counts: Counter[str] = Counter()
    for character, count in Counter(text[:_READ]).items():
        if (name := _script(character)) not in ("number", "symbol"):
            counts[name] += count
    return min(counts, key=lambda name: (-counts[name], name), default="none")


@lru_cache(maxsize=1 << 16)
def _script(character: str) -> str:
    if not character or not character.isalnum():
        return "symbol"
    if not character.isalpha():
        return "number"
    words = unicodedata.name(character, "").split()
    if not words or not any(word.partition("-")[0] in _LETTERS for word in words):
        return "symbol"  # MICRO SIGN, SCRIPT SMALL L
    return {"CJK": "Han", "FULLWIDTH": "Latin", "HALFWIDTH": "half-width"}.get(words[0], words[0].capitalize())
