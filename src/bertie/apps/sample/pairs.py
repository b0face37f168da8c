"""Pairs of sentences with a score of similarity: 5 says the same in other words, 0 has nothing in common."""

import random

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
PATTERNS = ("{who} will {does} {what} {where}.", "{where}, {who} will {does} {what}.")
WORTH = {"where": 1, "what": 1.5, "does": 1, "who": 1.5}  # what a shared part adds to the score


def row(index: int, rng: random.Random) -> dict[str, str | float]:
    """Two sentences and their score. The number of parts that they share goes round: 4, 3, 2, 1, 0."""
    shared = set(rng.sample(list(SLOTS), 4 - index % 5))
    first = {slot: rng.randrange(len(choices)) for slot, choices in SLOTS.items()}
    second = {
        slot: place if slot in shared else (place + rng.randrange(1, len(SLOTS[slot]))) % len(SLOTS[slot])
        for slot, place in first.items()
    }
    score = sum(WORTH[slot] for slot in shared)
    return {"sentence1": _sentence(first, rng), "sentence2": _sentence(second, rng), "score": score}


def _sentence(places: dict[str, int], rng: random.Random) -> str:
    said = {slot: rng.choice(SLOTS[slot][place]) for slot, place in places.items()}
    text = rng.choice(PATTERNS).format(**said)
    return text[0].upper() + text[1:]
