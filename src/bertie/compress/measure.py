"""How quick a model is beside another one: both in turns, so that a busy machine slows both.

W sequences · T tokens
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bertie.data.ids import Ids
from bertie.infer.batching import run
from bertie.infer.engine import Engine

ROUNDS = 5
TOKENS = 20_000  # of one round
POWERCAP = Path("/sys/class/powercap")
ALONE = 100  # texts answered one at a time


@dataclass(frozen=True)
class Rate:
    """tokens_per_s: real ones, in batches; faster: times as many as the other model, median of rounds in turns; p50_ms,
    p99_ms: of one text at a time. joules: of the processors for 1,000 tokens, None where they do not tell.
    """

    tokens_per_s: float
    faster: float
    p50_ms: float
    p99_ms: float
    joules: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)


def rate(engine: Engine, other: Engine, ids: Ids, outputs: Sequence[str]) -> Rate:
    """On the first of some sequences. Both engines give `outputs`."""
    ends = np.cumsum(ids.lengths)
    some = ids.take(np.arange(max(1, int(np.searchsorted(ends, TOKENS)))))
    tokens = int(some.lengths.sum())

    def seconds(one: Engine) -> float:
        began = time.perf_counter()
        run(one, some, outputs)
        return time.perf_counter() - began

    seconds(engine), seconds(other)  # warm
    times = [(seconds(engine), seconds(other)) for _ in range(ROUNDS)]
    before = _joules()
    seconds(engine)
    after = _joules()
    used = None if before is None or after is None or after <= before else 1000 * (after - before) / tokens
    alone = list[float]()
    for number in range(min(ALONE, len(some))):
        text = some.take(np.array([number]))
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


def _joules() -> float | None:
    """What the processors have used so far, by Linux's powercap; None where that is not told, or not to everybody."""
    try:
        return sum(int(path.read_text()) for path in POWERCAP.glob("intel-rapl:?/energy_uj")) / 1e6 or None
    except (OSError, ValueError):
        return None
