"""The part of a passage that is shown, and what is marked in it: the answer, or else the words of the question."""

import re
from collections.abc import Callable, Set
from dataclasses import dataclass
from itertools import pairwise

from bertie.apps.search.models import PassageAnswer
from bertie.platform import PlainText

_SNIPPET_CHARACTERS = 240  # characters of a snippet, unless its sentence is shorter
_WORD = re.compile(r"\w+")

_Mark = tuple[int, int]


@dataclass(frozen=True)
class Snippet:
    """Characters start to stop of a passage, and the marks inside, in order."""

    start: int
    stop: int
    marks: tuple[_Mark, ...]


def snippet(text: str, terms: Set[str], cut: Callable[[str], Set[str]], answer: PassageAnswer | None = None) -> Snippet:
    """Returns the sentence of the answer, or the one with most of the question's terms.

    terms: of the question; cut: a word to its terms, as in the index.
    """
    ends = [0, *PlainText(text).sentence_ends, len(text)]
    sentences = [part for first, last in pairwise(ends) if (part := _trimmed(text, first, last))]
    if not sentences:
        return Snippet(0, len(text), ())
    if answer is not None:
        chosen = next((part for part in sentences if part[1] > answer.start), sentences[-1])
        start, stop = _cropped(text, *chosen, answer.start, answer.end)
        return Snippet(start, max(stop, answer.end), ((answer.start, answer.end),))
    words = [
        (match.span(), own & terms) for match in _WORD.finditer(text) if not terms.isdisjoint(own := cut(match[0]))
    ]
    matches = [set[str]().union(*(own for span, own in words if first <= span[0] < last)) for first, last in sentences]
    best = sentences[max(range(len(matches)), key=lambda number: len(matches[number]))]
    marks = [span for span, _ in words if best[0] <= span[0] < best[1]]
    start, stop = _cropped(text, *best, *(marks[0] if marks else best))
    return Snippet(start, stop, tuple(mark for mark in marks if start <= mark[0] and mark[1] <= stop))


def _trimmed(text: str, first: int, last: int) -> _Mark | None:
    part = text[first:last]
    start = first + len(part) - len(part.lstrip())
    return (start, first + len(part.rstrip())) if part.strip() else None


def _cropped(text: str, start: int, stop: int, first: int, last: int) -> _Mark:
    """Returns at most SHOWN characters of [start, stop) around [first, last), cut between words."""
    if stop - start <= _SNIPPET_CHARACTERS:
        return start, stop
    begin = max(start, min(first - _SNIPPET_CHARACTERS // 3, stop - _SNIPPET_CHARACTERS))
    end = max(last, min(stop, begin + _SNIPPET_CHARACTERS))
    if begin > start and (space := text.find(" ", begin, first)) >= 0:
        begin = space + 1
    if end < stop and (space := text.rfind(" ", last, end)) >= 0:
        end = space
    return begin, end
