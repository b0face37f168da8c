"""Sequences of many texts: Bertie's bulk encoder, `tokenizers` and the fast tokenizer of `transformers`.

All read the same sentences, BATCH a call, with the same vocabulary, and add no special tokens. Bertie returns two
arrays, as shards want them, the others lists. Every round opens a new tokenizer before the measurement, so that no
cache of the round before helps. All ids must be the same.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import corpus, harness
from bertie.errors import BertieError, UsageError
from bertie.text.bulk import BulkEncoder
from bertie.text.normalize import clean
from bertie.text.sentences import splitter
from bertie.text.tokenizer import Tokenizer

BATCH = 1000  # what datasets.map gives by default

Encode = Callable[[Sequence[str]], Any]
Sequences = list[list[int]]


def bertie(folder: Path) -> Encode:
    """`Tokenizer.flat_ids`, what `bertie corpus` calls: nanotoken where it is installed and agrees."""
    return Tokenizer.load(folder).flat_ids


def without_nanotoken(folder: Path) -> Encode:
    """The same where nanotoken is not installed: every distinct chunk of text is tokenized once."""
    bulk = BulkEncoder(Tokenizer.load(folder).engine)
    bulk._fast = None
    return bulk.flat


def tokenizers(folder: Path) -> Encode:
    """The engine's own fast batch call, which keeps no offsets."""
    from tokenizers import Tokenizer as Engine

    engine = Engine.from_file(str(folder / "tokenizer.json"))
    return lambda texts: engine.encode_batch_fast(texts, add_special_tokens=False)


def transformers(folder: Path) -> Encode:
    """A fast tokenizer called with a list."""
    from transformers import PreTrainedTokenizerFast

    fast = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    asked = {"add_special_tokens": False, "return_attention_mask": False, "return_token_type_ids": False}
    return lambda texts: fast(texts, **asked)


RUNNERS: dict[str, tuple[Callable[[Path], Encode], Callable[[Any], Sequences]]] = {
    "bertie": (bertie, lambda found: [found[0][a:b].tolist() for a, b in pairwise(found[1])]),
    "bertie, without nanotoken": (
        without_nanotoken,
        lambda found: [found[0][a:b].tolist() for a, b in pairwise(found[1])],
    ),
    "tokenizers": (tokenizers, lambda found: [one.ids for one in found]),
    "transformers": (transformers, lambda found: found["input_ids"]),
}
"""By name: what opens a tokenizer folder, and what makes lists of what it answers."""


def measure(documents: Iterable[str], about: str, *, threads: int, rounds: int) -> list[dict[str, Any]]:
    """One JSON-ready line per runner. Raises BertieError when the ids differ.

    threads: of the engine; they are counted when it is first used in a process, so measure in a fresh one.
    """
    require()
    os.environ |= {"RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "true"}
    split = splitter("rules")
    with tempfile.TemporaryDirectory() as work:
        texts = list(documents)
        _, folder = corpus.write(Path(work), texts)
        sentences = [sentence for text in texts for sentence in split(clean(text))]
        batches = [sentences[at : at + BATCH] for at in range(0, len(sentences), BATCH)]
        megabytes = sum(len(sentence.encode()) for sentence in sentences) / 1e6
        tokens = _agree(folder, batches)
        cells = harness.interleave(
            {name: _round(opened, folder, batches, megabytes) for name, (opened, _) in RUNNERS.items()}, rounds=rounds
        )
    peers = [cell for cell in cells if not cell.name.startswith("bertie")]
    return [
        {
            "bench": "tokenizer",
            "text": about,
            "sentences": len(sentences),
            "tokens": tokens,
            "text_mb": round(megabytes, 2),
            "threads": threads,
            "runner": cell.name,
            "mb_per_s": round(cell.median, 3),
            "spread": cell.spread,
            "rates": [round(rate, 3) for rate in cell.rates],
            "times_quicker_than": {
                peer.name: dict(zip(("median", "low", "high"), harness.ratios(cell, peer), strict=True))
                for peer in peers
            },
            "machine": harness.machine(),
        }
        for cell in cells
    ]


def require() -> None:
    """Raise UsageError with the command to run when the peers are not installed."""
    try:
        import transformers
    except ImportError:
        raise UsageError(
            "The benchmark compares with transformers, which is not installed: pip install 'bertie[dev]'"
        ) from None
    assert transformers


def _round(
    opened: Callable[[Path], Encode], folder: Path, batches: list[list[str]], megabytes: float
) -> harness.Runner:
    def run() -> tuple[float, float]:
        encode = opened(folder)
        begun = time.perf_counter()
        for batch in batches:
            encode(batch)
        return megabytes, time.perf_counter() - begun

    return run


def _agree(folder: Path, batches: list[list[str]]) -> int:
    """How many ids there are, the same by every runner. Raises BertieError for the first sentence that has others."""
    encoders = {name: (opened(folder), lists) for name, (opened, lists) in RUNNERS.items()}
    tokens = 0
    for batch in batches:
        found = {name: lists(encode(batch)) for name, (encode, lists) in encoders.items()}
        expected = found.pop("tokenizers")
        for name, rows in found.items():
            for text, ours, theirs in zip(batch, rows, expected, strict=True):
                if ours != theirs:
                    raise BertieError(
                        f"{name} and tokenizers produced different token ids, so no timings are "
                        f"reported, for: {text[:200]!r}"
                    )
        tokens += sum(map(len, expected))
    return tokens
