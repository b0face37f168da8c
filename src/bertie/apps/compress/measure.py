"""Speed of a model compared with another one. Both run in turns, so that a busy machine affects both.

W sequences · T tokens
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bertie.platform import Engine, Rapl, Sequences, run_batches

ROUNDS = 5
TOKENS = 6_000  # of one round: seconds for a small model, a minute for BERT-base
ALONE = 100  # texts answered one at a time


@dataclass(frozen=True)
class Rate:
    """tokens_per_s: in batches, without padding; faster: relative to the other model, median of rounds; p50_ms,
    p99_ms: time of one text. joules: energy per 1,000 tokens, None if the machine does not report it.
    """

    tokens_per_s: float
    faster: float
    p50_ms: float
    p99_ms: float
    joules: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)


def rate(engine: Engine, other: Engine, ids: Sequences, outputs: Sequence[str]) -> Rate:
    """Measures on the first sequences; single texts are taken from all. Both engines must have `outputs`."""
    ends = np.cumsum(ids.lengths)
    some = ids.take(np.arange(max(1, int(np.searchsorted(ends, TOKENS)))))
    tokens = int(some.lengths.sum())

    def seconds(one: Engine) -> float:
        began = time.perf_counter()
        run_batches(one, some, outputs)
        return time.perf_counter() - began

    seconds(engine), seconds(other)  # warm
    times = [(seconds(engine), seconds(other)) for _ in range(ROUNDS)]
    counter = Rapl()
    seconds(engine)
    used = 1000 * counter.joules() / tokens if counter.readable else None
    alone = list[float]()
    for number in np.linspace(0, len(ids) - 1, min(ALONE, len(ids))).astype(int):
        text = ids.take(np.array([number]))
        began = time.perf_counter()
        engine.run(text, outputs)
        alone.append(1000 * (time.perf_counter() - began))
    return Rate(
        tokens / median(ours for ours, _ in times),
        median(theirs / ours for ours, theirs in times),
        float(np.quantile(alone, 0.5)),
        float(np.quantile(alone, 0.99)),
        used,
    )


def weight_bytes(folder: Path) -> int:
    """Returns the bytes of a model folder's weights."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))
