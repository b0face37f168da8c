"""Counterfactual texts: words of one group become those of another and the reverse, in their case.

He met his wife. -> She met her husband.        아들이 -> 딸이, 누나는 -> 형은
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bertie.apps.perturb.particles import followed, is_ending

_WORD = re.compile(r"[가-힣]+|[^\W\d_]+(?:'[^\W\d_]+)?")
_HANGUL = re.compile(r"[가-힣]")
_OBJECT = re.compile(
    r"\s*(?:$|[.,;:!?)\]\"]|(?:and|or|to|in|on|at|for|with|from|that|when|as|by|about|again|was|is)\b)"
)
"""What follows the pronoun "her" as an object: the end of a clause or a function word."""


@dataclass(frozen=True)
class Swaps:
    """Pairs of words. Each word has one partner, except "her": him as an object, otherwise his.

    pairs: lower-case word -> its partner, in both directions. names: lower-case words that need a capital letter.
    firsts: the first words of all pairs.
    """

    pairs: Mapping[str, str]
    names: frozenset[str] = frozenset()
    firsts: frozenset[str] = frozenset()
    _prefixes: Mapping[str, tuple[str, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        korean: dict[str, list[str]] = {}
        for word in sorted(self.pairs, key=len, reverse=True):
            if _HANGUL.match(word):
                korean.setdefault(word[0], []).append(word)
        object.__setattr__(self, "_prefixes", {first: tuple(words) for first, words in korean.items()})

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> "Swaps":
        """Returns both directions of pairs. The first partner of a word counts."""
        partners, names, firsts = dict[str, str](), set[str](), set[str]()
        for first, second in pairs:
            firsts.add(first.lower())
            partners.setdefault(first.lower(), second)
            partners.setdefault(second.lower(), first)
            names |= {word.lower() for word in (first, second) if word[:1].isupper()}
        return cls(partners, frozenset(names), frozenset(firsts))

    def __call__(self, text: str) -> str:
        """Returns the text with all words exchanged; the same text where it has none of them."""
        return _WORD.sub(lambda match: self._partner(match, text), text)

    def side(self, text: str) -> int | None:
        """Returns 0 if all exchanged words of a text are first words of pairs, 1 if none is; None otherwise."""
        words = [match for match in _WORD.finditer(text) if self._partner(match, text) != match[0]]
        sides = {self._key(match[0]) not in self.firsts for match in words}
        return int(sides.pop()) if len(sides) == 1 else None

    def count(self, text: str) -> int:
        """Returns the number of words that are exchanged."""
        return sum(self._partner(match, text) != match[0] for match in _WORD.finditer(text))

    def _key(self, word: str) -> str:
        """Returns the word of a pair with which a word begins."""
        if not _HANGUL.match(word):
            return word.partition("'")[0].lower()
        starts = (
            one for one in self._prefixes.get(word[0], ()) if word.startswith(one) and is_ending(word[len(one) :])
        )
        return next(starts, word)

    def _partner(self, match: re.Match[str], text: str) -> str:
        word = match[0]
        if _HANGUL.match(word):
            start = self._key(word)
            partner = self.pairs.get(start)
            return word if partner is None else partner + followed(partner, word[len(start) :])
        base, mark, ending = word.partition("'")
        key = base.lower()
        partner = self.pairs.get(key)
        if partner is None or (key in self.names and not base[:1].isupper()):
            return word
        if key == "her" and "him" in self.pairs and _OBJECT.match(text, match.end()):
            partner = "him"
        return _in_case(partner, base) + mark + ending


def _in_case(partner: str, word: str) -> str:
    if len(word) > 1 and word.isupper():
        return partner.upper()
    return partner[:1].upper() + partner[1:] if word[:1].isupper() else partner
