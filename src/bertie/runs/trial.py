"""A trial of a run: what it does first, real steps for some seconds, an evaluation, a checkpoint and the model's files.

    seconds of a run = start + steps x mean step + evaluations x one evaluation + checkpoints x one checkpoint + files

Each phase is tried. Where a step takes too long to be tried several times, a smaller batch is tried: the update counts
once and the rest in proportion. Trials are stored in the user's cache by machine and settings.
"""

import os
import platform
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertie.console import console
from bertie.costs import meter
from bertie.costs.job import Job, JobPhase
from bertie.errors import BertieError, Stopped
from bertie.files import read_json, seal, user_cache, write_json
from bertie.models import machine
from bertie.models.batch import Batch
from bertie.models.model import TorchModel
from bertie.runs import usage
from bertie.train import checkpoint, precision
from bertie.train.base import BatchSource, Trainable
from bertie.train.callbacks import EachStep
from bertie.train.config import MOST_STEPS, OptimConfig, TrainConfig
from bertie.train.loop import fit
from bertie.train.optim import OptimizerGroup

TRIAL_S = 30.0
WARM = 3  # steps that are not counted: they make kernels and take memory
_MIN_TRIAL_STEPS = 8  # steps that a trial should have; a batch that is too slow for so many is made smaller
_MAX_STEPS = 200  # steps of a phase: more do not tell more
LOOK = 0.15  # of the time of a trial: for evaluations
GUESSED = 0.25  # of the machine's matrix rate: to guess the time of a step before one has run
TRIALS = "trials.json"


Clock = Callable[[], float]


@dataclass(frozen=True)
class PhaseWork:
    """A phase of a run, for its trial. micro: sequences per forward pass; flops: of a step of `sequences`; tokens: of a
    mean step, None where only a trial shows it; shape: for the formula of the memory; most: tokens of the largest
    micro-batch.

    source: the batches for a number of sequences. look: evaluates for some seconds -> the seconds of an entire
    evaluation, by a clock; looks: evaluations of the run.
    """

    steps: int
    sequences: int
    micro: int
    tokens: float | None
    flops: float
    shape: JobPhase
    most: float
    source: Callable[[int], BatchSource]
    look: Callable[[float, Clock], float]
    looks: float


@dataclass(frozen=True)
class Work:
    """A run, for its trial. settings: what the speed depends on.

    own_bytes: memory of the process besides the model and its training; 0 on a GPU, whose tensors alone count. write:
    writes the model's files to a new folder; written: how often; read: reads them again at the end. begin: what a run
    does before its first step. final: as `PhaseWork.look`, of an evaluation at the end, in float32; finals: how many
    there are.
    """

    model: TorchModel
    job: Job
    objective: Trainable
    train: TrainConfig
    optim: OptimConfig
    phases: Sequence[PhaseWork]
    saves: int
    settings: Mapping[str, Any]
    own_bytes: int
    write: Callable[[Path], object]
    written: int = 1
    read: Callable[[Path], object] | None = None
    begin: Callable[[], object] | None = None
    final: Callable[[float, Clock], float] | None = None
    finals: int = 0

    @property
    def computed_bytes(self) -> int:
        """Peak memory by the formula of `Job`."""
        return round(self.own_bytes + max(self.job.memory(phase.micro, phase.shape) for phase in self.phases))


@dataclass(frozen=True)
class PhaseTrial:
    """Seconds of a step, with quartiles, from `tried` steps of `sequences`; of an evaluation; of the first steps. most:
    tokens of the largest micro-batch."""

    step_s: float
    low_s: float
    high_s: float
    tried: int
    sequences: int
    look_s: float
    first_s: float
    most: int


@dataclass(frozen=True)
class Trial:
    """What a trial measured. save_s: of a checkpoint; write_s, read_s: of the model's files; final_s: of an evaluation
    at the end. watts: mean power; method: how it is known."""

    phases: tuple[PhaseTrial, ...]
    start_s: float
    save_s: float
    write_s: float
    read_s: float
    final_s: float
    peak_bytes: int
    watts: float | None
    method: str
    seconds: float
    day: str


class _Enough(Exception):
    """The time of a trial is over."""


class _Counted:
    """A source that counts the tokens of its steps."""

    def __init__(self, source: BatchSource) -> None:
        self._source, self.tokens, self.most = source, dict[int, int](), 0
        self.fingerprint = source.fingerprint

    def batches(self, step: int, *, rank: int = 0, world: int = 1) -> list[Batch]:
        """Returns the batches of the source."""
        read = self._source.batches(step, rank=rank, world=world)
        self.tokens[step] = sum(batch.tokens for batch in read)
        self.most = max(self.most, *(batch.tokens for batch in read))
        return read


def cached_trial(work: Work) -> Trial | None:
    """Returns the stored trial of a run with the same settings on this machine, or None."""
    try:
        row = read_json(user_cache() / TRIALS)[_key(work)]
        return Trial(**{**row, "phases": tuple(PhaseTrial(**phase) for phase in row["phases"])})
    except (BertieError, OSError, KeyError, TypeError, ValueError):
        return None


def measure_trial(work: Work, seconds: float = TRIAL_S, clock: Clock = time.monotonic) -> Trial | None:
    """Runs a trial and stores it. The model's weights change. None when it was interrupted (Ctrl-C) before it ended.

    clock: what a step takes is read from; `time.process_time` on a machine that other programs use.
    """
    meter.forget_peak()
    taken = usage.meter(work.train.device)
    trials, level = list[PhaseTrial](), console.verbosity.level
    console.say(f"Trying the run for about {seconds:.0f} s (Ctrl-C: no forecast) ...")
    try:
        console.verbosity.level = -1
        start_s = _timed(work.begin, clock) if work.begin else 0.0
        for phase in work.phases:
            trials.append(_phase(work, phase, seconds / len(work.phases), clock))
        save_s = _save(work.model, clock)
        write_s, read_s = _files(work, clock)
        final_s = work.final(LOOK * seconds, clock) if work.final and work.finals else 0.0
    except (Stopped, KeyboardInterrupt):
        return None
    finally:
        console.verbosity.level = level
    used = taken.read()
    missing = max(
        (work.job.memory(1, phase.shape) - work.job.memory(0, phase.shape))
        * max(0.0, phase.most - tried.most)
        / phase.shape.length
        for phase, tried in zip(work.phases, trials, strict=True)
    )
    watts = None if used.kwh is None else used.kwh * meter.JOULES / used.seconds
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    peak = round(used.peak_bytes + missing)
    tried_s = round(used.seconds, 1)
    trial = Trial(tuple(trials), start_s, save_s, write_s, read_s, final_s, peak, watts, used.method, tried_s, day)
    _store(_key(work), trial)
    return trial


def _phase(work: Work, phase: PhaseWork, seconds: float, clock: Clock) -> PhaseTrial:
    device = precision.choose_device(work.train.device)
    dtype = precision.choose_dtype(work.train.precision, device)
    sequences = _tried_sequences(phase, seconds, device)
    micro = min(phase.micro, sequences)
    times, tokens, most = _steps(work, phase, sequences, micro, seconds, clock)
    warm = min(WARM, len(times) - 1)
    step_s = sum(times[warm:]) / len(times[warm:])
    first_s = max(0.0, sum(times[:warm]) - warm * step_s)
    if phase.tokens is not None:
        step_s *= phase.tokens * sequences / phase.sequences / (sum(tokens[warm:]) / len(tokens[warm:]))
    ratios = np.array(times[warm:]) / (sum(times[warm:]) / len(times[warm:]))
    if sequences < phase.sequences:
        update_s = _update(work, clock)
        step_s = update_s + (step_s - update_s) * phase.sequences / sequences
    with precision.computing_in(work.model, dtype):
        look_s = phase.look(LOOK * seconds, clock) if phase.looks else 0.0
    low, high = np.quantile(ratios, (0.25, 0.75))
    return PhaseTrial(step_s, step_s * low, step_s * high, len(ratios), sequences, look_s, first_s, most)


def _tried_sequences(phase: PhaseWork, seconds: float, device: torch.device) -> int:
    """Returns the sequences of a tried step: all, if enough steps of them fit into the time."""
    if device.type != "cpu":
        return phase.sequences
    rates = machine.cpu_rates()
    guess_s = phase.flops / (1e9 * GUESSED * max(rates.fp32, rates.bf16) * torch.get_num_threads())
    share = seconds / ((_MIN_TRIAL_STEPS + WARM) * guess_s)
    if share >= 1:
        return phase.sequences
    fits = max(1, int(share * phase.sequences))
    return fits - fits % phase.micro if fits > phase.micro else fits  # whole micro-batches, as in the run


def _steps(
    work: Work, phase: PhaseWork, sequences: int, micro: int, seconds: float, clock: Clock
) -> tuple[list[float], list[int], int]:
    """Trains until the time is over. -> seconds and tokens of each step, and the
    largest micro-batch"""
    source, marks = _Counted(phase.source(sequences)), list[float]()
    begin, began = clock(), time.monotonic()

    def on_step(step: int) -> None:
        marks.append(clock())
        if (time.monotonic() - began > seconds and len(marks) > WARM) or len(marks) >= _MAX_STEPS:
            raise _Enough

    never = {"eval_every": MOST_STEPS, "save_every": MOST_STEPS, "patience": None, "track": ()}
    shape = {"steps": phase.steps, "batch_size": sequences, "micro_batch_size": micro}
    train = work.train.model_copy(update={**never, **shape})
    with tempfile.TemporaryDirectory(prefix="bertie-trial-") as folder, suppress(_Enough):
        begin, began = clock(), time.monotonic()
        fit(
            work.model,
            work.objective,
            source,
            train=train,
            optim=work.optim,
            run=Path(folder),
            resume="never",
            callbacks=[EachStep(on_step)],
        )
    times = np.diff([begin, *marks]).tolist()
    return times, [source.tokens[step] for step in range(len(times))], source.most


def _update(work: Work, clock: Clock) -> float:
    """Returns the seconds of an update by the optimizer."""
    updates = OptimizerGroup(work.model, work.optim)
    taken = []
    for parameter in work.model.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    for _ in range(3):
        began = clock()
        updates.step(0.0)
        taken.append(clock() - began)
    work.model.zero_grad(set_to_none=True)
    return min(taken)


def _save(model: TorchModel, clock: Clock) -> float:
    """Returns the seconds of a checkpoint."""
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    moments = {f"{name}/{moment}": tensor for name, tensor in weights.items() for moment in ("exp_avg", "exp_avg_sq")}
    with tempfile.TemporaryDirectory(prefix="bertie-trial-") as folder:
        began = clock()
        checkpoint.save_checkpoint(Path(folder), 1, model=weights, optimizer=moments, state={})
        return clock() - began


def _files(work: Work, clock: Clock) -> tuple[float, float]:
    """Returns the seconds of writing the model's files, and of reading them."""
    with tempfile.TemporaryDirectory(prefix="bertie-trial-") as folder:
        model = Path(folder) / "model"
        write_s = _timed(partial(work.write, model), clock)
        return write_s, _timed(partial(work.read, model), clock) if work.read else 0.0


def _timed(do: Callable[[], object], clock: Clock) -> float:
    began = clock()
    do()
    return clock() - began


def _key(work: Work) -> str:
    device = precision.choose_device(work.train.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else machine.processor_facts()
    facts = {"machine": [platform.node(), name, torch.get_num_threads(), os.cpu_count()], **work.settings}
    return seal(facts)


def _store(key: str, trial: Trial) -> None:
    path = user_cache() / TRIALS
    try:
        known = read_json(path)
        known = known if isinstance(known, dict) else {}
    except BertieError:  # there is none yet, or it is damaged
        known = {}
    with suppress(OSError, BertieError):  # a home that cannot be written: it is tried again next time
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {**known, key: asdict(trial)})
