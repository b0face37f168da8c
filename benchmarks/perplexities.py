"""Perplexity of small language models of every head, on the same sentences.

    python -m benchmarks.perplexities --texts squad/dev-v1.1.json --corpus CORPUS --model RUN/model --model starter-en

The sentences are of paragraphs that no model has read. The baseline knows how often each word occurs in the corpus of
the small models; a word that does not costs as much as one that occurs once, and 8 bits per byte. A line of
results/perplexities.jsonl is a model. Values of `mlm` and `plm` are pseudo-perplexities: compare them with each other.
"""

import argparse
from collections import Counter
from math import exp, log
from pathlib import Path

import bertie
from benchmarks.harness import conditions
from benchmarks.next_sentences import triples
from benchmarks.result_lines import add_line, read_lines
from bertie.infer.perplexity import BYTE

RESULTS = Path(__file__).parent / "results" / "perplexities.jsonl"
SENTENCES = 300


def of_frequencies(texts: list[str], corpus: str) -> float:
    """Returns the perplexity per word of a model that predicts each word by how often it occurs in a corpus."""
    counts = Counter(word for document in bertie.Corpus.open(corpus) for text in document for word in text.split())
    total, words = sum(counts.values()) + 1, [word for text in texts for word in text.split()]
    nats = sum(
        log(total / max(1, counts[word])) + (0 if word in counts else BYTE * len(word.encode())) for word in words
    )
    return exp(nats / len(words))


def main() -> None:
    """Measures the models that the file of results does not have."""
    parser = argparse.ArgumentParser(description="Measures the perplexity of language models of every head.")
    parser.add_argument("--texts", required=True, type=Path, help="paragraphs in SQuAD's layout that no model has read")
    parser.add_argument("--corpus", required=True, help="corpus that words are counted in")
    parser.add_argument("--model", action="append", default=[])
    options = parser.parse_args()
    texts = [first for (first, _), _ in zip(triples(options.texts), range(SENTENCES), strict=False)]
    known = {one["model"] for one in read_lines(RESULTS)}
    if "frequencies" not in known:
        line = {"model": "frequencies", "head": "", "per_word": round(of_frequencies(texts, options.corpus), 1)}
        add_line(RESULTS, line | {"sentences": len(texts)} | conditions("cpu"))
    for folder in options.model:
        if (name := Path(folder).name) not in known:
            scores = bertie.perplexity(folder, texts, device="cpu")
            line = {"model": name, "head": scores.head, "per_word": round(scores.per_word, 1)}
            line |= {"per_token": round(scores.per_token, 2), "tokens": scores.tokens, "unknown": scores.unknown}
            add_line(RESULTS, line | {"sentences": scores.texts} | conditions("cpu"))


if __name__ == "__main__":
    main()
