"""A sentence as an example: its text, the characters of each word, and the words' tags; places in texts.

Offsets count characters, UTF-16 units as JavaScript and Java count them, or bytes. A file that has the text of each
place too says by it how its offsets count.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, TypeGuard

from bertie.io.lines import BadRecord, text_lines
from bertie.io.table_format import FileFormat
from bertie.io.tables import Example

Span = tuple[int, int]
_Lines = list[tuple[int, str]]
TAG_SCHEME = re.compile(r"O|[BIESULMW]-\S+")
OTHER_SCHEMES = {"U": "S", "L": "E", "M": "I", "W": "S"}  # BILOU and BMEWO -> BIOES
_WORDS = {"word": re.compile(r"\w+|[^\w\s]"), "character": re.compile(r"\S"), "space": re.compile(r"\S+")}
UNSPACED = re.compile("[\u0e00-\u0eff\u1100-\u11ff\u3040-\u30ff\u3130-\u318f\u3400-\u9fff\uac00-\ud7af]")


@dataclass(frozen=True)
class TaggedExample(Example):
    """An example of one text with words: the characters from spans[i][0] to spans[i][1] are word i.

    widened: entities that begin or end within a word, and are read as whole words. document: the sentences of its
    document, of which it is number `place`; empty where the file tells no documents.
    """

    spans: tuple[Span, ...] = ()
    widened: int = field(default=0, compare=False)
    document: tuple[str, ...] = field(default=(), compare=False)
    place: int = field(default=0, compare=False)

    @property
    def neighbors(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The sentences before and after it in its document."""
        return self.document[: self.place], self.document[self.place + 1 :]


def in_documents(rows: Iterator[Example | BadRecord | None]) -> Iterator[Example | BadRecord]:
    """Yields sentences with their documents. None marks the start of one; rows before the first have none."""
    document: list[Example | BadRecord] | None = None
    for row in itertools.chain(rows, [None]):
        if row is not None and document is not None:
            document.append(row)
        elif row is not None:
            yield row
        else:
            tagged = [one for one in document or () if isinstance(one, TaggedExample)]
            texts, places = tuple(one.texts[0] for one in tagged), itertools.count()
            for one in document or ():
                yield replace(one, document=texts, place=next(places)) if isinstance(one, TaggedExample) else one
            document = []


def line_blocks(file: IO[bytes], where: str, format: FileFormat, *, comment: str = "") -> Iterator[_Lines | BadRecord]:
    """Yields lines between empty ones, without comments; a block with an undecodable line is an `BadRecord`."""
    lines: _Lines = []
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


def spaced(
    words: Sequence[str], tags: Sequence[object], line: int, spaces: Sequence[bool] | None = None
) -> TaggedExample:
    """Returns the example of some words with a space after each, or after those in `spaces`."""
    text, spans = "", []
    for i, word in enumerate(words):
        spans.append((len(text), len(text) + len(word)))
        text += word + (" " if spaces is None or spaces[i] else "")
    return TaggedExample((text.rstrip(" "),), tuple(tags), line, spans=tuple(spans))


def tag_words(words: object, tags: object, line: int) -> Example | BadRecord:
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


def word_spans(text: str, unit: str) -> tuple[Span, ...]:
    """Returns the characters of the words of a text, split by `unit` (a row of WORDS)."""
    return tuple(match.span() for match in _WORDS[unit].finditer(text))


def script_unit(texts: Iterable[object]) -> str:
    """Returns "character" where most letters are of a script without spaces between words, or are Hangul syllables,
    since Korean words end in particles; else "word"."""
    letters = "".join(filter(str.isalpha, "".join(text for text in texts if isinstance(text, str))))
    return "character" if 2 * len(UNSPACED.findall(letters)) > len(letters) else "word"


TextPlace = tuple[int, int, str | None]
"""The first offset, the one after the last, and the text there, if the file has it."""
_SPACE = re.compile(r"\s+")
_WHOLE_NUMBER = re.compile(r"(-?\d{1,15})(?:\.0+)?")


def whole_number(value: object) -> int | None:
    """Returns an offset as a whole number: 3, "3", and 3.0, as pandas writes a column with gaps; None for another."""
    match = _WHOLE_NUMBER.fullmatch(str(value).strip())
    return int(match[1]) if match else None


def _characters(text: str) -> Sequence[int] | None:
    return None


def _utf16(text: str) -> Sequence[int] | None:
    return _offsets(text, lambda character: 1 + (character > "\uffff"))


def _utf8(text: str) -> Sequence[int] | None:
    return _offsets(text, lambda character: len(character.encode("utf-8", "surrogatepass")))


def _offsets(text: str, size: Callable[[str], int]) -> Sequence[int] | None:
    """Returns the character at each offset, -1 within one, and the end; None where all are of size 1."""
    sizes = [size(character) for character in text]
    if sum(sizes) == len(text):
        return None
    return [at for i, count in enumerate(sizes) for at in (i, *[-1] * (count - 1))] + [len(text)]


UNITS: dict[str, Callable[[str], Sequence[int] | None]] = {"characters": _characters, "utf-16": _utf16, "bytes": _utf8}
"""Name -> the character at each offset of a text; None: the offset itself."""


def place_in_characters(text: str, places: Sequence[TextPlace], unit: str) -> list[tuple[int, int]] | None:
    """Returns the places in characters, from offsets in a unit; None where one is not there or has another text."""
    at, spans = UNITS[unit](text), list[tuple[int, int]]()
    for start, end, own in places:
        if at is not None:
            if not (0 <= start < len(at) and 0 <= end < len(at)) or -1 in (at[start], at[end]):
                return None
            start, end = at[start], at[end]
        if not 0 <= start < end <= len(text):
            return None
        if own is not None and _plain(text[start:end]) != _plain(own):
            return None
        spans.append((start, end))
    return spans


def unit_of(text: str, places: Sequence[TextPlace]) -> str:
    """Returns the only unit in which all places have their texts; "" for none, several, or places without texts."""
    own = [place for place in places if place[2] is not None]
    fits = {unit: spans for unit in UNITS if (spans := place_in_characters(text, own, unit)) is not None}
    return next(iter(fits)) if own and len(fits) == 1 else ""


def in_characters(text: str, places: Sequence[TextPlace], usual: str) -> list[tuple[int, int]] | None:
    """Returns places in characters: in the usual unit of the file, or in another one where that alone has their texts.

    None: they fit in none, or one is outside of the text.
    """
    units = [usual, *UNITS] if any(own is not None for _, _, own in places) else [usual]
    return next((spans for unit in units if (spans := place_in_characters(text, places, unit)) is not None), None)


def _plain(text: str) -> str:
    """Returns a text with single spaces: programs write line ends within a text in their own ways."""
    return _SPACE.sub(" ", text.replace("\\n", "\n")).strip()
