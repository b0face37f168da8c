"""One example as token ids, with the offsets of tokens in the text, truncation, and special tokens."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from bertie.errors import DataError, TextTooLong, UsageError
from bertie.text.frame import Frame

Truncation = Literal["longest_first", "only_first", "only_second", "error"]
"""What is truncated when texts are too long: the longer one token by token, one of them, or nothing (DataError)."""

# Characters that only ever continue the one before: marks, and the vowels and finals of decomposed Hangul.
_JAMO = re.compile("[\u1160-\u11ff\ud7b0-\ud7ff]")


@dataclass(frozen=True, slots=True)
class Encoding:
    """The tokens of one example, with [CLS] and [SEP], or of one text without: plain lists of equal length.

    `text[start:end]` with the offsets of a token is its text. Special tokens have offsets (0, 0), and None as their
    word and sequence (0: first text, 1: second). `overflow` counts the truncated tokens.
    """

    ids: list[int]
    type_ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]
    word_ids: list[int | None]
    sequence_ids: list[int | None]
    overflow: int = 0

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, part: slice) -> "Encoding":
        columns = (self.ids, self.type_ids, self.tokens, self.offsets, self.word_ids, self.sequence_ids)
        return Encoding(*(column[part] for column in columns))  # type: ignore[arg-type]

    @classmethod
    def of_text(
        cls, ids: list[int], tokens: list[str], offsets: list[tuple[int, int]], word_ids: list[int | None]
    ) -> "Encoding":
        """Returns the tokens of one text without special tokens."""
        return cls(ids, [0] * len(ids), tokens, offsets, word_ids, [0] * len(ids))


def framed(parts: Sequence[Encoding], frame: Frame, token: Callable[[int], str], overflow: int = 0) -> Encoding:
    """Returns the tokens of one text or two with special tokens; `token` returns the text of an id."""
    special = [[token(i) for i in gap] for gap in frame.gaps]
    positions = [[(0, 0)] * len(gap) for gap in frame.gaps]
    none: list[list[int | None]] = [[None] * len(gap) for gap in frame.gaps]
    return Encoding(
        ids=frame.ids([part.ids for part in parts]),
        type_ids=frame.types([len(part.ids) for part in parts]),
        tokens=frame.around(special, [part.tokens for part in parts]),
        offsets=frame.around(positions, [part.offsets for part in parts]),
        word_ids=frame.around(none, [part.word_ids for part in parts]),
        sequence_ids=frame.around(none, [[number] * len(part.ids) for number, part in enumerate(parts)]),
        overflow=overflow,
    )


def fit_sizes(a: int, b: int, special: int, max_length: int | None, truncation: Truncation) -> tuple[int, int]:
    """Returns how many of a and b tokens of two texts (b: 0 for one) are kept in addition to `special` special tokens.

    Raises DataError when the text is too long under "error", or the text to truncate is too short; UsageError when
    there is no space for any token.
    """
    excess = 0 if max_length is None else a + b + special - max_length
    if excess <= 0:
        return a, b
    if max_length is not None and max_length < special:
        raise UsageError(f"max_length ({max_length}) is too small for the {special} special tokens.")
    if truncation == "error":
        raise TextTooLong(
            f"A text of {a + b + special:,} tokens is longer than max_length {max_length:,}. Raise "
            "max_length, or choose truncation or windows."
        )
    if truncation == "longest_first":
        return longest_first(a, b, a + b - excess)
    left = (a - excess, b) if truncation == "only_first" else (a, b - excess)
    if min(left) < 0:
        raise DataError(
            f"{excess:,} tokens must be removed, more than the text truncated by {truncation!r} has. Raise "
            f"max_length ({max_length})."
        )
    return left


def longest_first(a: int, b: int, room: int) -> tuple[int, int]:
    """Returns lengths after dropping the last token of the longer text, of the second on a tie, until both fit in
    `room`.

    The closed form of `_truncate_seq_pair` in google-research/bert. `transformers` gives an odd token to the second
    text.
    """
    half_a, half_b = room - room // 2, room // 2
    if a <= half_a:
        return a, min(b, room - a)
    return (room - b, b) if b <= half_b else (half_a, half_b)


def whole_characters(text: str, offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns offsets whose ends include the diacritics and jamo that were composed into a token's last character.

    The library gives a composed character only the position of its first part: for 각 written as three jamo, the first.
    """
    result = []
    for number, (start, end) in enumerate(offsets):
        limit = offsets[number + 1][0] if number + 1 < len(offsets) else len(text)
        while end > start and end < limit and (unicodedata.combining(text[end]) or _JAMO.match(text[end])):
            end += 1
        result.append((start, end))
    return result
