"""How well are wrong words found? Words of sentences are replaced or misspelled, and each method scores every word.

    python -m benchmarks.replaced_words --texts FILE --corpus CORPUS --model ELECTRA --model starter-en

    rtd, mlm  the probability of `bertie detect`, by the head of a model
    rare      -log of the word's frequency in a corpus: the baseline without a model

A line of results/replaced_words.jsonl is a method, a kind of change and a seed, with the area under the ROC curve over
all words: 0.5 is chance.
"""

import argparse
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from math import log
from pathlib import Path
from random import Random

from sklearn.metrics import roc_auc_score

import bertie
from benchmarks.result_lines import add_line, mean_cell, read_lines
from bertie.apps.pretrained.detect import read_words

RESULTS = Path(__file__).parent / "results" / "replaced_words.jsonl"
SENTENCES, SHARE = 400, 0.1  # words that are changed
SHORTEST, LONGEST = 8, 40  # words of a sentence
WORD = re.compile(r"[^\W\d_]{3,}")  # a word that may be changed
Scores = Callable[[str], list[tuple[int, float]]]
"""Text -> the first character of each word, and its score."""


def sentences(file: Path) -> Iterator[str]:
    """Yields sentences of a text with one paragraph a line, the first of each paragraph."""
    for line in file.read_text(encoding="utf-8").splitlines():
        first = re.split(r"(?<=[.!?]) ", line.strip())[0]
        if not line.startswith("<") and SHORTEST <= len(first.split()) <= LONGEST and first.endswith("."):
            yield first


def replaced(word: str, random: Random, counts: Sequence[str]) -> str:
    """Returns a random word of the corpus, drawn by its count."""
    return next(other for other in iter(lambda: random.choice(counts), None) if other.lower() != word.lower())


def misspelled(word: str, random: Random, counts: Sequence[str]) -> str:
    """Returns the word without a letter, or with two neighbors exchanged."""
    del counts
    place = random.randrange(len(word) - 1)
    exchanged = word[:place] + word[place + 1] + word[place] + word[place + 2 :]
    return word[:place] + word[place + 1 :] if random.random() < 0.5 or exchanged == word else exchanged


CHANGES = {"replaced": replaced, "misspelled": misspelled}


def changed(text: str, kind: str, random: Random, counts: Sequence[str]) -> tuple[str, set[int]]:
    """Returns a text with changed words, and where they begin."""
    parts, places, end = [], set[int](), 0
    for match in WORD.finditer(text):
        parts.append(text[end : match.start()])
        word = match[0]
        if random.random() < SHARE:
            word = CHANGES[kind](word, random, counts)
            places.add(sum(map(len, parts)))
        parts.append(word)
        end = match.end()
    return "".join([*parts, text[end:]]), places


def by_model(model: bertie.Model, text: str) -> list[tuple[int, float]]:
    """Scores words as `bertie detect` does."""
    return [(word.start, word.probability) for word in read_words(model, text)]


def by_count(counts: Counter[str], text: str) -> list[tuple[int, float]]:
    """Scores words by how rare they are."""
    return [(match.start(), -log(1 + counts[match[0].lower()])) for match in WORD.finditer(text)]


def area(scores: Scores, texts: Sequence[str], kind: str, seed: int, drawn: Sequence[str]) -> float:
    """Returns the area under the ROC curve over all words of the changed texts."""
    random, values, truth = Random(seed), list[float](), list[bool]()
    for original in texts:
        text, places = changed(original, kind, random, drawn)
        known = dict(scores(text))
        for match in WORD.finditer(text):
            if match.start() in known:
                values.append(known[match.start()])
                truth.append(match.start() in places)
    return round(float(roc_auc_score(truth, values)), 4)


def main() -> None:
    """Measures the methods that the file of results does not have, and prints the table."""
    parser = argparse.ArgumentParser(description="Measures how well wrong words are found.")
    parser.add_argument("--texts", required=True, type=Path, help="paragraphs that no model has read")
    parser.add_argument("--corpus", required=True, help="corpus that words are counted in")
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    texts = list(islice(sentences(options.texts), SENTENCES))
    counts = Counter(
        word.lower()
        for document in bertie.Corpus.open(options.corpus)
        for sentence in document
        for word in WORD.findall(sentence)
    )
    drawn = [word for word, count in counts.items() for _ in range(count // 20)]  # of common words, by their count
    methods: dict[str, Scores] = {"rare": partial(by_count, counts)}
    for name in options.model:
        model = bertie.load(name)
        head = next(head for head in ("rtd", "mlm") if head in model.runner.facts.heads)
        methods[f"{head}, {Path(name).name}"] = partial(by_model, model)
    known = {(one["method"], one["change"], one["seed"]) for one in read_lines(RESULTS)}
    for seed in range(options.seeds):
        for method, scores in methods.items():
            for kind in CHANGES:
                if (method, kind, seed) not in known:
                    line = {"method": method, "change": kind, "seed": seed, "sentences": len(texts)}
                    add_line(RESULTS, {**line, "auc": area(scores, texts, kind, seed, drawn)})
    for method in methods:
        for kind in CHANGES:
            runs = [one["auc"] for one in read_lines(RESULTS) if (one["method"], one["change"]) == (method, kind)]
            print(f"{method} | {kind} | {mean_cell(runs)}")


if __name__ == "__main__":
    main()
