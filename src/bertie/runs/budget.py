"""The cost of a pre-training run on this machine: time, measured on a few real steps, disk space, and warnings.

seconds of a run = its floating-point operations / those per second of the trial + steps * seconds per update
"""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from bertie import console
from bertie.errors import UsageError
from bertie.models.model import Model
from bertie.nn import machine
from bertie.objectives import Objective
from bertie.report.values import count, duration, size
from bertie.runs.config import PretrainConfig
from bertie.runs.run_data import RunData
from bertie.train import precision
from bertie.train.optim import OptimizerGroup
from bertie.train.rendezvous import world_size
from bertie.train.step import backward

PROBES = 3  # timed passes, after one that is not
PROBED_TOKENS = 2048  # of a pass: seconds even for a base model on two cores
STEADY = 0.9  # share of a budget that goes into steps; validation, checkpoints and the start take the rest
HOPELESS_S = 3 * 86400.0
WASTED = 0.3  # share of a corpus that an epoch may leave out unsaid: held-out documents, ends of documents
COPIES = 3  # float32 numbers a parameter in a checkpoint: the weight and AdamW's two moments


class PreparedRun(Protocol):
    """Protocol of a pre-training run that has not started."""

    config: PretrainConfig
    objective: Objective
    data: RunData

    def model(self) -> Model:
        """Returns the model at the start of training."""
        ...

    def plan(self, model: Model) -> dict[str, Any]:
        """Returns sizes and costs."""
        ...


@dataclass(frozen=True)
class Pace:
    """The speed of a run's steps. flops_per_s: of forward and backward passes; update_s: of an optimizer step."""

    flops_per_s: float
    tokens_per_s: float
    update_s: float

    def seconds(self, planned: Mapping[str, Any]) -> float:
        """Returns the time of all steps of a plan."""
        return float(planned["flops"] / self.flops_per_s + planned["steps"] * self.update_s)


def pace(ready: PreparedRun, planned: Mapping[str, Any]) -> Pace:
    """Measures some forward and backward passes and an update on the first batches of a run, without changing the
    run."""
    device = precision.choose_device(ready.config.train.device)
    dtype = precision.choose_dtype(ready.config.train.precision, device)
    batches = ready.data.sample(PROBED_TOKENS)
    tokens = sum(batch.tokens for batch in batches)
    counts: Counter[str] = Counter()
    for batch in batches:
        counts.update(ready.objective.counts(batch))
    model = ready.model().to(device).train()
    updates = OptimizerGroup(model, ready.config.optim)
    with torch.random.fork_rng([device] if device.type == "cuda" else []), precision.computing_in(model, dtype):
        taken = []
        for _ in range(1 + PROBES):
            began = time.perf_counter()
            backward(model, ready.objective, batches, counts, seed=(0,), device=device).tensor().tolist()
            taken.append(time.perf_counter() - began)
        updates.step(0.0)
        began = time.perf_counter()
        updates.step(0.0)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        update_s = time.perf_counter() - began
    pass_s = min(taken[1:])
    first = planned["phases"][0] if "phases" in planned else planned
    per_token = first["flops"] / (first["tokens_per_step"] * first["steps"])
    return Pace(per_token * tokens / pass_s, tokens / pass_s, update_s)


def steps_within(ready: PreparedRun, minutes: float) -> int:
    """Returns the number of steps that fit into some minutes."""
    planned = ready.plan(ready.model())
    step_s = pace(ready, planned).seconds(planned) / planned["steps"]
    return max(1, int(STEADY * 60 * minutes / step_s))


def with_minutes(
    config: PretrainConfig, minutes: float, run: Path | None, ready: Callable[[PretrainConfig], PreparedRun]
) -> PretrainConfig:
    """Returns the config with the steps that fit into some minutes, or with those of an earlier start of the run.

    Raises UsageError under torchrun for a new run: each process would measure another number of steps.
    """
    from bertie.runs.verify import run_config

    begun = run is not None and (run / "run.yaml").is_file()
    if world_size() > 1 and not begun:
        raise UsageError(
            f"--minutes measures one process, and this run has {world_size()}. Run the command in one process with "
            "--dry-run: it prints the steps for the minutes. Then pass train.steps=N to torchrun."
        )
    steps = run_config(run).train.steps if begun and run is not None else steps_within(ready(config), minutes)
    console.say(f"{minutes:g} minutes: {steps:,} steps" + (", as the run began." if begun else " on this machine."))
    return config.model_copy(update={"train": config.train.model_copy(update={"steps": steps})})


def disk(planned: Mapping[str, Any], config: PretrainConfig) -> dict[str, int]:
    """Returns the maximum disk space of a run: all checkpoints that it keeps, the next one, and the model."""
    one = COPIES * 4 * planned["parameters"]
    saves = -(-planned["steps"] // config.train.save_every)
    return {"checkpoint": one, "most": one * min(config.train.keep + 1, saves) + 4 * planned["parameters"]}


def check_disk(planned: Mapping[str, Any], run: Path) -> None:
    """Raises UsageError before the first step when a run does not fit on the disk."""
    here = next(path for path in [run.absolute(), *run.absolute().parents] if path.exists())
    there = sum(file.stat().st_size for file in run.glob("checkpoint-*/*"))
    needed, free = planned["disk_bytes"]["most"] - there, shutil.disk_usage(here).free
    if needed > free:
        raise UsageError(
            f"{run} needs up to {size(needed)} of disk space, but {size(free)} are free. Free some space, "
            "choose a folder on another disk, or keep fewer checkpoints: train.keep=1."
        )


def warnings(planned: Mapping[str, Any], config: PretrainConfig, corpus_tokens: int) -> list[str]:
    """Returns warnings before a long run: an epoch that omits much of the corpus, a run of days."""
    found, read = [], planned["tokens_per_epoch"]
    if read < (1 - WASTED) * corpus_tokens:
        why = "Sentence pairs need documents of several sentences, and the ends of documents are omitted."
        pairs = [name for name in ("nsp", "sop") if config.objectives.get(name) is not None]
        found.append(
            f"An epoch reads {count(read)} of the corpus's {count(corpus_tokens)} tokens. "
            + (
                f"{why}More text is read without pairs: {' '.join(f'objectives.{name}=null' for name in pairs)}."
                * bool(pairs)
            )
        )
    if planned["device"] == "cpu":
        rates = machine.cpu_rates()
        rate = {"float32": rates.fp32, "bfloat16": rates.bf16}[planned["precision"]]
        if (least := planned["flops"] / (1e9 * rate * torch.get_num_threads())) > HOPELESS_S:
            found.append(
                f"This run takes at least {duration(least)} on this processor, estimated from the speed of "
                "its matrix products. Lower train.steps, choose a smaller model, pass --minutes, or use a "
                "GPU."
            )
    return found
