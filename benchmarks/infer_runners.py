"""The runners of the inference benchmark: Bertie's engines and its peers, opened on the same texts and token ids.

    python -m benchmarks.infer_runners RUNNER MODEL WORK TEXTS.json THREADS OUTPUT

prints when the first text was done, and the peak memory after all of them: start-up and memory need a new process.

B sequences · H hidden size
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.infer_peers import PEERS, POOLS, Batch, Vectors
from bertie.costs.meter import resident_peak_bytes
from bertie.text.sequences import Sequences, token_budget

BATCH = 1024  # tokens of a peer's padded batch: larger batches are not faster for any of them (benchmarks/log)
OURS = {"Bertie float32": "fp32", "Bertie bfloat16": "bf16", "Bertie int8": "int8"}


@dataclass(frozen=True)
class Texts:
    """Texts and their token ids; others to calibrate on."""

    texts: list[str]
    ids: list[list[int]]
    calibration: list[str]

    @property
    def tokens(self) -> int:
        """The number of tokens of all texts."""
        return sum(map(len, self.ids))


@dataclass(frozen=True)
class Reading:
    """What is computed of each text: an output of Bertie's engines, a key of POOLS. answers: rows (B, H) -> (B,)"""

    output: str
    answer: str  # what the answers are
    answers: Callable[[Vectors], Any]


def reading_of(model: Path) -> Reading:
    """First rows and their labels for a classifier, else means and the nearest other text."""
    from bertie.infer.native import folder
    from bertie.models.families import VARIANTS

    engine = folder.open_native_engine(model, "fp32", VARIANTS)
    head = engine.heads.get("sequence") if engine else None
    if head is None or head.outputs < 2:
        return Reading("mean", "nearest", nearest)
    return Reading("cls", "label", lambda rows: head.run(rows).argmax(1))


def nearest(vectors: Vectors) -> Any:
    """Returns the number of each text's nearest other one."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    near = unit @ unit.T
    np.fill_diagonal(near, -1)
    return near.argmax(1)


def ours(precision: str, model: Path, work: Path, calibration: Sequence[str], threads: int, output: str) -> Batch:
    """The native engine on a model folder, as `bertie embed` has it. int8 is calibrated on other texts."""
    from bertie.infer.batching import run_batches
    from bertie.infer.engine import Engine
    from bertie.infer.native import folder
    from bertie.models.families import VARIANTS

    if precision == "int8":
        if not (work / "int8" / "config.json").is_file():
            import bertie
            from bertie.compression import gate

            found = bertie.load(model, engine="torch").module
            gate.CalibrationTexts.read(found, calibration).quantize(found)
            found.save_pretrained(work / "int8", packed=found.packed)
        model = work / "int8"
    engine: Engine | None = folder.open_native_engine(model, precision, VARIANTS)  # type: ignore[arg-type]
    if isinstance(engine, folder.FolderEngine):
        engine.threads = threads
    else:
        import bertie
        from bertie.infer.native_engine import NativeEngine

        engine = NativeEngine(bertie.load(model, engine="torch").module, precision)  # type: ignore[arg-type]

    def encode(sequences: Sequence[Sequence[int]]) -> Vectors:
        return run_batches(engine, Sequences.of(sequences), [output])[output]

    return encode


@dataclass(frozen=True)
class Opened:
    """A loaded runner: for all texts, for the first one alone, or for some by their numbers with all cores."""

    all: Callable[[], Vectors]
    first: Callable[[], Vectors]
    some: Callable[[Sequence[int]], Vectors]


def opened(runner: str, model: Path, work: Path, texts: Texts, threads: int, output: str) -> Opened:
    """Returns a runner for a model folder. work: folder for converted models. output: a key of POOLS."""
    if runner in OURS:
        encode = ours(OURS[runner], model, work, texts.calibration, threads, output)
        ids = texts.ids
        return Opened(lambda: encode(ids), lambda: encode(ids[:1]), lambda some: encode([ids[i] for i in some]))
    peer, pool = PEERS[runner], POOLS[output]
    read: Sequence[Any] = texts.texts if peer.texts else texts.ids
    run = peer.open(model, work, threads, 1, pool)
    one = cache(lambda: peer.open(model, work, 1, threads, pool))  # when it is needed

    def some(numbers: Sequence[int]) -> Vectors:
        return one()([read[i] for i in numbers])

    if peer.texts:
        return Opened(lambda: run(read), lambda: run(read[:1]), some)
    parts = token_budget([len(ids) for ids in texts.ids], max_tokens=BATCH)
    calls = ThreadPoolExecutor(1 if peer.own_threads else threads)

    def all_of_them() -> Vectors:
        found = list(calls.map(run, [[read[i] for i in part] for part in parts]))
        rows = np.concatenate(found)
        return rows[np.argsort(np.concatenate(parts))]

    return Opened(all_of_them, lambda: run(read[:1]), some)


def main() -> None:
    """Runs one runner in this process, and prints the time of its first vector and its peak memory."""
    runner, model, work, path, threads, output = sys.argv[1:]
    texts = Texts(*json.loads(Path(path).read_text()))
    one = opened(runner, Path(model), Path(work), texts, int(threads), output)
    one.first()
    first = time.time()
    one.all()
    print(json.dumps({"first": first, "peak_bytes": resident_peak_bytes()}))


if __name__ == "__main__":
    main()
