"""Passages: whole paragraphs up to a size, and parts of longer ones, cut at sentences with one sentence of overlap.

A passage is a substring of its document: `document[start:stop] == passage`.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from bertie.platform import PlainText

PASSAGE_WORDS = 180  # words of a passage, about 250 tokens of English: what a model reads in one sequence
OVERLAP_WORDS = 40  # words at most of the sentence that two passages share

_BREAK = re.compile(r"\n[^\S\n]*\n\s*")
_FILLED = re.compile(r"\S")


def passages(text: str, size: int = PASSAGE_WORDS) -> Iterator[tuple[int, int]]:
    """Yields (start, stop) of each passage, in characters.

    Paragraphs are joined while they fit into `size` words. A longer paragraph is cut after sentences, and a longer
    sentence after words. A short paragraph before a long one, such as a heading, belongs to its first part.
    """
    start = stop = words = 0
    for first, last in _paragraphs(text):
        count = _words(text, first, last)
        if 0 < words <= OVERLAP_WORDS < size < count:  # a heading goes with what follows
            first, words = start, 0
        if words and words + count > size:
            yield start, stop
            words = 0
        if count > size:
            yield from _parts(text, first, last, size)
            continue
        start, stop, words = first if not words else start, last, words + count
    if words:
        yield start, stop


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Yields the paragraphs, which blank lines separate, without the white space around them."""
    ends = [0, *(place for match in _BREAK.finditer(text) for place in match.span()), len(text)]
    for first, last in zip(ends[::2], ends[1::2], strict=True):
        yield from _trimmed(text, first, last)


def _trimmed(text: str, first: int, last: int) -> Iterator[tuple[int, int]]:
    match = _FILLED.search(text, first, last)
    if match:
        yield match.start(), first + len(text[first:last].rstrip())


def _words(text: str, first: int, last: int) -> int:
    return len(text[first:last].split())


def _parts(text: str, first: int, last: int, size: int) -> Iterator[tuple[int, int]]:
    """Yields the parts of a paragraph. A part begins with the last sentence of the part before, if it is short."""
    start = stop = before = first  # before: where the last sentence begins
    words = last_words = 0
    fresh = False  # whether the part has more than the sentence that it shares
    for begin, end in _sentences(text, first, last, size):
        count = _words(text, begin, end)
        if fresh and words + count > size:
            yield start, stop
            shared = last_words <= OVERLAP_WORDS and last_words + count <= size
            start, words, fresh = (before, last_words, False) if shared else (begin, 0, False)
        stop, words, before, last_words, fresh = end, words + count, begin, count, True
    if fresh:
        yield start, stop


def _sentences(text: str, first: int, last: int, size: int) -> Iterator[tuple[int, int]]:
    """Yields the sentences of a paragraph, and pieces of `size` words of a longer one."""
    paragraph = text[first:last]
    if "\n" in paragraph and PlainText(paragraph).wrapped:
        paragraph = paragraph.replace("\n", " ")
    for begin, end in pairwise([0, *PlainText(paragraph).sentence_ends, len(paragraph)]):
        for start, stop in _trimmed(text, first + begin, first + end):
            words = list(re.finditer(r"\S+", text[start:stop]))
            for i in range(0, len(words), size):
                yield start + words[i].start(), start + words[min(i + size, len(words)) - 1].end()
