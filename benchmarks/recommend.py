"""Items by their texts: a model that learns which are read together, beside popularity, counts and words.

    python -m benchmarks.recommend --data nfcorpus --models starter-en       measures what the file lacks

The data set has a collection of documents in BEIR's layout, and judged queries. Documents that answer one query are
what one reader has read. Pairs of the training queries are learned, with the other items of a batch as negatives; a
tenth of the tested items is in no training pair. A test reader's item asks for the reader's others: recall at 10, over
readers of the test queries, apart for items that training has met and for new ones. A row and a seed are a line of
results/recommend.jsonl.
"""

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer

import bertie
from benchmarks import harness
from benchmarks.result_lines import add_line, read_lines

RESULTS = Path(__file__).parent / "results" / "recommend.jsonl"
LENGTH, BATCH, RATE, TOP = 64, 64, 1e-4, 10
PAIRS, ASKED = 8_000, 20  # pairs that are learned; items of a reader that ask
Scores = NDArray[np.float32]
Ranking = Callable[[int], Scores]
"""The scores of all items for one that was read, (I,)."""


class Items:
    """The texts of a data set's items, and the readers of its parts. new: items that training does not meet."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.name = folder.name
        lines = map(json.loads, (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines())
        texts = {line["_id"]: f"{line['title']} {line['text']}".strip() for line in lines}
        self.texts = list(texts.values())
        number = {name: place for place, name in enumerate(texts)}
        self.readers: dict[str, dict[str, list[int]]] = {}
        for part in ("train", "test"):
            readers = defaultdict[str, list[int]](list)
            for line in (folder / "qrels" / f"{part}.tsv").read_text(encoding="utf-8").splitlines()[1:]:
                query, item, grade = line.split("\t")
                if int(grade) > 0 and item in number:
                    readers[query].append(number[item])
            self.readers[part] = {query: items for query, items in readers.items() if len(items) > 1}
        tested = sorted({item for items in self.readers["test"].values() for item in items})
        self.new = frozenset(Random(seed).sample(tested, len(tested) // 10))
        self.known = {
            query: [one for one in items if one not in self.new] for query, items in self.readers["train"].items()
        }

    def pairs(self, seed: int) -> list[tuple[str, str]]:
        """Returns pairs of items of one reader, each reader as often as another."""
        rng, readers = Random(seed), [items for items in self.known.values() if len(items) > 1]
        drawn = (rng.sample(rng.choice(readers), 2) for _ in range(PAIRS))
        return [(self.texts[a], self.texts[b]) for a, b in drawn]

    def recall(self, scores: Ranking, seed: int) -> dict[str, float]:
        """Returns the mean share of a reader's other items among the first ten, for known items and for new ones."""
        rng, shares = Random(seed), {"known": list[float](), "new": list[float]()}
        for items in self.readers["test"].values():
            for item in rng.sample(items, min(ASKED, len(items))):
                values = scores(item).copy()
                values[item] = -np.inf
                wanted = set(items) - {item}
                best = set(np.argpartition(-values, TOP)[:TOP].tolist())
                shares["new" if item in self.new else "known"].append(len(best & wanted) / min(TOP, len(wanted)))
        return {kind: round(float(np.mean(values)), 4) for kind, values in shares.items()}


def by_popularity(items: Items) -> Ranking:
    """Returns the number of readers of each item, whatever was read."""
    counts = np.zeros(len(items.texts), np.float32)
    for read in items.known.values():
        counts[read] += 1
    return lambda item: counts


def by_counts(items: Items) -> Ranking:
    """Returns how many readers of an item have read each other item, over the root of how many have read that."""
    together, readers = defaultdict[int, Counter[int]](Counter), Counter[int]()
    for read in items.known.values():
        readers.update(read)
        for item in read:
            together[item].update(read)

    def scores(item: int) -> Scores:
        values = np.zeros(len(items.texts), np.float32)
        for other, count in together[item].items():
            values[other] = count / readers[other] ** 0.5
        return values

    return scores


def by_words(items: Items) -> Ranking:
    """Returns the similarity of tf-idf vectors."""
    vectors = TfidfVectorizer(sublinear_tf=True, stop_words="english", dtype=np.float32).fit_transform(items.texts)
    return lambda item: np.asarray((vectors @ vectors[item].T).todense(), np.float32).ravel()


def by_vectors(items: Items, model: str | Path) -> Ranking:
    """Returns the similarity of a model's vectors."""
    vectors = bertie.embed(model, items.texts, max_length=LENGTH)
    vectors = np.asarray(vectors, np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return lambda item: vectors @ vectors[item]


def trained(items: Items, model: str, seed: int, folder: Path) -> Path:
    """Trains a model on pairs, with the other items of a batch as negatives. Returns its folder."""
    if not folder.exists():
        pairs = [{"anchor": one, "positive": other} for one, other in items.pairs(seed)]
        run = bertie.finetune(
            model,
            pairs,
            task="embed",
            epochs=1,
            lr=RATE,
            warmup=0.1,
            batch_size=BATCH,
            max_length=LENGTH,
            seed=seed,
            settings={"select": "last", "task_options": {"loss_kind": "in_batch_negatives"}, "baselines": False},
        )
        run.model.save(folder)
    return folder


def by_trained(items: Items, model: str, seed: int, folder: Path) -> Ranking:
    """Returns the similarity of the vectors of a model that was trained on pairs."""
    return by_vectors(items, trained(items, model, seed, folder))


def rows_of(items: Items, models: Sequence[str], work: Path, seed: int) -> dict[str, Callable[[], Ranking]]:
    """Returns what makes the scores of each row."""
    rows: dict[str, Callable[[], Ranking]] = {
        "popularity": partial(by_popularity, items),
        "read together before": partial(by_counts, items),
        "words": partial(by_words, items),
    }
    for model in models:
        name = Path(model).name
        rows[f"{name}, as it is"] = partial(by_vectors, items, model)
        folder = work / f"{items.name}-{name}-{seed}"
        rows[f"{name}, trained on pairs"] = partial(by_trained, items, model, seed, folder)
    return rows


def main() -> None:
    """Measures the rows that the file of results does not have."""
    parser = argparse.ArgumentParser(description="Recommends items by their texts.")
    parser.add_argument("--data", required=True, type=Path, help="folder in BEIR's layout")
    parser.add_argument("--models", nargs="+", default=["starter-en"])
    parser.add_argument("--work", required=True, type=Path, help="folder of trained models")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    shared = {"data": options.data.name, **harness.conditions("cuda" if torch.cuda.is_available() else "cpu")}
    known = {(one["data"], one["row"], one["seed"]) for one in read_lines(options.results)}
    for seed in range(options.seeds):
        items = Items(options.data, seed)
        for row, make in rows_of(items, options.models, options.work, seed).items():
            if (items.name, row, seed) not in known:
                add_line(options.results, {"row": row, "seed": seed, **shared, **items.recall(make(), seed)})


if __name__ == "__main__":
    main()
