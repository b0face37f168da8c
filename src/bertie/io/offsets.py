"""Places of texts within a text: offsets in characters, in UTF-16 as JavaScript and Java count them, or in bytes.

A file that has the text of each place too says by it how its offsets count.
"""

import re
from collections.abc import Callable, Sequence

Place = tuple[int, int, str | None]
"""The first offset, the one after the last, and the text there, if the file has it."""
SPACE = re.compile(r"\s+")
WHOLE = re.compile(r"(-?\d{1,15})(?:\.0+)?")


def whole(value: object) -> int | None:
    """Returns an offset as a whole number: 3, "3", and 3.0, as pandas writes a column with gaps; None for another."""
    match = WHOLE.fullmatch(str(value).strip())
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


def placed(text: str, places: Sequence[Place], unit: str) -> list[tuple[int, int]] | None:
    """Returns the places in characters, from offsets in a unit; None where one is not there or has another text."""
    at, found = UNITS[unit](text), list[tuple[int, int]]()
    for start, end, own in places:
        if at is not None:
            if not (0 <= start < len(at) and 0 <= end < len(at)) or -1 in (at[start], at[end]):
                return None
            start, end = at[start], at[end]
        if not 0 <= start < end <= len(text):
            return None
        if own is not None and _plain(text[start:end]) != _plain(own):
            return None
        found.append((start, end))
    return found


def unit_of(text: str, places: Sequence[Place]) -> str:
    """Returns the only unit in which all places have their texts; "" for none, several, or places without texts."""
    own = [place for place in places if place[2] is not None]
    fits = {unit: found for unit in UNITS if (found := placed(text, own, unit)) is not None}
    return next(iter(fits)) if own and len(fits) == 1 else ""


def in_characters(text: str, places: Sequence[Place], usual: str) -> list[tuple[int, int]] | None:
    """Returns places in characters: in the usual unit of the file, or in another one where that alone has their texts.

    None: they fit in none, or one is outside of the text.
    """
    units = [usual, *UNITS] if any(own is not None for _, _, own in places) else [usual]
    return next((found for unit in units if (found := placed(text, places, unit)) is not None), None)


def _plain(text: str) -> str:
    """Returns a text with single spaces: programs write line ends within a text in their own ways."""
    return SPACE.sub(" ", text.replace("\\n", "\n")).strip()
