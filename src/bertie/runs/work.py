"""What a trial needs of a run: its phases, how often it is evaluated and saved, and what its speed depends on."""

import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from bertie.console import console
from bertie.costs import meter
from bertie.costs.job import Job, JobPhase
from bertie.errors import Stopped, UsageError, WrongValue
from bertie.infer.findings import Findings
from bertie.models.count import parameters
from bertie.models.model import TorchModel
from bertie.models.seq2seq import Seq2Seq
from bertie.runs.config import PretrainConfig
from bertie.runs.finetune_assess import stream_answers
from bertie.runs.finetune_prepare import Labeled, Prepared
from bertie.runs.finetune_train import FIRST_LOOK, measure_run, reload_weights, save_settled
from bertie.runs.forecast import forecast_of
from bertie.runs.guesses import write_guesses
from bertie.runs.pretraining import PreparedRun
from bertie.runs.run_data import Phase
from bertie.runs.trial import Clock, PhaseWork, Work
from bertie.runs.verify import run_config
from bertie.settings import flatten
from bertie.tasks.source import TaskSource
from bertie.train import precision
from bertie.train.base import BatchSource
from bertie.train.config import TrainConfig
from bertie.train.rendezvous import world_size
from bertie.train.step_metrics import measure_batches

# Settings that change how long a run is, or what it learns, but not the speed of a step.
FREE_TRAIN = (
    "steps",
    "seed",
    "log_every",
    "eval_every",
    "save_every",
    "keep",
    "keep_checkpoints",
    "track",
    "metric",
    "patience",
    "min_improvement",
)
FREE_OPTIM = ("lr", "betas", "eps", "warmup", "decay", "cooldown", "weight_decay", "max_grad_norm", "layer_decay")
_FREE = {
    *(f"train.{name}" for name in FREE_TRAIN),
    *(f"optim.{name}" for name in FREE_OPTIM),
    *("epochs", "select", "select_on", "baselines", "label_check", "pseudo_perplexity", "model"),
}
LOADED = 300e6  # bytes: what a process loads when it trains: the optimizer, kernels, charts. Measured on a CPU
_STEP_SHARE = 0.9  # share of --minutes that goes into steps; validation, checkpoints and the start take the rest
TRIED = 0.05  # share of --minutes that a trial takes
STEPS_SEEN = 500  # for the largest batch of a fine-tuning run


def pretraining_work(ready: PreparedRun, model: TorchModel) -> Work:
    """Returns the work of a pre-training run."""
    config, data = ready.config, ready.data
    phases, ends = list[PhaseWork](), data.source.ends
    for number, phase in enumerate(data.phases):
        facts, first = ready.facts(number), ends[number] - phase.steps
        micro = min(phase.micro_batch_size or phase.batch_size, phase.batch_size)
        shape = JobPhase(phase.steps, phase.batch_size, facts.tokens / phase.batch_size, facts.predicted)
        phases.append(
            PhaseWork(
                phase.steps,
                phase.batch_size,
                micro,
                None,
                facts.flops,
                shape,
                shape.length * micro,
                partial(_source, ready, phase),
                partial(_validate, ready, model, ends[number]),
                _times(config.train.eval_every, first, ends[number]) * data.validates,
            )
        )
    saves = sum(
        _times(config.train.save_every, end - phase.steps, end) for phase, end in zip(data.phases, ends, strict=True)
    )
    settings = {"model": repr(model.config), **_told(ready.identity)}
    job, own = _job(model, [phase.shape for phase in phases], config.train)

    def write(folder: Path) -> None:
        ready.save(model, folder.parent)

    return Work(model, job, ready.objective, config.train, config.optim, phases, saves, settings, own, write)


def finetuning_work(run: Prepared) -> Work:
    """Returns the work of a fine-tuning run."""
    config, train, model = run.config, run.config.train, run.model
    sequences, lengths = run.train.sequences, run.train.sequences.lengths
    several = len(lengths) / sequences.examples  # windows of a text, choices of a question
    tokens = float(lengths.sum() / sequences.examples * train.batch_size)
    micro = min(train.largest_micro_batch or train.batch_size, train.batch_size)
    most, written = _largest(run, micro), run.task.written(run.source.targets) / float(lengths.sum())
    shape, read = JobPhase(train.steps, round(several * train.batch_size), most / micro / several, written), 1.0
    if isinstance(model, Seq2Seq):  # for a class, the decoder reads the text again
        shape = replace(shape, decoded=written or 1.0)
    elif written:  # a causal model reads the target after the text
        read = 1 + written
        shape = replace(shape, length=shape.length * read, predicted=written / read)
    job, own = _job(model, [shape], train)
    mean = replace(shape, length=read * float((lengths**2).sum() / lengths.sum()))

    def source(batch_size: int) -> TaskSource:
        resized = TaskSource(
            sequences,
            run.source.targets,
            batch_size=batch_size,
            micro_batch_size=train.largest_micro_batch,
            seed=train.seed,
        )
        return resized.with_computed(run.task.computed(model, sequences))

    looks = _times(train.eval_every, 0, train.steps)
    phase = PhaseWork(
        train.steps,
        train.batch_size,
        micro,
        tokens,
        job.flops_per_token(mean) * read * tokens,
        shape,
        most,
        source,
        partial(_evaluate, run.looked_at, partial(measure_run, run)),
        looks,
    )
    data = {"data": run.source.fingerprint, "dev": len(run.looked_at.sequences), "model": repr(model.config)}
    settings = {**_told(flatten(config.model_dump(mode="json"))), **data}
    saves = _times(train.save_every, 0, train.steps)
    return Work(
        model,
        job,
        run.task,
        train,
        config.optim,
        [phase],
        saves,
        settings,
        own,
        partial(save_settled, run),
        written=1 + looks * config.keeps_best,
        begin=partial(measure_run, run, FIRST_LOOK),
        read=partial(reload_weights, model),
        final=partial(_final, run),
        finals=1 + run.task.calibrates + run.task.tunes,
    )


def _job(model: TorchModel, phases: Iterable[JobPhase], train: TrainConfig) -> tuple[Job, int]:
    """Returns the job of a run, and the memory of the process besides it."""
    device = precision.choose_device(train.device)
    all_parameters = sum(parameter.numel() for parameter in model.parameters())
    half = precision.choose_dtype(train.precision, device) != torch.float32
    job = Job(model.config, tuple(phases), half, all_parameters - sum(parameters(model.config).values()))
    return job, 0 if device.type == "cuda" else round(meter.resident_bytes() - 4 * all_parameters + LOADED)


def _told(settings: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in settings.items() if key not in _FREE}


def _times(every: int, first: int, last: int) -> int:
    """Returns how often something happens in the steps (first, last]: at multiples of `every`, and at the last one."""
    return last // every - first // every + (last % every > 0)


def _source(ready: PreparedRun, phase: Phase, sequences: int) -> BatchSource:
    """Returns the batches of a phase with another number of sequences."""
    return ready.data.source_of(replace(phase, batch_size=sequences))


def _validate(ready: PreparedRun, model: TorchModel, step: int, seconds: float, clock: Clock) -> float:
    """Measures some validation batches of the phase that ends with `step` -> the seconds of all, and of the rest of a
    validation."""
    start, done, was_training = clock(), 0, model.training
    held = ready.data.validation(step)
    batches = [batch for part in held.values() for batch in part]
    model.eval()
    with tempfile.TemporaryDirectory(prefix="bertie-trial-") as folder:
        write_guesses(model, batches[0], ready.tokenizer, step=step, run=Path(folder))
    began = clock()
    for batch in batches:
        measure_batches(model, ready.objective, [batch])
        done += batch.tokens
        if clock() - began > seconds:
            break
    model.train(was_training)
    rounds = 2 if len(held) > 1 else 1  # of all, and of each corpus
    return began - start + rounds * (clock() - began) * sum(batch.tokens for batch in batches) / max(1, done)


def _largest(run: Prepared, micro: int) -> float:
    """Returns the tokens of the largest micro-batch of the first steps, whose examples are sorted by length."""
    train, most = run.config.train, 0
    for step in range(min(train.steps, STEPS_SEEN)):
        ids = run.source.order.sample_ids(step, train.batch_size)
        most = max(most, int(np.sort(run.train.sequences.tokens[ids])[-micro:].sum()))
    return float(most)


def _final(run: Prepared, seconds: float, clock: Clock) -> float:
    """Answers some dev examples in float32, as at the end of the run -> the seconds of all."""
    run.model.compute_dtype = None
    run.model.eval()

    def answer(most: int) -> None:
        findings = Findings(run.task, run.examples.metrics[0])
        for _ in stream_answers(run.predictor, run.dev, run.task.scores(), findings, most):
            pass

    return _evaluate(run.dev, answer, seconds, clock)


def _evaluate(rows: Labeled, evaluate: Callable[[int], object], seconds: float, clock: Clock) -> float:
    """Evaluates some of the examples -> the seconds of all."""
    tokens = np.cumsum(rows.sequences.tokens)
    evaluate(FIRST_LOOK)  # it makes kernels
    count, took = 4 * FIRST_LOOK, 0.0
    while True:
        count = min(count, len(rows))
        began = clock()
        with torch.no_grad():
            evaluate(count)
        took = clock() - began
        if count == len(rows) or took > seconds / 4:
            return float(took * tokens[-1] / tokens[count - 1])
        count = max(count + 1, int(count * seconds / 2 / max(took, 1e-3)))


def with_minutes(
    config: PretrainConfig, minutes: float, run: Path | None, ready: Callable[[PretrainConfig], PreparedRun]
) -> PretrainConfig:
    """Returns the config with the steps that fit into some minutes, or with those of an earlier start of the run.

    Raises UsageError for minutes that are not finite, and under torchrun for a new run: each process would measure
    another number of steps.
    """
    if not math.isfinite(minutes):
        raise WrongValue(f"--minutes is {minutes}; it must be a number of minutes, for example 8.")
    begun = run is not None and (run / "run.yaml").is_file()
    if world_size() > 1 and not begun:
        raise UsageError(
            f"--minutes measures one process, and this run has {world_size()}. Run the command in one process with "
            "--dry-run: it prints the steps for the minutes. Then pass train.steps=N to torchrun."
        )
    steps = run_config(run).train.steps if begun and run is not None else _steps_within(ready(config), minutes)
    console.say(f"{minutes:g} minutes: {steps:,} steps" + (", as the run began." if begun else " on this machine."))
    return config.model_copy(update={"train": config.train.model_copy(update={"steps": steps})})


def _steps_within(ready: PreparedRun, minutes: float) -> int:
    work = pretraining_work(ready, ready.model())
    forecast = forecast_of(work, min(30.0, max(1.0, TRIED * 60 * minutes)))
    if forecast is None:
        raise Stopped("The trial of the speed was interrupted. The same command starts it again.")
    return max(1, int(_steps_of_seconds(_STEP_SHARE * 60 * minutes, ready.config, forecast.step_s)))


def _steps_of_seconds(seconds: float, config: PretrainConfig, step_s: Sequence[float]) -> float:
    """Returns how many steps take some seconds. step_s: of a step of each phase.

    The seconds of n steps are a constant, for the phases with a number of steps, plus a slope times n.
    """
    steps = [phase.steps for phase in config.phases] or [None]
    rest_s = sum(one for number, one in zip(steps, step_s, strict=True) if number is None)
    fixed, slope = 0.0, rest_s
    for number, one in zip(steps, step_s, strict=True):
        if number is not None and number >= 1:
            fixed += number * (one - rest_s)
        elif number is not None:
            slope += number * (one - rest_s)
    if not slope:
        raise UsageError("--minutes needs a phase without `steps`, which then takes the steps that are left.")
    total, least = (seconds - fixed) / slope, sum(number for number in steps if number is not None and number >= 1)
    if least and total < least + 1:
        raise UsageError(
            "The phases with a number of steps take longer than --minutes. Pass more minutes, or write their steps as "
            "shares of all steps, below 1."
        )
    return total
