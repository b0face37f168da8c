"""A run before it starts: its job, where every sequence counts as full and no file of text is needed; what it needs on
the disk, and warnings.
"""

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
import torch

from bertie import objectives
from bertie import settings as configs
from bertie.costs.catalog import Device
from bertie.costs.job import Job, JobPhase
from bertie.data.masking import rate_of
from bertie.errors import Stopped, UsageError
from bertie.files import Json
from bertie.io.tables import Example
from bertie.models import families, machine
from bertie.models.batch import Batch
from bertie.models.config import EncoderConfig
from bertie.models.count import decoder_parameters, parameters, predictions_per_token
from bertie.objectives import MaskedLM, Objective, ReplacedTokens
from bertie.objectives.base import parts_of
from bertie.report.values import quantity
from bertie.runs.config import FinetuneConfig, PretrainConfig
from bertie.runs.config import choose_config_class as kind_of_run
from bertie.runs.examples import choose_task_class, read_examples
from bertie.runs.folder import CONFIG
from bertie.runs.models import check_length, model_folder
from bertie.runs.run_data import phases
from bertie.runs.weights import open_teacher
from bertie.tasks.datasets import DATASETS
from bertie.tasks.source import steps_of
from bertie.text.sequences import Sequences
from bertie.train import precision
from bertie.train.config import OptimConfig
from bertie.train.optim import OptimizerGroup
from bertie.train.step import backward

HOPELESS_S = 3 * 86400.0
WASTED = 0.3  # share of a corpus that an epoch may leave out unsaid: held-out documents, ends of documents
COPIES = 3  # float32 numbers a parameter in a checkpoint: the weight and AdamW's two moments
PREDICTED_SHARE = 0.15  # share of positions BERT's pre-training predicts, and T5's decoder about writes


@dataclass(frozen=True)
class RunPlan:
    """The settings of a run, and the job that follows from them."""

    settings: PretrainConfig | FinetuneConfig
    job: Job

    @classmethod
    def of(cls, settings: PretrainConfig | FinetuneConfig) -> Self:
        """Returns the plan of a run. Raises UsageError as `job_of`."""
        return cls(settings, job_of(settings))

    @classmethod
    def read_settings(cls, config: Path | None, overrides: Sequence[str]) -> PretrainConfig | FinetuneConfig:
        """Returns the settings of a run, whichever kind they are of."""
        names = {override.partition("=")[0].partition(".")[0] for override in overrides}
        tree = configs.read_yaml(config) if config is not None else {}
        kind: type[PretrainConfig | FinetuneConfig] = kind_of_run(dict.fromkeys(names) | tree)
        return configs.load_config(kind, config, overrides)

    def utilization_here(self) -> float:
        """Returns the share of this machine's rate of matrix products that pre-training reaches, in seconds."""
        return compute_utilization(self.settings.model, self.job)


def job_of(config: PretrainConfig | FinetuneConfig, *, half: bool = True) -> Job:
    """Returns the job of a config: its model, phases, predictions and extra costs.

    half: computed in 16 bit. Raises UsageError for an unknown model, objective or override, a max_length beyond the
    positions, and for fine-tuning without examples to count.
    """
    if isinstance(config, FinetuneConfig):
        return _finetuning(config, half)
    shape = families.changed_config(families.config(model_folder(config.model)), config.model_overrides)
    planned = phases(config)
    check_length(max(phase.max_length for phase in planned), shape.max_length, config.model)
    objective = _objective(config.objectives)
    with torch.device("meta"):
        heads = [parameter for head in objective.heads(shape).values() for parameter in head.parameters()]
    generators = [one.smaller(shape) for one in parts_of(objective) if isinstance(one, ReplacedTokens)]
    head = sum(parameter.numel() for parameter in heads)
    head += sum(sum(parameters(smaller).values()) for smaller in generators)
    costs = []
    for phase in planned:
        objective = _objective(phase.objectives)
        shares = {one.name: _predicted(one, shape) for one in parts_of(objective) if one.on_tokens}
        all_shares = shares | {"generator": shares.get("rtd", 0.0)}
        extra = objective.extra_cost(shape, length=phase.max_length, shares=all_shares)
        costs.append(
            JobPhase(
                phase.steps,
                phase.batch_size,
                phase.max_length,
                sum(share for name, share in shares.items() if name != "rtd"),
                sum(extra.values()),
                min(phase.micro_batch_size or phase.batch_size, phase.batch_size),
            )
        )
    return Job(shape, tuple(costs), half, head)


def _finetuning(config: FinetuneConfig, half: bool) -> Job:
    shape, train, length = families.config(model_folder(config.model)), config.train, config.max_length
    check_length(length, shape.max_length, config.model)
    kind, decoder = choose_task_class(config), sum(decoder_parameters(shape).values())
    examples = _examples(config)
    sequences = round(kind.sequences(examples if isinstance(examples, list) else None))
    count = len(examples) if isinstance(examples, list) else examples
    steps = steps_of(count, batch_size=train.batch_size, epochs=config.epochs)
    micro = min(train.largest_micro_batch or train.batch_size, train.batch_size)
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
    if split is None or split.examples is None:
        raise UsageError(
            "A fine-tuning plan needs examples to count. Pass train_file=FILE, or data=NAME (bertie data)."
        )
    return config.per_label * len(DATASETS[config.data].labels) if config.per_label else split.examples


def _objective(options: dict[str, dict[str, object] | None]) -> Objective:
    return objectives.build_objective(options).load_dependencies(partial(open_teacher, device=torch.device("cpu")))


def _predicted(objective: Objective, config: EncoderConfig) -> float:
    """Returns the share of tokens that an objective predicts, at the start of a run."""
    rate = getattr(objective, "rate", None)
    if rate is None:
        return predictions_per_token(config)
    return float(rate_of(rate, f"{objective.name}.rate").at(np.zeros(1, np.int64))[0])


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


def extra_flops(model: Path, config: EncoderConfig, length: int) -> Mapping[str, float]:
    """Returns the operations per token that the published pre-training of a family adds to those of the model."""
    objective = objectives.build_objective(families.family(model).recipe["objectives"])
    return objective.extra_cost(config, length=length, shares={"generator": PREDICTED_SHARE})


def disk_bytes(planned: Json, config: PretrainConfig) -> dict[str, int]:
    """Returns the maximum disk space of a run: all checkpoints that it keeps, the next one, and the model."""
    one = COPIES * 4 * planned["parameters"]
    saves = -(-planned["steps"] // config.train.save_every)
    return {"checkpoint": one, "most": one * min(config.train.keep + 1, saves) + 4 * planned["parameters"]}


def check_disk(planned: Json, run: Path) -> None:
    """Raises UsageError when a run does not fit on the disk, and Stopped when it has begun before."""
    here = next(path for path in [run.absolute(), *run.absolute().parents] if path.exists())
    there = sum(file.stat().st_size for file in run.glob("checkpoint-*/*"))
    needed, free = planned["disk_bytes"]["most"] - there, shutil.disk_usage(here).free
    if needed > free:
        need = f"{run} needs up to {quantity(needed, 'bytes')} of disk space"
        message = f"{need}, but {quantity(free, 'bytes')} are free. Free some space"
        if (run / CONFIG).exists():
            raise Stopped(f"{message}, and run the same command again.")
        raise UsageError(f"{message}, choose a folder on another disk, or keep fewer checkpoints: train.keep=1.")


def warn_of_plan(planned: Json, config: PretrainConfig, corpus_tokens: int) -> list[str]:
    """Returns warnings before a long run: an epoch that omits much of the corpus, a run of days."""
    lines, read = [], planned["tokens_per_epoch"]
    if read < (1 - WASTED) * corpus_tokens:
        lines.append(f"An epoch reads {quantity(read)} of the corpus's {quantity(corpus_tokens)} tokens.")
        if pairs := [name for name in ("nsp", "sop") if config.objectives.get(name) is not None]:
            lines[-1] += (
                " Sentence pairs need documents of several sentences, and the ends of documents are omitted. More text "
                f"is read without pairs: {' '.join(f'objectives.{name}=null' for name in pairs)}."
            )
    if planned["device"] == "cpu":
        rates = machine.cpu_rates()
        rate = {"float32": rates.fp32, "bfloat16": rates.bf16}[planned["precision"]]
        if (least := planned["flops"] / (1e9 * rate * torch.get_num_threads())) > HOPELESS_S:
            lines.append(
                f"This run takes at least {quantity(least, 's')} on this processor, estimated from the speed of "
                "its matrix products. Lower train.steps, choose a smaller model, pass --minutes, or use a "
                "GPU."
            )
    return lines
