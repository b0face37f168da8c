"""The words of an encoded text, of which attributions are sums. Needs no torch."""

from typing import NamedTuple

from bertie.platform import Encoding

NO_WORDS = "The text has no words to explain."
NO_ANSWER = "The text after the question has no words, so there is no answer to explain."


class Word(NamedTuple):
    """A word: of which text it is (None: a special token), its characters there, and its tokens."""

    text: int | None
    start: int
    end: int
    tokens: list[int]


def text_words(encoding: Encoding) -> list[Word]:
    """Returns the words in order; each special token is a word of its own."""
    words, last = list[Word](), (-1, -1)
    for number, ((start, end), word, text) in enumerate(
        zip(encoding.offsets, encoding.word_ids, encoding.sequence_ids, strict=True)
    ):
        if text is not None and (text, word) == last:
            words[-1] = words[-1]._replace(end=end, tokens=[*words[-1].tokens, number])
        else:
            words.append(Word(text, start, end, [number]))
        last = (-1 if text is None else text, -1 if word is None else word)
    return words
