"""What a training step on a CPU consists of: a table of shares that adds up to 100%.

    python -m benchmarks.cpu_step mini 32 128          model, sequences of a step, tokens of the longest one

The steps are those of masked LM in `fit`: the batch, forward pass, backward pass, clipping, and the update. A profiler
says which operations run, by their own time. What no operation accounts for is Python's.
"""

import json
import sys
import time
from collections import defaultdict
from typing import Any

import torch
from torch.autograd.profiler import record_function
from torch.profiler import ProfilerActivity, profile

from benchmarks import harness, pretrain
from bertie.models import families
from bertie.objectives.mlm import MaskedLM
from bertie.process import keep_memory
from bertie.train.config import OptimConfig
from bertie.train.optim import OptimizerGroup
from bertie.train.step import backward

WARMUP, MEASURED = 5, 20
PARTS = ("batch", "passes", "clipping", "update")  # of a step
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "mkldnn", "convolution", "attention")
NAMES = {"passes forward": "forward", "passes backward": "backward"}


def kind(operation: str) -> str:
    """Returns whether an operation is a matrix product or a pass over memory."""
    name = operation.removeprefix("aten::").removeprefix("_").removesuffix("_")
    return "products" if any(name.startswith(one) for one in PRODUCTS) else "passes over memory"


def measure(name: str, batch_size: int, length: int) -> list[dict[str, Any]]:
    """Returns the one line of a model: milliseconds of a step without the profiler, and shares with it."""
    device, objective = torch.device("cpu"), MaskedLM()
    model = families.build(families.config(pretrain.SIZES.get(name, name), pooler=False), heads=objective.heads).train()
    size = model.config.vocab_size
    rows = pretrain.sequences(batch_size * (WARMUP + 2 * MEASURED), size, length)
    source = pretrain.Rows(rows, pretrain.vocabulary(size), batch_size)
    updates, parameters = OptimizerGroup(model, OptimConfig()), list(model.parameters())

    def step(number: int) -> None:
        with record_function("part batch"):
            batches = source.batches(number)
        with record_function("part passes"):
            model.zero_grad(set_to_none=True)
            backward(model, objective, batches, objective.counts(batches[0]), seed=(number,), device=device)
        with record_function("part clipping"):
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        with record_function("part update"):
            updates.step(1e-4)

    keep_memory()  # as `fit` does
    for number in range(WARMUP):
        step(number)
    began = time.perf_counter()
    for number in range(WARMUP, WARMUP + MEASURED):
        step(number)
    seconds = (time.perf_counter() - began) / MEASURED
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        began = time.perf_counter()
        for number in range(WARMUP + MEASURED, WARMUP + 2 * MEASURED):
            step(number)
        profiled = (time.perf_counter() - began) / MEASURED
    spent: defaultdict[str, float] = defaultdict(float)
    for event in seen.events() or []:
        part, back = "", False
        parent = event
        while parent is not None:
            back = back or parent.name.startswith("autograd::")
            part = parent.name.removeprefix("part ") if parent.name.startswith("part ") else part
            parent = parent.cpu_parent
        python = event.name.startswith(("part ", "autograd::"))
        where = f"{part} {'backward' if back else 'forward'}" if part == "passes" else part or "other"
        label = NAMES.get(where, where) + (": Python and launching" if python else f": {kind(event.name)}")
        spent[label] += event.self_cpu_time_total / 1e6 / MEASURED
    spent["other: Python and launching"] += max(0.0, profiled - sum(spent.values()))
    tokens = sum(batch.tokens for number in range(WARMUP, WARMUP + MEASURED) for batch in source.batches(number))
    total = sum(spent.values())
    line = {
        "bench": "cpu_step",
        "model": name,
        "batch_size": batch_size,
        "length": length,
        "tokens_per_s": round(tokens / MEASURED / seconds),
        "ms": round(1000 * seconds, 2),
        "ms_profiled": round(1000 * profiled, 2),
        "shares": {label: round(value / total, 4) for label, value in sorted(spent.items(), key=lambda item: -item[1])},
        "machine": harness.machine("cpu"),
    }
    return [line]


def main(name: str, batch_size: int, length: int) -> None:
    """Prints the table, and the line."""
    [line] = measure(name, batch_size, length)
    for label, share in line["shares"].items():
        print(f"{share:7.1%}  {label}")
    print(json.dumps(line))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
