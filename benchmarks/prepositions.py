"""Questions that a preposition decides: words, vectors and re-ranking models on pairs of passages with the same words.

    python -m benchmarks.prepositions --work WORK [--vectors NAME=MODEL] [--rerank NAME=MODEL] [--teach NAME=MODEL]

A pair is made by rule: "Flights from Peru to Kenya ..." and "Flights from Kenya to Peru ...", with the query "flights
to kenya". Both passages have the same words, each as often, so that search by words cannot tell them apart. There are
200 pairs of four kinds. The models of --teach first learn from other pairs, of other names and things, of two of the
kinds. A line of results/prepositions.jsonl is a ranking, with the share of queries of each kind for which the right
passage is first. Equal scores count as half.
"""

import argparse
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from pathlib import Path

import numpy as np

import bertie
from benchmarks import harness
from benchmarks.result_lines import add_line, read_lines
from bertie.apps.search.models import passage_relevance

RESULTS = Path(__file__).parent / "results" / "prepositions.jsonl"
PAIRS = 50  # of a kind
TAUGHT_PAIRS, TAUGHT_KINDS = 1_000, ("from or to", "by or for")
Score = Callable[[str, Sequence[str]], Sequence[float]]


@dataclass(frozen=True)
class Kind:
    """A rule. The passage says something of {x} and {y}, and the queries mean it and not the one with both exchanged.

    things: {n}; names: of {x} and {y}. The second half of both lists is for the pairs that teach.
    """

    passage: str
    queries: tuple[str, ...]
    things: tuple[str, ...]
    names: tuple[str, ...]


PLACES = (
    *("Peru", "Kenya", "Norway", "Japan", "Spain", "Chile", "Egypt", "India", "Canada", "Poland"),
    *("Ghana", "Italy", "Korea", "Brazil", "Iceland", "Greece", "Turkey", "Cuba", "France", "Nepal"),
)
PEOPLE = (
    *("Anna", "Peter", "Maria", "Tom", "Laura", "David", "Nina", "Oscar", "Sarah", "Hugo"),
    *("Clara", "Simon", "Julia", "Felix", "Emma", "Victor", "Alice", "Martin", "Rosa", "Paul"),
)
EVENTS = (
    *("lunch", "concert", "speech", "race", "prayer", "lesson", "dance", "meeting", "film", "walk"),
    *("game", "vote", "lecture", "dinner", "parade", "exam", "interview", "auction", "tour", "wedding"),
)
PARTS = (
    *("kitchen", "office", "library", "garage", "bakery", "chapel", "bedroom", "cellar", "workshop", "shop"),
    *("studio", "museum", "laundry", "gallery", "clinic", "bank", "school", "theater", "pharmacy", "cafe"),
)
KINDS = {
    "from or to": Kind(
        "{n} from {x} to {y} are listed on this page, with times and prices.",
        ("{n} to {y}", "{n} from {x}"),
        ("Flights", "Trains", "Parcels", "Exports", "Letters", "Buses", "Ferries", "Calls"),
        PLACES,
    ),
    "by or for": Kind(
        "The {n} was made by {x} for {y} and was shown last year.",
        ("{n} by {x}", "{n} for {y}"),
        ("portrait", "song", "cake", "dress", "poem", "garden", "chair", "map"),
        PEOPLE,
    ),
    "before or after": Kind(
        "In the {n} the {x} takes place before the {y}, and guests may stay.",
        ("{n} with the {x} before the {y}", "{n} with the {y} after the {x}"),
        ("morning", "village", "evening", "school", "club", "castle", "park", "camp"),
        EVENTS,
    ),
    "above or below": Kind(
        "In the {n} house the {x} is above the {y}, and both have windows.",
        ("{n} house with the {x} above the {y}", "{n} house with the {y} below the {x}"),
        ("white", "old", "stone", "yellow", "corner", "narrow", "wooden", "gray"),
        PARTS,
    ),
}


@dataclass(frozen=True)
class Pair:
    """A query, the passage that is meant, and the one with its names exchanged."""

    query: str
    right: str
    wrong: str


def pairs(kind: Kind, count: int, rng: random.Random, *, taught: bool = False) -> list[Pair]:
    """Returns different pairs of a kind. taught: of the names and things that the others do not have."""
    half = (len(kind.things) // 2, len(kind.names) // 2)
    things, names = (
        some[middle:] if taught else some[:middle] for some, middle in zip((kind.things, kind.names), half, strict=True)
    )
    every = [(n, x, y, query) for n in things for x, y in permutations(names, 2) for query in kind.queries]
    return [
        Pair(
            query.format(n=n, x=x, y=y).lower(),
            kind.passage.format(n=n, x=x, y=y),
            kind.passage.format(n=n, x=y, y=x),
        )
        for n, x, y, query in rng.sample(every, min(count, len(every)))
    ]


def right_first(score: Score, some: Sequence[Pair]) -> float:
    """Returns the share of pairs whose right passage has the higher score; equal scores count as half."""
    total = 0.0
    for pair in some:
        right, wrong = score(pair.query, (pair.right, pair.wrong))
        total += 0.5 if right == wrong else float(right > wrong)
    return total / len(some)


def words_of(passages: Sequence[str], folder: Path) -> Score:
    """Returns the BM25 of an index of all passages."""
    searcher = bertie.build_index(iter(passages), folder, overwrite=True)

    def score(query: str, both: Sequence[str]) -> list[float]:
        (ranking,) = searcher.search(query, 0).rankings.values()
        texts = {
            one.text: value
            for one, (_, value) in zip(searcher.store.passages([i for i, _ in ranking]), ranking, strict=True)
        }
        return [round(texts.get(text, 0.0), 6) for text in both]

    return score


def by_model(model: bertie.Model) -> Score:
    """Returns the scores of a re-ranking model."""
    return partial(passage_relevance, model.predictor())


def by_vectors(model: bertie.Model) -> Score:
    """Returns the cosine of the vectors of a model."""

    def score(query: str, both: Sequence[str]) -> list[float]:
        vectors = np.asarray(model.embed([query, *both], normalize=True))
        return [round(float(value), 6) for value in vectors[1:] @ vectors[0]]

    return score


def taught(start: str, work: Path, seed: int) -> Path:
    """Returns a re-ranker that learned from pairs of two kinds, in which the place of the right passage is random."""
    folder, rng = work / f"taught-{Path(start).parent.name or start}-{seed}", random.Random(seed + 1)
    rows = []
    for name in TAUGHT_KINDS:
        for pair in pairs(KINDS[name], TAUGHT_PAIRS // len(TAUGHT_KINDS), rng, taught=True):
            choices = [pair.right, pair.wrong]
            rng.shuffle(choices)
            rows.append({"question": pair.query, "choices": choices, "label": choices.index(pair.right)})
    rng.shuffle(rows)
    (work / f"taught-{seed}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if not (folder / "model").exists():
        settings = ["max_length=64", "epochs=5", "optim.lr=1e-4", "label_check=none", "baselines=false"]
        file = work / f"taught-{seed}.jsonl"
        bertie.finetune(start, train=file, task="choice", output=folder, seed=seed, overrides=settings)
    return folder / "model"


def opened(model: str) -> Score:
    """Returns the scores of a model."""
    return by_model(bertie.load(model))


def opened_vectors(model: str) -> Score:
    """Returns the cosines of a model."""
    return by_vectors(bertie.load(model))


def opened_taught(start: str, work: Path, seed: int) -> Score:
    """Returns the scores of a model that was taught."""
    return by_model(bertie.load(taught(start, work, seed)))


def rankings(options: argparse.Namespace, passages: Sequence[str]) -> Iterator[tuple[str, Callable[[], Score]]]:
    """Yields the name of each ranking, and what opens it."""
    yield "words (BM25)", partial(words_of, passages, options.work / "index")
    for one in options.vectors:
        name, _, model = one.partition("=")
        yield f"vectors: {name}", partial(opened_vectors, model)
    for one in options.rerank:
        name, _, model = one.partition("=")
        yield f"re-ranker: {name}", partial(opened, model)
    for one in options.teach:
        name, _, model = one.partition("=")
        yield f"re-ranker: {name}, taught", partial(opened_taught, model, options.work, options.seed)


def main() -> None:
    """Measures the rankings that the file of results does not have."""
    parser = argparse.ArgumentParser(description="Measures rankings on queries that a preposition decides.")
    parser.add_argument("--work", required=True, type=Path, help="folder of the index and of taught models")
    parser.add_argument("--vectors", nargs="*", default=[], help="NAME=MODEL: models of sentence vectors")
    parser.add_argument("--rerank", nargs="*", default=[], help="NAME=MODEL: re-ranking models")
    parser.add_argument("--teach", nargs="*", default=[], help="NAME=MODEL: models that learn from other pairs first")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    rng = random.Random(options.seed)
    tested = {name: pairs(kind, PAIRS, rng) for name, kind in KINDS.items()}
    passages = sorted({text for some in tested.values() for pair in some for text in (pair.right, pair.wrong)})
    conditions = harness.conditions()
    known = {(one["ranking"], one["seed"]) for one in read_lines(RESULTS)}
    for name, make in rankings(options, passages):
        if (name, options.seed) in known:
            continue
        score = make()
        shares = {kind: right_first(score, some) for kind, some in tested.items()}
        line = {"ranking": name, "seed": options.seed, "pairs": PAIRS, **shares}
        add_line(RESULTS, {**line, **conditions})


if __name__ == "__main__":
    main()
