"""Log-probabilities of parts of a text under a masked language model, one mask at a time."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertie.apps.audit.base import Subject
from bertie.platform import Encoding


class MaskedText(NamedTuple):
    """A text as token ids, with the position to mask and predict. also: other positions that are masked."""

    ids: NDArray[np.int64]
    types: NDArray[np.int64]
    position: int
    also: tuple[int, ...] = ()


def one_at_a_time(encoding: Encoding, positions: Iterable[int]) -> list[MaskedText]:
    """Returns the text once for each position, with only this position masked."""
    ids, types = _arrays(encoding.ids, encoding.type_ids)
    return [MaskedText(ids, types, position) for position in positions]


def left_to_right(
    encoding: Encoding, positions: Sequence[int], *, also: Sequence[int] = (), drop: bool = False
) -> list[MaskedText]:
    """Returns the text once for each position, with this position and the later ones of `positions` masked.

    also: other masked positions. drop: whether the later positions are removed instead of masked.
    """
    hidden = []
    for number, position in enumerate(positions):
        later = set(positions[number + 1 :])
        if drop:
            places = [place for place in range(len(encoding)) if place not in later]
            ids, types = _arrays([encoding.ids[i] for i in places], [encoding.type_ids[i] for i in places])
            moved = {place: new for new, place in enumerate(places)}
            hidden.append(MaskedText(ids, types, moved[position], tuple(moved[one] for one in also)))
        else:
            ids, types = _arrays(encoding.ids, encoding.type_ids)
            hidden.append(MaskedText(ids, types, position, (*later, *also)))
    return hidden


def covering_tokens(encoding: Encoding, start: int, end: int) -> list[int]:
    """Returns the positions of the tokens that contain a character of text[start:end]."""
    places = zip(encoding.offsets, encoding.word_ids, strict=True)
    return [i for i, ((a, b), word) in enumerate(places) if word is not None and a < end and b > start]


def log_p(subject: Subject, groups: Sequence[Sequence[MaskedText]]) -> list[NDArray[np.float64]]:
    """Returns log p of the masked tokens of each group, in nats."""
    rows = [row for group in groups for row in group]
    if not rows:
        return [np.zeros(0) for _ in groups]
    order = sorted(range(len(rows)), key=lambda number: len(rows[number].ids))
    sorted_rows = subject.predictor.masked_log_probabilities(rows[number] for number in order)
    values = np.zeros(len(rows))
    values[order] = np.concatenate(list(sorted_rows))
    return np.split(values, np.cumsum([len(group) for group in groups])[:-1])


def _arrays(ids: Sequence[int], types: Sequence[int]) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], ...]:
    return np.asarray(ids, np.int64), np.asarray(types, np.int64)
