"""The job of a config, for the planner: every sequence counts as full, and no file of text is needed."""

import os
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from bertie import families, objectives
from bertie.console import counted
from bertie.data.rates import rate_of
from bertie.data.tables import Example
from bertie.errors import UsageError
from bertie.models.config import EncoderConfig
from bertie.models.count import decoder_parameters, parameters, predictions
from bertie.nn import machine
from bertie.objectives import Objective, ReplacedTokens
from bertie.objectives.base import parts_of
from bertie.plan import cost
from bertie.plan.catalog import Device
from bertie.plan.forecast import USABLE, Assumptions
from bertie.plan.job import Job, JobPhase
from bertie.plan.law import law
from bertie.plan.meter import THREAD_WATTS
from bertie.runs.config import FinetuneConfig, PretrainConfig
from bertie.runs.examples import kind_of, read_examples
from bertie.runs.here import utilizations
from bertie.runs.models import check_length, model_folder
from bertie.runs.phases import phases
from bertie.runs.teachers import open_teacher
from bertie.tasks.datasets import DATASETS
from bertie.tasks.source import steps_of

TOKENS_PER_PARAMETER = 20


def job_of(config: PretrainConfig | FinetuneConfig, *, half: bool = True) -> Job:
    """Returns the job of a config: its model, phases, predictions and extra costs.

    half: computed in 16 bit. Raises UsageError for an unknown model, objective or override, a max_length beyond the
    positions, and for fine-tuning without examples to count.
    """
    if isinstance(config, FinetuneConfig):
        return _finetuning(config, half)
    shape = families.changed(families.config(model_folder(config.model)), config.model_overrides)
    planned = phases(config)
    check_length(max(phase.max_length for phase in planned), shape.max_length, config.model)
    objective = _objective(config.objectives)
    with torch.device("meta"):
        heads = [parameter for head in objective.heads(shape).values() for parameter in head.parameters()]
    generators = [one.smaller(shape) for one in parts_of(objective) if isinstance(one, ReplacedTokens)]
    head = sum(parameter.numel() for parameter in heads)
    head += sum(sum(parameters(smaller).values()) for smaller in generators)
    found = []
    for phase in planned:
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
                min(phase.micro_batch_size or phase.batch_size, phase.batch_size),
            )
        )
    return Job(shape, tuple(found), half, head)


def this_machine() -> Device:
    """Returns the processor of this machine. Its rate is that of one small product, measured once."""
    rates, threads = machine.cpu_rates(), torch.get_num_threads()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    name = f"this processor, {counted(threads, 'thread')}"
    return Device(name, max(rates.fp32, rates.bf16) * threads / 1000, THREAD_WATTS * threads, memory)


def _finetuning(config: FinetuneConfig, half: bool) -> Job:
    shape, train, length = families.config(model_folder(config.model)), config.train, config.max_length
    check_length(length, shape.max_length, config.model)
    kind, decoder = kind_of(config), sum(decoder_parameters(shape).values())
    examples = _examples(config)
    sequences = round(kind.sequences(examples if isinstance(examples, list) else None))
    count = len(examples) if isinstance(examples, list) else examples
    steps = steps_of(count, batch_size=train.batch_size, epochs=config.epochs)
    micro = min(train.micro_batch_size or train.batch_size, train.batch_size)
    phase = JobPhase(steps, sequences * train.batch_size, length, 0.0, micro=sequences * micro)
    if generated := kind.generated(config.task_options):
        phase = replace(phase, predicted=generated / length)
    elif decoder and families.family(config.model).needs_decoder((kind.head,)):  # the decoder reads the text again
        phase = replace(phase, decoded=1.0)
    else:
        decoder = 0
    return Job(shape, (phase,), half, decoder)


def _examples(config: FinetuneConfig) -> list[Example] | int:
    """Returns the training examples of the files, or the number of those of a published data set."""
    if config.train_file or config.data_dir:
        return read_examples(config).train
    split = DATASETS[config.data].splits.get("train") if config.data else None
    if split is None or split.rows is None:
        raise UsageError(
            "A fine-tuning plan needs examples to count. Pass train_file=FILE, or data=NAME (bertie data)."
        )
    return config.per_label * len(DATASETS[config.data].labels) if config.per_label else split.rows


def _objective(options: dict[str, dict[str, object] | None]) -> Objective:
    return objectives.build(options).load_dependencies(partial(open_teacher, device=torch.device("cpu")))


def _predicted(objective: Objective, config: EncoderConfig) -> float:
    """Returns the share of tokens that an objective predicts, at the start of a run."""
    rate = getattr(objective, "rate", None)
    if rate is None:
        return predictions(config)
    return float(rate_of(rate, f"{objective.name}.rate").at(np.zeros(1, np.int64))[0])


def presets_within(
    config: PretrainConfig, device: Device, given: Assumptions, seconds: float, *, tried: bool = False
) -> list[dict[str, Any]]:
    """Returns what fits into some seconds for each preset of the config's family, smallest first.

    The schedule is that of the config with other steps. tried: whether the utilization is measured on this machine
    (runs/here.py). loss: expected masked-LM loss on held-out text, from Bertie's
    own runs (plan/law.py), None far beyond them; beyond: how far. chosen: the largest preset that fits in the memory
    and reads TOKENS_PER_PARAMETER; none where no preset does.
    """
    rows: list[dict[str, Any]] = []
    jobs = _sizes(config)
    used = utilizations(jobs, device) if tried else dict.fromkeys(jobs, given.utilization)
    for name, job in jobs.items():
        share = seconds / cost.seconds(job.flops, device.tflops, count=given.count, used=used[name])
        tokens = int(job.tokens * share)
        layers = parameters(job.config)["layers"]
        rows.append(
            {
                "preset": name,
                "parameters": job.parameters,
                "steps": int(config.train.steps * share),
                "tokens": tokens,
                "tokens_per_parameter": tokens / job.parameters,
                "micro_batch": job.largest_batch(USABLE * device.memory_gb * 1e9),
                "loss": law().expected(layers, tokens),
                "beyond": round(law().beyond(layers, tokens), 1),
                "utilization": round(used[name], 3),
                "chosen": False,
            }
        )
    for row in reversed(rows):
        if row["micro_batch"] and row["tokens_per_parameter"] >= TOKENS_PER_PARAMETER:
            row["chosen"] = True
            break
    return rows


def _sizes(config: PretrainConfig) -> dict[str, Job]:
    """Returns the job of each preset of a family with the config's vocabulary, smallest first; of presets of one shape,
    that with the shortest name."""
    vocabulary, presets = families.config(config.model).vocab_size, families.family(config.model).presets
    names = sorted((name for name in presets if families.config(name).vocab_size == vocabulary), key=len)
    lengths = {key: value for key, value in config.model_overrides.items() if key == "max_position_embeddings"}
    jobs = {name: job_of(config.model_copy(update={"model": name, "model_overrides": lengths})) for name in names}
    found = dict[str, Job]()
    for name, job in jobs.items():
        same = [one for one in found.values() if one.parameters == job.parameters and one.flops == job.flops]
        found |= {} if same else {name: job}
    return dict(sorted(found.items(), key=lambda pair: pair[1].parameters))
