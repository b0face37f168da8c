"""Measures the steps of masked-LM training on an NVIDIA GPU, and lists the kernels that they consist of.

    python -m benchmarks.kernels base 256 128          model, sequences of a step, tokens of the longest one

The time of a step is that of its computation and update, without `fit`. The table has the kernels of a step by the time
they take, which adds up to what the GPU was busy with.
"""

import json
import sys
import time
from collections import Counter
from typing import Any

import torch

from benchmarks import harness, pretrain
from bertie.models import families
from bertie.objectives.mlm import MaskedLM
from bertie.train.config import OptimConfig
from bertie.train.graphs import RecordedPasses
from bertie.train.optim import OptimizerGroup
from bertie.train.step import backward

WARMUP, MEASURED, TRIES, PROFILED, LISTED = 100, 40, 8, 5, 40


def measure(name: str, batch_size: int, length: int) -> list[dict[str, Any]]:
    """Returns the one line of a model."""
    device, objective = torch.device("cuda"), MaskedLM()
    config = families.config(pretrain.SIZES.get(name, name), pooler=False)
    model = families.build(config, heads=objective.heads).to(device).train()
    model.compute_dtype = torch.bfloat16
    size = config.vocab_size
    rows = pretrain.sequences(batch_size * (WARMUP + MEASURED), size, length)
    source = pretrain.Rows(rows, pretrain.vocabulary(size), batch_size)
    batches = [source.batches(step) for step in range(WARMUP + MEASURED)]
    recorded, updates = RecordedPasses(model, objective, device), OptimizerGroup(model, OptimConfig())
    parameters = list(model.parameters())

    def step(number: int) -> None:
        model.zero_grad(set_to_none=True)
        batch = batches[number]
        backward(model, objective, batch, objective.counts(batch[0]), seed=(number,), device=device, recorded=recorded)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        updates.step(1e-4)

    for number in range(WARMUP):
        step(number)
    for _ in range(TRIES):  # until nothing is recorded meanwhile
        shapes = len(recorded.recordings)
        torch.cuda.synchronize()
        began = time.perf_counter()
        for number in range(WARMUP, WARMUP + MEASURED):
            step(number)
        queued = time.perf_counter() - began
        torch.cuda.synchronize()
        seconds = (time.perf_counter() - began) / MEASURED
        if shapes == len(recorded.recordings):
            break
    peak = torch.cuda.max_memory_allocated()
    tokens = sum(batch.tokens for one in batches[WARMUP:] for batch in one) / MEASURED
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for number in range(WARMUP, WARMUP + PROFILED):
            step(number)
        torch.cuda.synchronize()
    spent: Counter[str] = Counter()
    for event in profile.events() or []:
        spent[event.name] += event.device_time_total / 1000 / PROFILED
    line = {
        "bench": "kernels",
        "model": name,
        "batch_size": batch_size,
        "length": length,
        "runner": "bertie bf16",
        "tokens_per_s": round(tokens / seconds),
        "ms": round(1000 * seconds, 2),
        "ms_of_processor": round(1000 * queued / MEASURED, 2),
        "ms_of_kernels": round(sum(spent.values()), 2),
        "shapes": len(recorded.recordings),
        "peak_bytes": peak,
        "kernels": {kernel: round(ms, 3) for kernel, ms in spent.most_common(LISTED)},
        "machine": harness.machine("cuda"),
    }
    return [line]


def main(name: str, batch_size: int, length: int) -> None:
    """Prints the line, and the table of kernels."""
    [line] = measure(name, batch_size, length)
    kernels = line.pop("kernels")
    print(json.dumps(line), flush=True)
    for kernel, ms in kernels.items():
        print(f"{ms:8.3f} ms  {kernel[:150]}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
