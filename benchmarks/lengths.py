"""Time and memory of a training step by length: full, windowed and block-sparse attention.

Two layers of BERT-BASE's width, one sequence, forward and backward, one thread. Each cell is a
process of its own, so that its peak memory is its own; time is processor time, which other jobs on the machine change
least. Linux.
"""

import multiprocessing
import re
import time
from collections.abc import Collection, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import machine
from bertie.errors import BertieError
from bertie.models.config import EncoderConfig
from bertie.models.encoder import Encoder
from bertie.models.kinds import Window

BASE = EncoderConfig(vocab_size=1000, num_hidden_layers=2, max_position_embeddings=4096)
PLAIN = BASE.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
KINDS = {
    "full": PLAIN,
    "window of 512, one global token": PLAIN.replace(attention_window=512),
    "blocks of 64": PLAIN.replace(attention="block_sparse"),
}
LENGTHS = (512, 1024, 2048, 4096)
LONGEST = PLAIN.max_length
STEPS = 3


def measure(
    lengths: Collection[int] = LENGTHS, done: Collection[tuple[str, int]] = (), *, steps: int = STEPS
) -> Iterator[dict[str, Any]]:
    """Yields one row per kind of attention and length, except for the pairs in `done`; each in a separate process.

    cpu_s: median CPU seconds of `steps` steps after a first one; peak_mib: the memory of a step in addition to the
    weights. Raises BertieError when a process is killed, for example by a lack of memory.
    """
    processes = multiprocessing.get_context("spawn")
    for length in lengths:
        for kind in KINDS:
            if (kind, length) in done:
                continue
            answer, ours = processes.Pipe(duplex=False)
            process = processes.Process(target=_cell, args=(kind, length, steps, ours))
            process.start()
            ours.close()  # so that its end is seen when the process dies
            try:
                row = answer.recv()
            except EOFError:
                raise BertieError(
                    f"The measurement of {kind} at length {length:,} was killed, probably by a lack of "
                    "memory. Measured rows are kept: the same command continues."
                ) from None
            finally:
                process.join()
            yield row


def _cell(kind: str, length: int, steps: int, answer: Connection) -> None:
    torch.set_num_threads(1)
    config = KINDS[kind]
    model, ids = Encoder(config), torch.randint(1000, (1, length))
    is_global = (
        torch.zeros_like(ids).index_fill(1, torch.tensor([0]), 1) if isinstance(config.attention, Window) else None
    )
    model(ids[:, :16])
    before, seconds = _resident_mib("VmRSS"), []
    for _ in range(steps + 1):
        start = time.process_time()
        model(ids, global_attention_mask=is_global).last_hidden_state.sum().backward()
        seconds.append(time.process_time() - start)
        model.zero_grad()
    answer.send(
        {
            "attention": kind,
            "length": length,
            "cpu_s": round(sorted(seconds[1:])[steps // 2], 3),
            "peak_mib": round(_resident_mib("VmHWM") - before),
            "machine": machine(),
        }
    )


def _resident_mib(what: str) -> float:
    """VmRSS, now, or VmHWM, at most so far."""
    found = re.search(rf"{what}:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024
