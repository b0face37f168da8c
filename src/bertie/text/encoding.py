"""One example as token ids, with the offsets of tokens in the text, truncation, and special tokens.

The frame of special tokens is around one text or two: [CLS] A [SEP] B [SEP], or <s> A </s></s> B </s>.
"""

import itertools
import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import tokenizers

from bertie.errors import DataError, TextTooLong, UsageError
from bertie.files import JsonObject

_T = TypeVar("_T")
MAX_PARTS, MAX_SEGMENTS = 64, 256  # of a template; the published ones have up to 7 and 3


@dataclass(frozen=True)
class Frame:
    """Special tokens before, between and after the texts, their segments, and the segment of each text.

    [CLS] A [SEP] B [SEP] is gaps ((cls,), (sep,), (sep,)), gap_types ((0,), (0,), (1,)), text_types (0, 1).
    """

    gaps: tuple[tuple[int, ...], ...]
    gap_types: tuple[tuple[int, ...], ...]
    text_types: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of special tokens."""
        return sum(map(len, self.gaps))

    def around(self, gaps: Sequence[Sequence[_T]], texts: Sequence[Sequence[_T]]) -> list[_T]:
        """Returns values of the gaps (ids, types, None ...) and values of the texts, in the order of the sequence."""
        joined = list(gaps[0])
        for text, gap in zip(texts, gaps[1:], strict=True):
            joined += [*text, *gap]
        return joined

    def ids(self, texts: Sequence[Sequence[int]]) -> list[int]:
        """Returns the whole sequence of some texts' ids."""
        return self.around(self.gaps, texts)

    def types(self, lengths: Sequence[int]) -> list[int]:
        """Returns the segment of each token of a sequence with texts of these lengths."""
        return self.around(self.gap_types, [[t] * n for t, n in zip(self.text_types, lengths, strict=True)])


def find_frames(engine: tokenizers.Tokenizer, cls: int | None, sep: int | None) -> tuple[Frame, Frame]:
    """Returns the frames of one and of two texts from the library's post-processor; without one, BERT's.

    Raises DataError for a frame that no model could read.
    """
    one, two = both = _frames(engine, cls, sep)
    for frame, texts in ((one, 1), (two, 2)):
        if len(frame.text_types) != texts:
            raise DataError(f"The template for {texts} text(s) has {len(frame.text_types)} texts.")
        if (most := max([*frame.text_types, *itertools.chain(*frame.gap_types)])) >= MAX_SEGMENTS:
            raise DataError(f"A template has segment {most:,}; it must be below {MAX_SEGMENTS}.")
        if unknown := [i for i in itertools.chain(*frame.gaps) if engine.id_to_token(i) is None]:
            raise DataError(f"A template has the id {unknown[0]:,}, which is not in the vocabulary.")
    return both


def _frames(engine: tokenizers.Tokenizer, cls: int | None, sep: int | None) -> tuple[Frame, Frame]:
    post = json.loads(engine.post_processor.__getstate__()) if engine.post_processor else {}
    for part in post.get("processors", [post]):
        if part.get("type") == "TemplateProcessing":
            tokens = {name: tuple(token["ids"]) for name, token in part["special_tokens"].items()}
            return _template(part["single"], tokens), _template(part["pair"], tokens)
        if part.get("type") == "RobertaProcessing":
            first, last = (part["cls"][1],), (part["sep"][1],)
            gaps = (first, last + last, last)
            return Frame((first, last), ((0,), (0,)), (0,)), Frame(gaps, ((0,), (0, 0), (0,)), (0, 0))
        if part.get("type") == "BertProcessing":
            cls, sep = part["cls"][1], part["sep"][1]
    if cls is None or sep is None:
        return Frame(((), ()), ((), ()), (0,)), Frame(((), (), ()), ((), (), ()), (0, 1))
    c, s = (cls,), (sep,)
    return Frame((c, s), ((0,), (0,)), (0,)), Frame((c, s, s), ((0,), (0,), (1,)), (0, 1))


def _template(items: Sequence[JsonObject], tokens: dict[str, tuple[int, ...]]) -> Frame:
    if (size := len(items) + sum(map(len, tokens.values()))) > MAX_PARTS:
        raise DataError(f"A template has {size:,} parts, more than the maximum of {MAX_PARTS}.")
    gaps: list[tuple[int, ...]] = [()]
    gap_types: list[tuple[int, ...]] = [()]
    text_types: list[int] = []
    for item in items:
        ((kind, value),) = item.items()
        if kind == "Sequence":
            if value["id"] != "AB"[len(text_types) : len(text_types) + 1]:
                raise DataError(
                    f"A template has text {value['id']} as text {len(text_types) + 1}; the order must be A, then B."
                )
            text_types.append(value["type_id"])
            gaps.append(())
            gap_types.append(())
        else:
            if (ids := tokens.get(value["id"])) is None:
                raise DataError(f"A template has {value['id']!r} without an id.")
            gaps[-1] += ids
            gap_types[-1] += (value["type_id"],) * len(ids)
    return Frame(tuple(gaps), tuple(gap_types), tuple(text_types))


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
