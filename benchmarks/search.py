"""Search beside bm25s and sentence-transformers with numpy: build time, size, queries a second and the 99th percentile.

The passages are sentences of Wikipedia, or generated ones. The questions are parts of them: words drawn from a
sentence, so that each has a passage to find. All runners answer the same questions, one at a time, in turns.
"""

import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus import documents_of, made_up
from bertie.apps.search.embedded import Embedded
from bertie.apps.search.index import index
from bertie.apps.search.models import Embedder, embed_texts
from bertie.apps.search.searcher import Searcher
from bertie.apps.search.terms import Terms
from bertie.console import console
from bertie.errors import BertieError
from bertie.files import write_bytes
from bertie.infer.predict import Predictor
from bertie.text.sentences import rules

Ask = Callable[[str], Sequence[int]]
WORDS = 6  # of a question
TOP = 10
VECTORS = "vectors"  # the index with them


@dataclass(frozen=True)
class Built:
    """A runner that is ready: how long its index took, its bytes, and what answers a question."""

    seconds: float
    bytes: int
    ask: Ask


def sentences(path: str, count: int) -> list[str]:
    """Returns so many different sentences of 5 to 60 words. Raises BertieError when there are too few."""
    texts = documents_of(path, 1e6) if path else made_up(1e6)
    chosen: dict[str, None] = {}
    for one in (one for text in texts for one in rules(text) if 5 <= len(one.split()) <= 60):
        chosen[one] = None
        if len(chosen) == count:
            break
    if len(chosen) < count:
        raise BertieError(f"{path or 'The generated text'} has {len(chosen):,} sentences; {count:,} were asked for.")
    return [*chosen]


def questions(texts: Sequence[str], count: int, seed: int = 0) -> list[str]:
    """Returns words of randomly chosen sentences, in their order."""
    rng, found = random.Random(seed), []
    for text in rng.choices(texts, k=count):
        words = re.findall(r"\w+", text)
        found.append(" ".join(words[i] for i in sorted(rng.sample(range(len(words)), min(WORDS, len(words))))))
    return found


def measure(texts: Sequence[str], asked: Sequence[str], work: Path, embedder: Embedder | None) -> list[dict[str, Any]]:
    """Returns a row for each runner. The peers are left out where they are not installed."""
    makers: dict[str, Callable[[], Built]] = {"bertie words": lambda: _words(texts, work)}
    makers["bm25s"] = lambda: _bm25s(texts)
    if embedder is not None:
        model = embedder.load()
        makers["bertie vectors"] = lambda: _vectors(texts, work, embedder)
        makers["bertie model, numpy"] = lambda: _numpy(work, model)
        makers["sentence-transformers"] = lambda: _sentence_transformers(work, embedder.folder)
    ready: dict[str, Built] = {}
    for name, make in makers.items():
        try:
            ready[name] = make()
        except ImportError as error:
            console.warn(f"{name} is left out: {error}.")
    return [_row(name, built, times, len(texts)) for (name, built), times in _timed(ready, asked)]


def _timed(ready: Mapping[str, Built], asked: Sequence[str]) -> Iterator[tuple[tuple[str, Built], list[float]]]:
    times: dict[str, list[float]] = {name: [] for name in ready}
    for built in ready.values():
        built.ask(asked[0])
    with console.progress("asking", total=len(asked), unit="questions") as advance:
        for question in asked:
            for name, built in ready.items():
                began = time.perf_counter()
                built.ask(question)
                times[name].append(time.perf_counter() - began)
            advance()
    yield from zip(ready.items(), times.values(), strict=True)


def _row(name: str, built: Built, times: Sequence[float], passages: int) -> dict[str, Any]:
    return {
        "bench": "search",
        "runner": name,
        "passages": passages,
        "build_s": round(built.seconds, 3),
        "index_bytes": built.bytes,
        "queries_per_s": len(times) / sum(times),
        "median_ms": float(np.median(times)) * 1000,
        "p99_ms": float(np.percentile(times, 99)) * 1000,
    }


def _made(texts: Sequence[str], work: Path, name: str, embedder: Embedder | None = None) -> tuple[float, Path]:
    source, folder = work / f"{name}.tsv", work / name
    write_bytes(source, ("text\n" + "".join(" ".join(text.split()) + "\n" for text in texts)).encode())
    began = time.perf_counter()
    index([str(source)], folder, embedder=embedder)
    return time.perf_counter() - began, folder


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _words(texts: Sequence[str], work: Path) -> Built:
    seconds, folder = _made(texts, work, "words")
    searcher = Searcher(folder)
    return Built(seconds, _size(folder), lambda question: [hit.passage.id for hit in searcher.search(question).hits])


def _bm25s(texts: Sequence[str]) -> Built:
    import bm25s

    cut = Terms()
    began = time.perf_counter()
    engine = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    engine.index([cut(text) for text in texts], show_progress=False)
    seconds = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as folder:
        engine.save(folder)
        size = _size(Path(folder))

    def ask(question: str) -> list[int]:
        found, _ = engine.retrieve([cut(question)], k=TOP, show_progress=False)
        return [int(one) for one in found[0]]

    return Built(seconds, size, ask)


def _vectors(texts: Sequence[str], work: Path, embedder: Embedder) -> Built:
    seconds, folder = _made(texts, work, VECTORS, embedder)
    searcher = Searcher(folder, embedder=embedder.load(), words=False)
    return Built(seconds, _size(folder), lambda question: [hit.passage.id for hit in searcher.search(question).hits])


def _numpy(work: Path, model: Predictor) -> Built:
    """The vectors of the index in float32, and one product with numpy."""
    files = Embedded(work / VECTORS).files()
    given = np.concatenate([file.rows * file.scale[:, None] for file in files])

    def ask(question: str) -> list[int]:
        scores_N = given @ embed_texts(model, [question], "query")[0]
        best = np.argpartition(-scores_N, TOP)[:TOP]
        return [int(one) for one in best[np.argsort(-scores_N[best])]]

    return Built(0.0, given.nbytes, ask)


def _sentence_transformers(work: Path, folder: str) -> Built:
    """The same vectors, and questions embedded by the library: what its users write."""
    from sentence_transformers import SentenceTransformer, util

    model = SentenceTransformer(folder, device="cpu")
    files = Embedded(work / VECTORS).files()
    given = np.concatenate([file.rows * file.scale[:, None] for file in files])

    def ask(question: str) -> list[int]:
        query = model.encode([question], normalize_embeddings=True, show_progress_bar=False)
        return [int(one["corpus_id"]) for one in util.semantic_search(query, given, top_k=TOP)[0]]

    return Built(0.0, given.nbytes, ask)
