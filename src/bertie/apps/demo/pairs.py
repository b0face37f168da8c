"""The demo's task on other text: are two passages from the same document? It needs only many documents.

The documents of the test are those that pre-training holds out, or a fifth of all where these are few. The task is
similar to next-sentence prediction, so it shows the effect of pre-training; the report says so.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

PAIR_LABELS = ("same", "other")
_SENTENCES = 2  # of a passage
FEWEST_DOCUMENTS = 20  # to test on, and to train on; below, the figures would mean nothing
TESTED = 0.2  # share of the documents to test on, where too few are held out

PAIRS_ABOUT = (
    "The task is made from the text itself: are two passages from the same document? {train} labeled pairs, "
    "tested on {test} pairs from other documents, {seen}. The task is similar to next-sentence prediction, "
    "so it shows the effect of pre-training. To measure the effect on your own task, fine-tune on your own "
    "labeled examples: bertie finetune."
)
SKIP_REASONS = (
    f"Skipped: the task needs at least {FEWEST_DOCUMENTS} documents of {2 * _SENTENCES + 1} or more sentences, "
    "both for training and for testing, and this text has fewer. Fine-tune the model on your own labeled "
    "examples: bertie finetune."
)


_Documents = Sequence[Sequence[str]]  # each as its sentences


@dataclass(frozen=True)
class LabelledPair:
    """Two passages, and whether both are from one document."""

    first: str
    second: str
    label: str

    def row(self) -> dict[str, str]:
        """Returns a row of a table of examples."""
        return {"sentence1": self.first, "sentence2": self.second, "label": self.label, "where": ""}


def split_documents(learned: _Documents, held_out: _Documents) -> tuple[_Documents, _Documents, str] | None:
    """Returns the documents for training and for testing, and what pre-training has read of the latter; None for too
    few.

    Only documents long enough for two separate passages are used.
    """
    train, test = ([d for d in documents if len(d) > 2 * _SENTENCES] for documents in (learned, held_out))
    note = "which pre-training has not seen"
    if len(test) < FEWEST_DOCUMENTS:
        cut = round((1 - TESTED) * len(train))
        train, test, note = train[:cut], train[cut:], "which pre-training has read, without labels"
    return (train, test, note) if min(len(train), len(test)) >= FEWEST_DOCUMENTS else None


def draw_pairs(documents: _Documents, count: int, *, seed: int) -> list[LabelledPair]:
    """Returns `count` pairs of passages of long documents, half of them from one document, the other half from two."""
    long = list(documents)
    rng = random.Random(seed)
    pairs_drawn = []
    for number in range(count):
        document = rng.choice(long)
        start = rng.randrange(len(document) - 2 * _SENTENCES)
        first = document[start : start + _SENTENCES]
        if number % 2 == 0:
            other = rng.randrange(start + _SENTENCES + 1, len(document) - _SENTENCES + 1)
            second = document[other : other + _SENTENCES]
        else:
            elsewhere = rng.choice([d for d in rng.sample(long, 2) if d is not document])
            other = rng.randrange(len(elsewhere) - _SENTENCES + 1)
            second = elsewhere[other : other + _SENTENCES]
        pairs_drawn.append(LabelledPair(" ".join(first), " ".join(second), PAIR_LABELS[number % 2]))
    rng.shuffle(pairs_drawn)
    return pairs_drawn
