"""Corpus preparation, raw text to token ids on disk: `bertie corpus` and `datasets.map`, with the same steps.

    python -m benchmarks.corpus RUNNER WORKERS INPUT.jsonl TOKENIZER_FOLDER      (one round, in a process of its own)

The steps: read jsonl, undo mojibake, clean, split into sentences, leave out exact duplicates, tokenize, write. The
peer is given Bertie's own functions for the middle of it, so what differs is what carries the documents through them,
and the tokenizer: the peer's is `tokenizers`, a batch at a time. A round is a fresh process, so that no cache and no
thread of another is in its way; it counts the seconds from the first look at the file, imports done. All ids must be
the same.
"""

import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from benchmarks import harness
from bertie.console import console
from bertie.costs.meter import resident_peak_bytes
from bertie.data import corpus
from bertie.data.prepare import repair
from bertie.errors import BertieError, UsageError
from bertie.files import atomic_write
from bertie.io import sources
from bertie.io.blocks import ReadOptions
from bertie.io.lines import BadRecord
from bertie.text import vocabulary
from bertie.text.normalize import Normalizer, clean
from bertie.text.sentences import splitter
from bertie.text.tokenizer import Tokenizer

ONE_THREAD = {"RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
VOCABULARY = 16_000
TRAINED_ON = 4_000_000  # characters: enough for a vocabulary of that size
WORDS, DUPLICATES = 60_000, 0.02  # different words of the text made here; the share of its documents that come twice
LATIN = [a + b for a in "bcdfglmnprst" for b in "aeiou"]  # syllables
HANGUL = [chr(code) for code in range(ord("가"), ord("힣") + 1, 28)]


def made_up(megabytes: float, *, hangul: bool = False, seed: int = 0) -> Iterator[str]:
    """Yields generated documents: sentences of words with realistic frequencies (Zipf), with some duplicates."""
    rng = random.Random(seed)
    lengths = (
        1 + int(math.log10(rank + 1) * rng.uniform(0.4, 1.1)) for rank in range(WORDS)
    )  # frequent words are short
    lexicon = ["".join(rng.choices(HANGUL if hangul else LATIN, k=length)) for length in lengths]
    weights = list(accumulate(1 / (rank + 2.7) for rank in range(WORDS)))  # Mandelbrot's form of the law
    size, last = 0.0, ""
    while size < megabytes * 1e6:
        if not last or rng.random() >= DUPLICATES:
            words = (rng.choices(lexicon, cum_weights=weights, k=rng.randint(5, 30)) for _ in range(rng.randint(5, 40)))
            last = " ".join(f"{' '.join(some).capitalize()}{rng.choice('....?!')}" for some in words)
        size += len(last.encode())
        yield last


def documents_of(path: str, megabytes: float) -> Iterator[str]:
    """Yields the first megabytes of documents in files. Raises UsageError if there are none."""
    size = 0
    for unit in sources.plan_units([path], ReadOptions())[0]:
        for found in sources.read_unit(unit, ReadOptions(), Counter()):
            text = "" if isinstance(found, BadRecord) else found.strip()
            if text and size < megabytes * 1e6:
                size += len(text.encode())
                yield text
    if not size:
        raise UsageError(f"{path} contains no documents to measure on.")


def write(folder: Path, documents: Iterable[str]) -> tuple[Path, Path]:
    """Writes the input of every runner: documents as jsonl, and a tokenizer trained on the first of them."""
    texts, read = list[str](), 0
    with atomic_write(folder / "input.jsonl") as file:
        for text in documents:
            file.write(json.dumps({"text": text}, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
            if read < TRAINED_ON:
                texts.append(text)
                read += len(text)
    words = vocabulary.count_words(clean(text) for text in texts)
    vocabulary.train_vocabulary(words, size=VOCABULARY, normalizer=Normalizer(lowercase=True)).save(
        folder / "tokenizer"
    )
    return folder / "input.jsonl", folder / "tokenizer"


# Runners: make token ids in a folder, and answer with what makes a digest of them when the clock has stopped ---------


Digest = Callable[[], str]


def with_bertie(path: Path, tokenizer: Path, workers: int, folder: Path) -> Digest:
    """`bertie corpus --tokenizer`."""
    corpus.build_shards([path], folder / "corpus", workers=workers)
    shards = corpus.encode_corpus(folder / "corpus", Tokenizer.load(tokenizer), workers=workers)
    return lambda: _digest((values.astype(np.uint32), np.diff(sentences)) for values, sentences, _ in shards)


def with_datasets(path: Path, tokenizer: Path, workers: int, folder: Path) -> Digest:
    """`datasets.map` over batches of documents; one process leaves out duplicates, since it must know all."""
    import datasets
    from tokenizers import Tokenizer as Engine

    split, engine, seen = splitter("rules"), Engine.from_file(str(tokenizer / "tokenizer.json")), set[bytes]()

    def sentences(batch: dict[str, list[str]]) -> dict[str, Any]:
        return {"sentences": [split(clean(repair(text))) for text in batch["text"]]}

    def first(batch: dict[str, Any]) -> list[bool]:
        hashes = [xxhash.xxh3_128_digest("".join(document).encode()) for document in batch["sentences"]]
        kept = []
        for document, digest in zip(batch["sentences"], hashes, strict=True):
            kept.append(bool(document) and digest not in seen)
            seen.add(digest)
        return kept

    def ids(batch: dict[str, Any]) -> dict[str, Any]:
        flat = [sentence for document in batch["sentences"] for sentence in document]
        found = iter(engine.encode_batch_fast(flat, add_special_tokens=False))
        return {"ids": [[next(found).ids for _ in document] for document in batch["sentences"]]}

    several = workers if workers > 1 else None
    rows = datasets.load_dataset("json", data_files=str(path), split="train", cache_dir=str(folder / "cache"))
    rows = rows.map(sentences, batched=True, remove_columns=["text"], num_proc=several)
    rows = rows.filter(first, batched=True)
    rows = rows.map(ids, batched=True, remove_columns=["sentences"], num_proc=several)
    rows.save_to_disk(str(folder / "ids"), num_proc=several)
    documents = (document for batch in rows.iter(1000) for document in batch["ids"])
    return lambda: _digest(
        (np.array([i for s in document for i in s], np.uint32), np.array([len(s) for s in document]))
        for document in documents
    )


RUNNERS = {"bertie": with_bertie, "datasets.map": with_datasets}


def _digest(parts: Iterable[tuple[Any, Any]]) -> str:
    """A hash of all ids in order, and of where sentences end, however they come in parts."""
    ids, lengths = xxhash.xxh3_128(), xxhash.xxh3_128()
    for some_ids, some_lengths in parts:
        ids.update(np.ascontiguousarray(some_ids, "<u4").data)
        lengths.update(np.ascontiguousarray(some_lengths, "<i8").data)
    return f"{ids.hexdigest()}-{lengths.hexdigest()}"


@dataclass
class Round:
    """A runner with its number of workers. Each call is one round, in its own process."""

    name: str
    workers: int
    input: Path
    tokenizer: Path
    digest: str = ""
    peak_memory_bytes: int = 0

    def __call__(self) -> tuple[float, float]:
        """-> megabytes of input, seconds. Raises BertieError when it fails."""
        command = [sys.executable, "-m", __name__, self.name, str(self.workers), str(self.input), str(self.tokenizer)]
        done = subprocess.run(
            command, env={**os.environ, **ONE_THREAD, **OFFLINE}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise BertieError(f"{self.name} with {self.workers} workers failed:\n{done.stderr[-2000:]}")
        found = json.loads(done.stdout.strip().splitlines()[-1])
        self.digest = found["digest"]
        self.peak_memory_bytes = max(self.peak_memory_bytes, found["peak_memory_bytes"])
        return self.input.stat().st_size / 1e6, found["seconds"]


def measure(documents: Iterable[str], about: str, *, workers: tuple[int, ...], rounds: int) -> list[dict[str, Any]]:
    """Returns one row per runner and number of workers. Raises BertieError if the ids differ."""
    require()
    with tempfile.TemporaryDirectory() as work:
        input, tokenizer = write(Path(work), documents)
        made = {
            f"{name}, {number} process{'es' if number > 1 else ''}": Round(name, number, input, tokenizer)
            for number in workers
            for name in RUNNERS
        }
        cells = {cell.name: cell for cell in harness.interleave(made, rounds=rounds)}
        megabytes = input.stat().st_size / 1e6
    if len({runner.digest for runner in made.values()}) > 1:
        shown = "; ".join(f"{name}: {runner.digest}" for name, runner in made.items())
        raise BertieError(f"The programs produced different token ids, so no timings are reported: {shown}")
    lines = []
    for name, runner in made.items():
        cell = cells[name]
        peer = next(n for n, r in made.items() if r.workers == runner.workers and r.name == "datasets.map")
        against = dict(zip(("median", "low", "high"), harness.ratios(cell, cells[peer]), strict=True))
        lines.append(
            {
                "bench": "corpus",
                "text": about,
                "input_mb": round(megabytes, 2),
                "runner": name,
                "workers": runner.workers,
                "mb_per_s": round(cell.median, 3),
                "spread": cell.spread,
                "rates": [round(rate, 3) for rate in cell.rates],
                "peak_memory_bytes": runner.peak_memory_bytes,
                "times_quicker_than": {peer: against},
                "ids": runner.digest,
                "machine": harness.machine(),
            }
        )
    return lines


def require() -> None:
    """Raise UsageError with the command to run when the peer is not installed."""
    try:
        import datasets
    except ImportError:
        raise UsageError(
            "The benchmark compares with datasets, which is not installed: pip install 'bertie[dev]'"
        ) from None
    assert datasets


def _round(name: str, workers: int, path: Path, tokenizer: Path) -> None:
    require()
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        digest = RUNNERS[name](path, tokenizer, workers, Path(folder))
        seconds = time.perf_counter() - begun
        peak = resident_peak_bytes()  # of this process; workers have their own
        print(json.dumps({"seconds": seconds, "digest": digest(), "peak_memory_bytes": peak}))


if __name__ == "__main__":
    console.verbosity.level = -1
    _round(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))
