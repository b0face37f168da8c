"""The job of a pre-training config, for the planner: no corpus is needed, and every sequence counts as full."""

from typing import Any

import numpy as np
import torch

from bertie import families, objectives
from bertie.data.rates import rate_of
from bertie.models.config import EncoderConfig
from bertie.models.count import parameters, predictions
from bertie.objectives import Objective, ReplacedTokens
from bertie.objectives.base import parts_of
from bertie.plan import cost
from bertie.plan.catalog import Device
from bertie.plan.forecast import USABLE, Assumptions
from bertie.plan.job import Job, JobPhase
from bertie.runs.config import PretrainConfig
from bertie.runs.models import model_folder
from bertie.runs.phases import phases

TOKENS_PER_PARAMETER = 20


def job_of(config: PretrainConfig, *, half: bool = True) -> Job:
    """Returns the job of a config: its model, phases, predictions and extra costs.

    half: computed in 16 bit. Raises UsageError for an unknown model, objective or override.
    """
    shape = families.changed(families.config(config.model), config.model_overrides)
    objective = _objective(config.objectives)
    with torch.device("meta"):
        heads = [parameter for head in objective.heads(shape).values() for parameter in head.parameters()]
    generators = [one.smaller(shape) for one in parts_of(objective) if isinstance(one, ReplacedTokens)]
    head = sum(parameter.numel() for parameter in heads)
    head += sum(sum(parameters(smaller).values()) for smaller in generators)
    found = []
    for phase in phases(config):
        objective = _objective(phase.objectives)
        shares = {one.name: _predicted(one, shape) for one in parts_of(objective) if one.on_tokens}
        asked = shares | {"generator": shares.get("rtd", 0.0)}
        extra = objective.extra_cost(shape, length=phase.max_length, shares=asked)
        found.append(
            JobPhase(
                phase.steps,
                phase.batch_size,
                phase.max_length,
                sum(share for name, share in shares.items() if name != "rtd"),
                sum(extra.values()),
            )
        )
    return Job(shape, tuple(found), half, head)


def _objective(options: dict[str, dict[str, object] | None]) -> Objective:
    return objectives.build(options).load_dependencies(lambda folder: families.load(model_folder(folder))[0])


def _predicted(objective: Objective, config: EncoderConfig) -> float:
    """Returns the share of tokens that an objective predicts, at the start of a run."""
    rate = getattr(objective, "rate", None)
    if rate is None:
        return predictions(config)
    return float(rate_of(rate, f"{objective.name}.rate").at(np.zeros(1, np.int64))[0])


def presets_within(config: PretrainConfig, device: Device, given: Assumptions, seconds: float) -> list[dict[str, Any]]:
    """Returns what fits into some seconds for each preset of the config's family, smallest first.

    The schedule is that of the config with other steps. chosen: the largest preset that fits in the memory and reads
    TOKENS_PER_PARAMETER; none where no preset does.
    """
    rows: list[dict[str, Any]] = []
    for name in families.family(config.model).presets:
        job = job_of(config.model_copy(update={"model": name, "model_overrides": {}}))
        share = seconds / cost.seconds(job.flops, device.tflops, count=given.count, used=given.utilization)
        tokens = int(job.tokens * share)
        rows.append(
            {
                "preset": name,
                "parameters": job.parameters,
                "steps": int(config.train.steps * share),
                "tokens": tokens,
                "tokens_per_parameter": tokens / job.parameters,
                "micro_batch": job.largest_batch(USABLE * device.memory_gb * 1e9),
                "chosen": False,
            }
        )
    rows.sort(key=lambda row: row["parameters"])
    for row in reversed(rows):
        if row["micro_batch"] and row["tokens_per_parameter"] >= TOKENS_PER_PARAMETER:
            row["chosen"] = True
            break
    return rows
