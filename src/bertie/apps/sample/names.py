"""Sentences with names of persons, places and organizations, tagged in BIO. Only the context tells Fairdale the town
from Fairdale the surname, so a list of names does not solve the task."""

import random
from itertools import product

BEGINNINGS = ("Ash", "Bram", "Cal", "Dun", "Fair", "Hart", "Mor", "Pem", "Stan", "Thorn", "Whit", "Wind")
ENDINGS = ("bury", "combe", "dale", "field", "ford", "ham", "ley", "mere", "ton", "wick")
PROPER_NAMES = tuple(map("".join, product(BEGINNINGS, ENDINGS)))  # surnames and towns alike
FIRST_NAMES = (
    *("Ada", "Bruno", "Celia", "Dora", "Edgar", "Flora", "Hugo", "Ines", "Jonas", "Karl", "Lena", "Milo"),
    *("Nora", "Oscar", "Paula", "Rosa", "Simon", "Tessa", "Victor", "Wanda"),
)
FIRMS = ("Mills", "Ferries", "Bakery", "Railways", "Press", "Museum")
PERSON = ("{first} {name}", "{first} {name}", "{first}")
FIRM = ("{name} {firm}", "{name} and Sons", "Bank of {name}")
_PATTERNS = (
    "{PER} moved from {LOC} to {LOC} last spring .",
    "In {LOC} , {PER} works for {ORG} .",
    "{ORG} has opened a new office in {LOC} .",
    "The mayor of {LOC} thanked {PER} and {ORG} .",
    "{PER} sold {ORG} to {PER} .",
    "Yesterday the train from {LOC} was late again .",
    "{PER} and {PER} met at the market in {LOC} .",
    "According to {ORG} , prices will fall .",
    "My neighbor {PER} paints the harbor of {LOC} .",
    "{ORG} and {ORG} share a building near the river .",
    "Nobody in {LOC} had heard of {ORG} .",
    "Doctor {PER} teaches in {LOC} and writes for {ORG} .",
    "The road along the river is closed today .",
    "It rained all week , and the market was empty .",
)


def make_tagged_words(index: int, rng: random.Random) -> dict[str, list[str]]:
    """The words of a sentence and their tags."""
    tokens, tags = [], []
    for word in rng.choice(_PATTERNS).split():
        kind = word.strip("{}")
        parts = _name(kind, rng).split() if word != kind else [word]
        tokens += parts
        tags += [f"{'BI'[i > 0]}-{kind}" if word != kind else "O" for i in range(len(parts))]
    return {"tokens": tokens, "tags": tags}


def _name(kind: str, rng: random.Random) -> str:
    forms = {"PER": PERSON, "LOC": ("{name}",), "ORG": FIRM}[kind]
    return rng.choice(forms).format(
        first=rng.choice(FIRST_NAMES), name=rng.choice(PROPER_NAMES), firm=rng.choice(FIRMS)
    )
