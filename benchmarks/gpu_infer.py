"""Vectors of texts on an NVIDIA GPU: Bertie and `sentence-transformers`, on the same texts and weights.

Both read texts, in bfloat16; `sentence-transformers` with the fastest of some batch sizes and torch's own attention.
The time of all texts has the tokenizer in it. The latency is that of one text, of all lengths. Weights are random,
with the sizes of published models, and the cosine of the vectors of both says that they compute the same.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import bertie
from benchmarks import harness
from bertie.infer.embed import Vector
from bertie.models import families

SIZES: dict[str, dict[str, int]] = {
    "6x384": {"num_hidden_layers": 6, "hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536},
    "base": {},
}
BATCH_SIZES = (256, 1024)  # of which the peer has the fastest
TRIED, ALONE = 4096, 300  # texts for that choice, and texts that are read one at a time
TOKENIZER = Path("models/starter-en")
MEDIAN_WORDS, SIGMA = 16, 0.9  # of made-up texts, log-normal
LONGEST = 256  # tokens that are read of a text

Embed = Callable[[list[str]], Vector]


def texts_of(count: int, path: Path | None = None, seed: int = 0) -> list[str]:
    """Returns texts, a line of a file each, repeated as often as needed; without a file, they are made up."""
    if path is not None:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [lines[number % len(lines)] for number in range(count)]
    rng = np.random.default_rng(seed)
    tokenizer = bertie.Tokenizer.load(TOKENIZER)
    words = np.array([word for word in map(tokenizer.id_to_token, range(tokenizer.vocab_size)) if word.isalpha()])
    sizes = np.exp(rng.normal(np.log(MEDIAN_WORDS), SIGMA, count)).astype(int).clip(1, 200)
    return [" ".join(rng.choice(words, size)) for size in sizes]


def write_model(size: str, folder: Path) -> None:
    """Writes a model of random weights with a tokenizer, which both open."""
    tokenizer = bertie.Tokenizer.load(TOKENIZER)
    config = families.config("bert-base", vocab_size=tokenizer.vocab_size, pooler=False, **SIZES[size])
    model = families.build(config)
    model.tokenizer = tokenizer
    model.save_pretrained(folder)


def bertie_embed(folder: Path) -> Embed:
    """Bertie's vectors, as `bertie embed --precision bf16` computes them."""
    model = bertie.load(folder, device="cuda", precision="bf16")
    return lambda texts: model.embed(texts, max_length=LONGEST)


def peer_embed(folder: Path, batch_size: int) -> Embed:
    """Those of `sentence-transformers`, in bfloat16."""
    import torch
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(
        str(folder), device="cuda", model_kwargs={"dtype": torch.bfloat16, "attn_implementation": "sdpa"}
    )
    encoder.max_seq_length = LONGEST

    def embed(texts: list[str]) -> Vector:
        vectors: Vector = encoder.encode(texts, batch_size=batch_size, convert_to_tensor=True).float().cpu().numpy()
        return vectors

    return embed


def measure(size: str, *, count: int = 20_000, rounds: int = 3, path: Path | None = None) -> list[dict[str, Any]]:
    """One line a runner: texts a second with spread, latencies of one text, the cosine to the other's vectors."""
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        write_model(size, folder)
        texts = texts_of(count, path)
        made = {batch_size: peer_embed(folder, batch_size) for batch_size in BATCH_SIZES}
        speeds = {batch_size: _rate(embed, texts[:TRIED]) for batch_size, embed in made.items()}
        fastest = max(BATCH_SIZES, key=lambda one: max(speeds[one], _rate(made[one], texts[:TRIED])))
        runners = {"bertie bf16": bertie_embed(folder), "sentence-transformers bf16": made[fastest]}
        tokenizer = bertie.Tokenizer.load(folder)
        tokens = sum(min(len(ids) + 2, LONGEST) for ids in tokenizer.ids(texts))
        timed = {name: _timed(embed, texts) for name, embed in runners.items()}
        cells = harness.interleave(timed, rounds=rounds)
        alone = {name: _latencies(embed, texts) for name, embed in runners.items()}
        ours, theirs = (embed(texts[:TRIED]) for embed in runners.values())
    lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    cosines = (ours * theirs).sum(1) / lengths
    return [
        {
            "bench": "gpu_infer",
            "model": size,
            "runner": cell.name,
            "texts": count,
            "tokens": tokens,
            "examples_per_s": round(cell.median, 1),
            "tokens_per_s": round(cell.median * tokens / count, 1),
            "spread": cell.spread,
            "rates": [round(rate, 1) for rate in cell.rates],
            "batch_size": fastest if cell is not cells[0] else None,
            "p50_ms": round(1e3 * float(np.quantile(alone[cell.name], 0.5)), 2),
            "p99_ms": round(1e3 * float(np.quantile(alone[cell.name], 0.99)), 2),
            "cosine_p1": round(float(np.quantile(cosines, 0.01)), 5),
            "times_quicker_than": {
                peer.name: dict(zip(("median", "low", "high"), harness.ratios(cell, peer), strict=True))
                for peer in cells
                if peer is not cell
            },
            "machine": harness.machine("cuda"),
        }
        for cell in cells
    ]


def _rate(embed: Embed, texts: list[str]) -> float:
    amount, seconds = _timed(embed, texts)()
    return amount / seconds


def _timed(embed: Embed, texts: list[str]) -> harness.Runner:
    def once() -> tuple[float, float]:
        began = time.perf_counter()
        embed(texts)
        return float(len(texts)), time.perf_counter() - began

    return once


def _latencies(embed: Embed, texts: list[str]) -> list[float]:
    """Returns the seconds of single texts, after as many others, in which shapes are recorded."""
    seconds = []
    for text in texts[: 2 * ALONE]:
        began = time.perf_counter()
        embed([text])
        seconds.append(time.perf_counter() - began)
    return seconds[ALONE:]
