"""Examples as token ids with their origin in the texts, for tasks whose answer is in the text.

    [CLS] question [SEP] context from its first token  ... [SEP]
    [CLS] question [SEP] context `stride` tokens later ... [SEP]

The last text is split into windows; the texts before it are in every window. `Sequences.places` has for each of T
tokens: text (number of the text, or -1 for a special token), piece (index of the token in that text), start and end
(its characters there).

T tokens · W sequences · P tokens of a text, each in one of its windows
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bertie.io.tables import Example
from bertie.text.sequences import Int, Sequences
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TooLong

SPECIAL_PLACE = -1
_Text = tuple[list[int], NDArray[np.int32]]
"""The ids of a text, and the start and the end of each token (P, 2)."""
Neighbors = Callable[[Example], tuple[Sequence[str], Sequence[str]]]
"""The texts before and after an example."""


def encode_places(
    examples: Sequence[Example],
    tokenizer: Tokenizer,
    *,
    max_length: int,
    too_long: TooLong,
    stride: int,
    max_first: int = 0,
    around: Neighbors = lambda example: ((), ()),
) -> Sequences:
    """Encodes examples in windows of at most `max_length` tokens that start `stride` tokens apart (run_squad.py,
    doc_stride).

    max_first: tokens that are kept of each text but the last, at most half a window. Under "truncate" and "error", only
    the first window is used. around: the sentences before and after a text, whose tokens fill its only window, as
    many on each side where there are; they are of no text.
    """
    ids: list[NDArray[np.int32]] = []
    types: list[NDArray[np.uint8]] = []
    places: list[NDArray[np.int32]] = []
    windows, long, cut = [0], list[int](), list[int]()
    for number, (texts, sides) in enumerate(_texts(examples, tokenizer, around)):
        frame = tokenizer.frames[len(texts) - 1]
        *first, last = texts
        room = max_length - frame.size
        slices = [slice(0, min(max_first, room // 2, len(text[0]))) for text in first]
        room -= sum(part.stop for part in slices)
        if any(part.stop < len(text[0]) for text, part in zip(first, slices, strict=True)):
            cut.append(number)
        starts = range(0, max(1, len(last[0]) - room + min(stride, room)), min(stride, room))
        if len(starts) > 1:
            long.append(number)
        for start in starts if too_long == "window" else starts[:1]:
            parts = [*slices, slice(start, min(start + room, len(last[0])))]
            own = [text[0][part] for text, part in zip(texts, parts, strict=True)]
            before, after = _fitting(*sides, room - len(last[0])) if len(starts) == 1 else ([], [])
            own[-1] = [*before, *own[-1], *after]
            sequence = frame.ids(own)
            place = np.zeros((len(sequence), 4), np.int32)
            place[:, 0] = SPECIAL_PLACE
            at = len(frame.gaps[0])
            for i, (text, part) in enumerate(zip(texts, parts, strict=True)):
                first_row = at + (len(before) if i + 1 == len(parts) else 0)
                rows = slice(first_row, first_row + part.stop - part.start)
                place[rows, 0], place[rows, 1] = i, np.arange(part.start, part.stop)
                place[rows, 2:] = text[1][part]
                at = rows.stop + len(frame.gaps[i + 1])
            ids.append(np.array(sequence, np.int32))
            types.append(np.array(frame.types([len(text) for text in own]), np.uint8))
            places.append(place)
        windows.append(len(ids))
    place_T4 = np.concatenate(places) if places else np.zeros((0, 4), np.int32)
    columns = {name: place_T4[:, i].copy() for i, name in enumerate(("text", "piece", "start", "end"))}
    return replace(Sequences.of_examples(ids, types, windows, long), places=columns, cut=np.array(cut, np.int64))


def _fitting(before: list[int], after: list[int], room: int) -> tuple[list[int], list[int]]:
    """Returns the end of `before` and the start of `after` that fit in the room, which they share equally."""
    left = min(len(before), max(room // 2, room - len(after)))
    return before[len(before) - left :], after[: room - left]


def _texts(
    examples: Sequence[Example], tokenizer: Tokenizer, around: Neighbors
) -> Iterator[tuple[list[_Text], tuple[list[int], list[int]]]]:
    """Tokenizes the texts of each example, and those before and after it. A text of several is tokenized once."""
    for begin in range(0, len(examples), 1000):
        chunk = [(example.texts, *around(example)) for example in examples[begin : begin + 1000]]
        unique = list(dict.fromkeys(text for row in chunk for texts in row for text in texts))
        read = {
            text: (pieces.ids, np.array(pieces.offsets, np.int32).reshape(-1, 2))
            for text, pieces in zip(unique, tokenizer.tokenize(unique), strict=True)
        }
        for own, before, after in chunk:
            sides = ([i for text in side for i in read[text][0]] for side in (before, after))
            yield [read[text] for text in own], (next(sides), next(sides))


def fullest(encoded: Sequences, text: int) -> Int:
    """Returns for every token of a text its row of T in the window with the most context around it (max context).

    -> (P,) by example, then by token. As in run_squad.py, _check_is_max_context: the minimum of the left and the right
    context, plus a hundredth of the window's length; the first window for a tie.
    """
    rows = np.flatnonzero(encoded.places["text"] == text)
    window = np.repeat(np.arange(len(encoded.lengths)), encoded.lengths)[rows]
    piece, example = encoded.places["piece"][rows], encoded.example[window]
    count_W = np.bincount(window, minlength=len(encoded.lengths))
    first_W = np.zeros(len(encoded.lengths), np.int64)
    first_W[window[::-1]] = piece[::-1]  # the last one written is the window's first
    left = piece - first_W[window]
    around = np.minimum(left, count_W[window] - 1 - left) + 0.01 * count_W[window]
    order = np.lexsort((-around, piece, example))
    best = np.ones(len(order), bool)
    best[1:] = (np.diff(piece[order]) != 0) | (np.diff(example[order]) != 0)
    chosen: Int = rows[order[best]]
    return chosen
