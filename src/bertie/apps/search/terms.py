"""Terms of the lexical index: what must be equal in a question and in a passage.

    "The cats sat"  -> the cat sat       words, lower case, with the English Snowball stemmer
    "학교에서"       -> 학교 교에 에서       pairs of neighboring syllables, as of Chinese and Japanese characters

Pairs need no dictionary. On KorQuAD they find far more than words do, since Korean particles are part of the word
(docs/search.md has the numbers). Kiwi adds morphemes.
"""

import re
import threading
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, Literal

from bertie.platform import PlainText

English = Literal["stems", "words"]
Korean = Literal["pairs", "kiwi", "words"]

# Apache Lucene's list for English. They take most of the time of a search, and on Cranfield they cost accuracy.
_FREQUENT = """a an and are as at be but by for if in into is it no not of on or such that the their then there these
they this to was will with"""
STOP = frozenset(_FREQUENT.split())
_PAIRED = "가-힣ㄱ-ㆎ぀-ヿ㐀-䶿一-鿿"  # scripts whose words have no spaces, or carry particles
_TOKEN = re.compile(rf"([{_PAIRED}]+)|([^\W{_PAIRED}]+)")
_WORD = re.compile(r"\w+")
_CONTENT = ("N", "V", "M", "X", "S")  # of Kiwi's tags: no particles, endings and punctuation
_PUNCTUATION = ("SF", "SP", "SS", "SE", "SO", "SW", "SB")


@dataclass(frozen=True)
class Terms:
    """A function from text to terms. Its settings are stored in the index, and a question is cut like a passage.

    Attributes:
        english: stems, or words as they are.
        korean: pairs of syllables; kiwi: pairs and morphemes (needs the extra [ko]); words: separated by spaces.
        word_splitter: A word splitter, such as one of a package, whose words are terms too.

    Raises UsageError for kiwi when kiwipiepy is not installed, and for an unknown word splitter.
    """

    english: English = "stems"
    korean: Korean = "pairs"
    word_splitter: str = ""

    def __post_init__(self) -> None:
        if self.korean == "kiwi":
            PlainText("").morphemes()
        if self.word_splitter:
            PlainText("").words(self.word_splitter)

    def __call__(self, text: str) -> list[str]:
        """Returns the terms of a text in order, with repetitions."""
        written = unicodedata.normalize("NFKC", text)
        return [*self._usual(written.casefold()), *(self._split(written) if self.word_splitter else ())]

    def _split(self, text: str) -> Iterator[str]:
        """Yields the words that the splitter cuts: words that it leaves whole are terms already."""
        usual = {*_WORD.findall(text)}
        for word in _WORD.findall(" ".join(PlainText(text).words(self.word_splitter))):
            if word not in usual:
                yield self._word(word.casefold())

    def _usual(self, text: str) -> list[str]:
        if self.korean == "words":
            return [self._word(word) for word in _WORD.findall(text)]
        result = [term for match in _TOKEN.finditer(text) for term in self._cut(match)]
        return result + list(_morphemes(text)) if self.korean == "kiwi" else result

    def asked(self, text: str) -> list[str]:
        """Returns the terms of a question: without the most frequent English words, unless there are no others."""
        result = self(text)
        return [term for term in result if term not in STOP] or result

    def of_word(self) -> Callable[[str], frozenset[str]]:
        """Returns a function from a single word to its terms, without morphemes: what is marked in a passage."""
        return _of_word(replace(self, korean="pairs") if self.korean == "kiwi" else self)

    def _cut(self, match: re.Match[str]) -> list[str]:
        run: str | None = match[1]
        if run is None:
            return [self._word(match[2])]
        return [run[i : i + 2] for i in range(len(run) - 1)] or [run]

    def _word(self, word: str) -> str:
        return stem(word) if self.english == "stems" and word.isascii() else word


def _morphemes(text: str) -> Iterator[str]:
    """Yields the forms of nouns, verbs and other words with content."""
    for token in PlainText(text).morphemes():
        if token.tag.startswith(_CONTENT) and not token.tag.startswith(_PUNCTUATION) and _TOKEN.fullmatch(token.form):
            yield token.form


@cache
def _of_word(terms: Terms) -> Callable[[str], frozenset[str]]:
    return lru_cache(1 << 17)(lambda word: frozenset(terms(word)))


@lru_cache(1 << 18)
def stem(word: str) -> str:
    """Returns the English stem of a word in lower case. Porter's second algorithm, snowballstem.org."""
    with _LOCK:
        return str(_stemmer().stemWord(word))


_LOCK = threading.Lock()  # a stemmer has state


@cache
def _stemmer() -> Any:
    import snowballstemmer

    return snowballstemmer.stemmer("english")
