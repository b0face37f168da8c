"""Does a text follow another? A language model without a head for pairs, the head of next sentences, and words.

    python -m benchmarks.next_sentences --texts squad/dev-v1.1.json --language en --model starter-en --model BERT
    python -m benchmarks.next_sentences --texts KorQuAD_v1.0_dev.json --language ko --model starter-ko

For each of 500 sentences of Wikipedia (paragraphs of SQuAD's layout, none in the training text of the starters): the
next one, one of another paragraph of the same article, and one of another article.

    information  the nats per token that the first sentence saves a language model (`bertie next-sentence`)
    head         the logit of the head for pairs
    cosine       of the mean vectors of the model
    words        the share of the shorter sentence's words that both have (Korean: pairs of letters)

A line of results/next_sentences.jsonl is a method, with the area under the ROC curve against either kind of other
sentence, and the accuracy against other articles: at the threshold of `bertie next-sentence`, and at the best one of
the first half of the pairs on the second.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

import bertie
from benchmarks.harness import conditions
from benchmarks.result_lines import add_line, read_lines
from bertie.infer.batching import run_batches
from bertie.infer.pairs import EVEN, information
from bertie.io.tables import Example
from bertie.tasks.source import encode_examples

RESULTS = Path(__file__).parent / "results" / "next_sentences.jsonl"
SENTENCES, SHORTEST, LONGEST, MAX_LENGTH = 500, 5, 40, 256
END = re.compile(r"(?<=[.!?]) (?=[A-Z가-힣\"(])")
KINDS = ("next", "same article", "other article")
Pair = tuple[str, str]
Scores = Callable[[Sequence[Pair]], NDArray[np.float64]]


def triples(file: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields a sentence with the next one and two others, by kind."""
    random = Random(0)
    articles = [
        [END.split(paragraph["context"].strip()) for paragraph in article["paragraphs"]]
        for article in json.loads(file.read_text(encoding="utf-8"))["data"]
    ]
    articles = [article for article in articles if len(article) > 2]
    while True:
        article, other = random.sample(articles, 2)
        paragraph, second = random.sample(article, 2)
        place = random.randrange(len(paragraph))
        if place + 1 == len(paragraph):
            continue
        choices = (paragraph[place + 1], random.choice(second), random.choice(random.choice(other)))
        if all(SHORTEST <= len(text.split()) <= LONGEST for text in (paragraph[place], *choices)):
            yield paragraph[place], dict(zip(KINDS, choices, strict=True))


def by_words(korean: bool, pairs: Sequence[Pair]) -> NDArray[np.float64]:
    """Scores pairs by the words that both texts have."""

    def parts(text: str) -> set[str]:
        words = re.findall(r"\w+", text.lower())
        return {word[i : i + 2] for word in words for i in range(len(word) - 1)} if korean else set(words)

    both = [(parts(first), parts(second)) for first, second in pairs]
    return np.array([len(a & b) / max(1, min(len(a), len(b))) for a, b in both])


def by_vectors(model: bertie.Model, pairs: Sequence[Pair]) -> NDArray[np.float64]:
    """Scores pairs by the cosine of their mean vectors."""
    first, second = (model.embed([pair[side] for pair in pairs], normalize=True) for side in (0, 1))
    return np.asarray(np.einsum("nh,nh->n", first, second), np.float64)


def by_information(model: bertie.Model, pairs: Sequence[Pair]) -> NDArray[np.float64]:
    """Scores pairs as `bertie next-sentence` does without a head for pairs."""
    return np.array(information(model.runner, model.tokenizer, pairs, max_length=MAX_LENGTH))


def by_head(model: bertie.Model, pairs: Sequence[Pair]) -> NDArray[np.float64]:
    """Scores pairs by the head for pairs."""
    encoded = encode_examples([Example(pair) for pair in pairs], model.tokenizer, max_length=MAX_LENGTH)
    logits = run_batches(model.runner, encoded, ("pair",))["pair"]
    return np.asarray(logits[:, 0] - logits[:, 1], np.float64)


def measured(scores: Scores, pairs: Mapping[str, Sequence[Pair]], threshold: float | None) -> dict[str, float]:
    """Returns the areas and accuracies of a method. threshold: of `bertie next-sentence`."""
    of = {kind: scores(some) for kind, some in pairs.items()}
    line = {
        f"auc against {kind}": float(
            roc_auc_score([1] * len(of["next"]) + [0] * len(of[kind]), [*of["next"], *of[kind]])
        )
        for kind in KINDS[1:]
    }
    half = len(of["next"]) // 2

    def accuracy(at: float, part: slice) -> float:
        return float(((of["next"][part] > at).mean() + (of["other article"][part] <= at).mean()) / 2)

    best = max([*of["next"][:half], *of["other article"][:half]], key=lambda at: accuracy(at, slice(half)))
    line["best threshold"], line["accuracy at it"] = float(best), accuracy(best, slice(half, None))
    if threshold is not None:
        line["accuracy"] = accuracy(threshold, slice(None))
        line |= {f"follows, {kind}": float((of[kind] > threshold).mean()) for kind in KINDS}
    return {name: round(value, 4) for name, value in line.items()}


def main() -> None:
    """Measures the methods that the file of results does not have."""
    parser = argparse.ArgumentParser(description="Measures whether the next sentence is told from others.")
    parser.add_argument("--texts", required=True, type=Path, help="paragraphs in SQuAD's layout that no model has read")
    parser.add_argument("--language", choices=("en", "ko"), required=True)
    parser.add_argument("--model", action="append", default=[])
    options = parser.parse_args()
    sampled = [one for one, _ in zip(triples(options.texts), range(SENTENCES), strict=False)]
    pairs = {kind: [(first, others[kind]) for first, others in sampled] for kind in KINDS}
    methods: dict[tuple[str, str], tuple[Scores, float | None]] = {
        ("words", ""): (partial(by_words, options.language == "ko"), None)
    }
    for folder in options.model:
        model, name = bertie.load(folder, device="cpu"), Path(folder).name
        methods["cosine", name] = (partial(by_vectors, model), None)
        methods["information", name] = (partial(by_information, model), EVEN)
        if "pair" in model.runner.facts.heads:
            methods["head", name] = (partial(by_head, model), 0.0)
    known = {(one["method"], one["model"], one["language"]) for one in read_lines(RESULTS)}
    for (method, name), (scores, threshold) in methods.items():
        if (method, name, options.language) not in known:
            line = {"method": method, "model": name, "language": options.language, "sentences": SENTENCES}
            add_line(RESULTS, line | measured(scores, pairs, threshold) | conditions("cpu"))


if __name__ == "__main__":
    main()
