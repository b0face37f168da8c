"""A sentence as an example: its text, the characters of each word, and the words' tags."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, Any, TypeGuard

from bertie.io.lines import BadRecord, text_lines
from bertie.io.table_format import FileFormat
from bertie.io.tables import Example

Span = tuple[int, int]
Lines = list[tuple[int, str]]
SCHEME = re.compile(r"O|[BIESULMW]-\S+")
OTHER_SCHEMES = {"U": "S", "L": "E", "M": "I", "W": "S"}  # BILOU and BMEWO -> BIOES
WORDS = {"word": re.compile(r"\w+|[^\w\s]"), "character": re.compile(r"\S"), "space": re.compile(r"\S+")}
UNSPACED = re.compile("[\u0e00-\u0eff\u1100-\u11ff\u3040-\u30ff\u3130-\u318f\u3400-\u9fff\uac00-\ud7af]")


@dataclass(frozen=True)
class TaggedExample(Example):
    """An example of one text with words: the characters from spans[i][0] to spans[i][1] are word i.

    widened: entities that begin or end within a word, and are read as whole words.
    """

    spans: tuple[Span, ...] = ()
    widened: int = field(default=0, compare=False)

    @staticmethod
    def spaced(words: Sequence[str]) -> "TaggedExample":
        """Returns words without tags, with a space between each two."""
        return spaced(words, (), 0)


def line_blocks(file: IO[bytes], where: str, format: FileFormat, *, comment: str = "") -> Iterator[Lines | BadRecord]:
    """Yields lines between empty ones, without comments; a block with an undecodable line is an `BadRecord`."""
    lines: Lines = []
    bad: BadRecord | None = None
    for number, line in itertools.chain(text_lines(file, where, format), [(0, "")]):
        if isinstance(line, BadRecord):
            bad = bad or line
        elif line.strip():
            if not (comment and line.startswith(comment)):
                lines.append((number, line))
        else:
            if bad or lines:
                yield bad or lines
            lines, bad = [], None


def spaced(words: Sequence[str], tags: Sequence[Any], line: int, spaces: Sequence[bool] | None = None) -> TaggedExample:
    """Returns the example of some words with a space after each, or after those in `spaces`."""
    text, spans = "", []
    for i, word in enumerate(words):
        spans.append((len(text), len(text) + len(word)))
        text += word + (" " if spaces is None or spaces[i] else "")
    return TaggedExample((text.rstrip(" "),), tuple(tags), line, spans=tuple(spans))


def of_words(words: object, tags: object, line: int) -> Example | BadRecord:
    """Returns the example of the words of a sentence, with or without tags."""
    if not are_texts(words) or not (tags is None or are_texts(tags)):
        return BadRecord(line, "tokens or tags are not texts")
    if tags is not None and len(tags) != len(words):
        return BadRecord(line, "tokens and tags differ in number")
    example = spaced(words, tags or (), line)
    return replace(example, label=None) if tags is None else example


def are_texts(values: object) -> TypeGuard[list[str]]:
    """Returns whether these are words: a list of texts that are not empty."""
    return isinstance(values, list) and bool(values) and all(isinstance(v, str) and v.strip() for v in values)


def places_of(text: str, words: Sequence[str]) -> tuple[Span, ...] | None:
    """Returns where the words are in their text; None if there is more between them than spaces."""
    spans, end = list[Span](), 0
    for word in words:
        start = text.find(word, end)
        if start < 0 or text[end:start].strip():
            return None
        end = start + len(word)
        spans.append((start, end))
    return None if text[end:].strip() else tuple(spans)


def in_bioes(tag: str) -> str:
    """Returns a tag of BILOU or BMEWO as that of BIOES: U-PER is S-PER. Every other tag is returned as it is."""
    return OTHER_SCHEMES.get(tag[0], tag[0]) + tag[1:] if tag[1:2] == "-" and len(tag) > 2 else tag


def cut(text: str, unit: str) -> tuple[Span, ...]:
    """Returns the characters of the words of a text, split by `unit` (a row of WORDS)."""
    return tuple(match.span() for match in WORDS[unit].finditer(text))


def script_unit(texts: Iterable[Any]) -> str:
    """Returns "character" where most letters are of a script without spaces between words, or are Hangul syllables,
    since Korean words end in particles; else "word"."""
    letters = "".join(filter(str.isalpha, "".join(text for text in texts if isinstance(text, str))))
    return "character" if 2 * len(UNSPACED.findall(letters)) > len(letters) else "word"
