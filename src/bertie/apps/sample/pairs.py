"""Pairs of sentences with a score of similarity: 5 says the same in other words, 0 has nothing in common."""

import random
from collections.abc import Mapping, Sequence
from functools import partial

from bertie.apps.sample import korean

Wordings = Mapping[str, Sequence[tuple[str, str]]]

SLOTS = {  # what may be said, in two wordings each
    "who": (
        ("the children", "the kids"),
        ("a doctor", "a physician"),
        ("the farmer", "the owner of the farm"),
        ("two students", "a pair of students"),
        ("the pilot", "the captain of the plane"),
    ),
    "does": (
        ("repair", "fix"),
        ("buy", "purchase"),
        ("look for", "search for"),
        ("photograph", "take pictures of"),
        ("carry", "transport"),
    ),
    "what": (
        ("a bicycle", "a bike"),
        ("an old car", "a vintage automobile"),
        ("some stones", "several rocks"),
        ("a couch", "a sofa"),
        ("a big boat", "a large ship"),
    ),
    "where": (
        ("in the woods", "in the forest"),
        ("near the shop", "close to the store"),
        ("at the shore", "on the coast"),
        ("downtown", "in the center of the city"),
        ("behind the house", "at the back of the house"),
    ),
}
_PATTERNS = ("{who} will {does} {what} {where}.", "{where}, {who} will {does} {what}.")
WORTH = {"where": 1, "what": 1.5, "does": 1, "who": 1.5}  # what a shared part adds to the score


def make_scored_pair(slots: Wordings, orders: Sequence[str], index: int, rng: random.Random) -> dict[str, str | float]:
    """Two sentences and their score. The number of parts that they share goes round: 4, 3, 2, 1, 0."""
    shared = set(rng.sample(list(slots), 4 - index % 5))
    first = {slot: rng.randrange(len(choices)) for slot, choices in slots.items()}
    second = {
        slot: place if slot in shared else (place + rng.randrange(1, len(slots[slot]))) % len(slots[slot])
        for slot, place in first.items()
    }
    score = sum(WORTH[slot] for slot in shared)
    sentences = (_sentence(places, slots, orders, rng) for places in (first, second))
    return {"sentence1": next(sentences), "sentence2": next(sentences), "score": score}


def _sentence(places: Mapping[str, int], slots: Wordings, orders: Sequence[str], rng: random.Random) -> str:
    words = {slot: rng.choice(slots[slot][place]) for slot, place in places.items()}
    text = rng.choice(orders).format(**words)
    return text[0].upper() + text[1:]


PAIR_ROWS = {
    "en": partial(make_scored_pair, SLOTS, _PATTERNS),
    "ko": partial(make_scored_pair, korean.WORDINGS, korean.WORD_ORDERS),
}
