"""Questions about two things that happened, with the answer and its place in the text."""

import random
from typing import Any

from bertie.apps.sample.names import FIRST, NAMES

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ACTIONS = (  # past, infinitive, what it is done to
    ("repaired", "repair", ("the old bridge", "the church clock", "the fishing boat", "the garden wall")),
    ("painted", "paint", ("the town hall", "the harbor", "the blue door", "the school gate")),
    ("sold", "sell", ("the bakery", "the red tractor", "the old piano", "the corner house")),
    ("found", "find", ("the lost dog", "the silver ring", "the missing map", "the first edition")),
    ("opened", "open", ("the new library", "the small museum", "the summer market", "the skating rink")),
)
PATTERNS = ("On {day}, {person} {past} {thing} in {place}.", "{person} {past} {thing} in {place} on {day}.")
QUESTIONS = {
    "person": "Who {past} {thing}?",
    "thing": "What did {person} {infinitive}?",
    "place": "Where did {person} {infinitive} {thing}?",
    "day": "When did {person} {infinitive} {thing}?",
}


def row(index: int, rng: random.Random) -> dict[str, Any]:
    """A question about one of two events, its context and its answer. The kinds of questions take turns."""
    asked = list(QUESTIONS)[index % len(QUESTIONS)]
    events, sentences = [], []
    for person, place, day, (past, infinitive, things) in zip(
        rng.sample(FIRST, 2), rng.sample(NAMES, 2), rng.sample(DAYS, 2), rng.sample(ACTIONS, 2), strict=True
    ):
        event = {"person": person, "place": place, "day": day, "thing": rng.choice(things)}
        events.append({**event, "past": past, "infinitive": infinitive})
        sentences.append(rng.choice(PATTERNS).format(**events[-1]))
    about = rng.randrange(2)
    context, answer = " ".join(sentences), events[about][asked]
    start = (len(sentences[0]) if about else 0) + sentences[about].index(answer) + about
    question = QUESTIONS[asked].format(**events[about])
    return {"question": question, "context": context, "answers": [{"text": answer, "answer_start": start}]}
