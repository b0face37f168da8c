"""The speed of pre-training on this machine without a corpus: steps of masked LM on random tokens."""

import time

import numpy as np
import torch

from bertie import families
from bertie.costs.catalog import Device
from bertie.costs.job import Job
from bertie.data.batch import Batch
from bertie.data.sequences import Sequences
from bertie.models.config import EncoderConfig
from bertie.objectives import MaskedLM
from bertie.train import precision
from bertie.train.config import OptimConfig
from bertie.train.optim import OptimizerGroup
from bertie.train.step import backward

_PASS_TOKENS = 2048  # of a pass: seconds even for a base model on two cores
PREDICTED = 0.15


def compute_utilization(name: str, job: Job) -> float:
    """Returns the share of the machine's rate of matrix products that training of a preset reaches."""
    return min(1.0, job.flops / (_seconds(name, job) * Device.here().tflops * 1e12))


def _seconds(name: str, job: Job) -> float:
    """Returns the seconds of a run of a preset: its passes, and its updates."""
    model = families.build(job.config, heads=MaskedLM().heads, seed=0, variant=families.family(name).model_type).train()
    batch, device = _batch(job.config, round(job.phases[0].length)), precision.choose_device("cpu")
    counts = MaskedLM().counts(batch)
    updates = OptimizerGroup(model, OptimConfig())
    with torch.random.fork_rng([]), precision.computing_in(model, precision.choose_dtype("auto", device)):
        passes, steps = list[float](), list[float]()
        for _ in range(2):
            began = time.perf_counter()
            backward(model, MaskedLM(), [batch], counts, seed=(0,), device=device).tensor().tolist()
            passes.append(time.perf_counter() - began)
            began = time.perf_counter()
            updates.step(0.0)
            steps.append(time.perf_counter() - began)
    return min(passes) * job.tokens / batch.tokens + min(steps) * sum(phase.steps for phase in job.phases)


def _batch(config: EncoderConfig, length: int) -> Batch:
    """Returns full sequences of random tokens, of which some are predicted."""
    rng, rows = np.random.default_rng(0), max(1, _PASS_TOKENS // length)
    ids = rng.integers(0, config.vocab_size, rows * length)
    places = np.sort(rng.choice(len(ids), round(PREDICTED * len(ids)), replace=False))
    labels = {"mlm_positions": places, "mlm_targets": ids[places]}
    return Batch.of(Sequences(ids, np.zeros_like(ids), np.full(rows, length), labels=labels))
