"""Questions about two things that happened, with the answer and its place in the text."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bertie.apps.sample import korean
from bertie.apps.sample.names import FIRST_NAMES, PROPER_NAMES

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ACTIONS = (  # past, infinitive, what it is done to
    ("repaired", "repair", ("the old bridge", "the church clock", "the fishing boat", "the garden wall")),
    ("painted", "paint", ("the town hall", "the harbor", "the blue door", "the school gate")),
    ("sold", "sell", ("the bakery", "the red tractor", "the old piano", "the corner house")),
    ("found", "find", ("the lost dog", "the silver ring", "the missing map", "the first edition")),
    ("opened", "open", ("the new library", "the small museum", "the summer market", "the skating rink")),
)
_PATTERNS = ("On {day}, {person} {past} {thing} in {place}.", "{person} {past} {thing} in {place} on {day}.")
QUESTIONS = {
    "person": "Who {past} {thing}?",
    "thing": "What did {person} {infinitive}?",
    "place": "Where did {person} {infinitive} {thing}?",
    "day": "When did {person} {infinitive} {thing}?",
}


@dataclass(frozen=True)
class EventGrammar:
    """The words of events. deeds: the words of a deed in sentences and questions, and what it is done to."""

    people: Callable[[random.Random], Sequence[str]]
    places: Sequence[str]
    days: Sequence[str]
    deeds: Sequence[tuple[Mapping[str, str], Sequence[str]]]
    sentences: Sequence[str]
    questions: Mapping[str, str]


def make_question(grammar: EventGrammar, index: int, rng: random.Random) -> dict[str, Any]:
    """A question about one of two events, its context and its answer. The kinds of questions take turns."""
    subject = list(grammar.questions)[index % len(grammar.questions)]
    people, places, days = grammar.people(rng), rng.sample(grammar.places, 2), rng.sample(grammar.days, 2)
    events, sentences = [], []
    for person, place, day, (words, things) in zip(people, places, days, rng.sample(grammar.deeds, 2), strict=True):
        events.append({"person": person, "place": place, "day": day, "thing": rng.choice(things), **words})
        sentences.append(rng.choice(grammar.sentences).format(**events[-1]))
    about = rng.randrange(2)
    context, answer = " ".join(sentences), events[about][subject]
    start = (len(sentences[0]) if about else 0) + sentences[about].index(answer) + about
    question = grammar.questions[subject].format(**events[about])
    return {"question": question, "context": context, "answers": [{"text": answer, "answer_start": start}]}


QUESTION_ROWS = {
    "en": partial(
        make_question,
        EventGrammar(
            lambda rng: rng.sample(FIRST_NAMES, 2),
            PROPER_NAMES,
            DAYS,
            [({"past": past, "infinitive": infinitive}, things) for past, infinitive, things in ACTIONS],
            _PATTERNS,
            QUESTIONS,
        ),
    ),
    "ko": partial(
        make_question,
        EventGrammar(
            korean.two_people,
            korean.VILLAGES,
            korean.WEEKDAYS,
            [({"did": did}, things) for did, things in korean.DEEDS],
            korean.EVENT_SENTENCES,
            korean.QUESTION_FORMS,
        ),
    ),
}
