"""The positions of special tokens around one text or two: [CLS] A [SEP] B [SEP], or <s> A </s></s> B </s>."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import tokenizers

from bertie.errors import DataError
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
