"""Changed copies of texts, for a teacher to answer: a student then learns from more texts than there are labels.

    uneasy mishmash of styles and genres     swapped   uneasy film of styles genres
                                             spliced   uneasy mishmash of of a dazzling career

A copy is not a good text, and needs no label: only the answer of a teacher counts. Jiao et al. 2020 (TinyBERT), 3.2,
change words by a language model; random words of the same texts need none.
"""

import random
from collections.abc import Iterator, Sequence

SWAPPED, LEFT_OUT = 0.2, 0.05
"""Of the words of a swapped copy: the share that becomes another word of the texts, and the share that is left out."""
SPLICED = (0.3, 0.7)
"""Of the words of a spliced copy: the range of the share that is the beginning of the text."""

_Texts = tuple[str, ...]


def vary_texts(texts: Sequence[_Texts], *, copies: int, seed: int = 0) -> Iterator[_Texts]:
    """Yields `copies` changed copies of each text, or of each tuple of texts: half swapped, half spliced.

    The words come from all texts. Of a tuple, one or more texts are changed, and the second half of a spliced text is
    from the same place of another tuple. Writing without spaces is changed by characters.
    """
    pool = [word for one in texts for text in one for word in _units(text)]
    for copy in range(copies):
        for number, one in enumerate(texts):
            rng = random.Random(f"{seed} {copy} {number}")
            changed = [len(one) == 1 or rng.random() < 1 / 2 for _ in one]
            if not any(changed):
                changed[rng.randrange(len(one))] = True
            other = texts[rng.randrange(len(texts))]
            splices = rng.random() < 1 / 2
            yield tuple(
                text if not change else _spliced(text, theirs, rng) if splices else _swapped(text, pool, rng)
                for text, theirs, change in zip(one, other, changed, strict=True)
            )


def _units(text: str) -> list[str]:
    words = text.split()
    return words if len(words) > 1 else list(text.strip())


def _joined(units: Sequence[str], like: str) -> str:
    return (" " if len(like.split()) > 1 else "").join(units)


def _swapped(text: str, pool: Sequence[str], rng: random.Random) -> str:
    words = [word for word in _units(text) if rng.random() >= LEFT_OUT]
    return _joined([rng.choice(pool) if rng.random() < SWAPPED else word for word in words], text) or text


def _spliced(text: str, other: str, rng: random.Random) -> str:
    first, second = _units(text), _units(other)
    head = first[: max(1, round(len(first) * rng.uniform(*SPLICED)))]
    tail = second[round(len(second) * rng.uniform(*SPLICED)) :]
    between = " " if len(text.split()) > 1 or len(other.split()) > 1 else ""
    return between.join(filter(None, (_joined(head, text), _joined(tail, other))))
