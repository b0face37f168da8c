"""How time and memory of a training step grow with the length: full attention, windows, blocks.

`python -m bertie.bench.lengths` prints one JSON line a cell: two layers of BERT-BASE's width, one sequence, forward and
backward, one thread. Each cell is a process of its own, so that its peak memory is its own; time is processor time,
which other jobs on the machine change least. Linux.
"""

import json
import multiprocessing
import re
import time
from pathlib import Path

import torch

from bertie.models.config import EncoderConfig
from bertie.models.encoder import Encoder

BASE = EncoderConfig(vocab_size=1000, num_hidden_layers=2, max_position_embeddings=4096)
PLAIN = BASE.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
KINDS = {
    "full": PLAIN,
    "window of 512, one global token": PLAIN.replace(attention_window=512),
    "blocks of 64": PLAIN.replace(attention_type="block_sparse"),
}
LENGTHS = (512, 1024, 2048, 4096)
STEPS = 3


def _resident_mib(what: str) -> float:
    """VmRSS, now, or VmHWM, at most so far."""
    found = re.search(rf"{what}:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def cell(kind: str, length: int) -> None:
    """Measure one kind at one length and print it; memory is what a step takes beyond the weights."""
    torch.set_num_threads(1)
    config = KINDS[kind]
    model, ids = Encoder(config), torch.randint(1000, (1, length))
    is_global = torch.zeros_like(ids).index_fill(1, torch.tensor([0]), 1) if config.attention_window else None
    model(ids[:, :16])
    before, seconds = _resident_mib("VmRSS"), []
    for _ in range(STEPS + 1):
        start = time.process_time()
        model(ids, global_attention_mask=is_global).last_hidden_state.sum().backward()
        seconds.append(time.process_time() - start)
        model.zero_grad()
    row = {"attention": kind, "length": length, "cpu_s": round(sorted(seconds[1:])[STEPS // 2], 2)}
    print(json.dumps({**row, "peak_mib": round(_resident_mib("VmHWM") - before)}), flush=True)


def main() -> None:
    """Measure every cell."""
    processes = multiprocessing.get_context("spawn")
    for length in LENGTHS:
        for kind in KINDS:
            process = processes.Process(target=cell, args=(kind, length))
            process.start()
            process.join()


if __name__ == "__main__":
    main()
