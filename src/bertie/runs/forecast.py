"""The forecast of a run on this machine: time, memory and energy, from a trial or from the peak rate."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import torch

from bertie.console import counted
from bertie.costs import catalog, meter
from bertie.models import machine
from bertie.report.values import quantity
from bertie.runs import trial
from bertie.runs.trial import Clock, Trial, Work
from bertie.runs.usage import energy_in_words
from bertie.train import precision
from bertie.train.rendezvous import world_size

_SPREAD = 0.25  # of times on a GPU: the formula was up to 22% too low on an H200, other GPUs were not measured


@dataclass(frozen=True)
class RunForecast:
    """The cost of a run on this machine. parts: seconds.

    low_s, high_s: from the quartiles of the tried steps; without a trial, a quarter less and more on a GPU.

    peak_bytes: of the process on a CPU, of tensors on a GPU; computed_bytes: the same by the formula of docs/plan.md.
    kwh and its method: as `plan.meter.Usage` has them. source: what the forecast rests on. step_s: seconds of a step of
    each phase.
    """

    seconds: float
    low_s: float
    high_s: float
    parts: Mapping[str, float]
    peak_bytes: int
    computed_bytes: int
    kwh: float | None
    method: str
    source: str
    step_s: Sequence[float] = ()

    def as_json(self) -> dict[str, object]:
        """The fields as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {quantity(value, 's')}" for name, value in self.parts.items() if value >= 0.05)
        spread = f" ({quantity(self.low_s, 's')} to {quantity(self.high_s, 's')})" if self.low_s < self.high_s else ""
        lines = [
            f"time: {quantity(self.seconds, 's')}{spread}: {parts}",
            f"peak memory: {quantity(self.peak_bytes, 'bytes')}",
        ]
        lines += [f"energy: {energy_in_words(self.kwh, self.method)}", f"forecast: {self.source}"]
        return "\n".join(lines)


def forecast_of(work: Work, seconds: float | None = None, clock: Clock = time.monotonic) -> RunForecast | None:
    """Returns the forecast of a run from a trial of about `seconds`. None: it was interrupted (Ctrl-C).

    seconds: None for a stored trial, or a new one where there is none; 0 for none, which may use a stored one.
    """
    known = None if seconds else trial.cached_trial(work)
    if known is None and seconds == 0:
        return _from_rates(work)
    tried = known or trial.measure_trial(work, seconds or trial.TRIAL_S, clock)
    return None if tried is None else _from_trial(work, tried)


def at_start(work: Work) -> RunForecast | None:
    """Returns the forecast of a run that begins, without a new trial. None with several processes, which are not
    tried."""
    return None if world_size() > 1 else forecast_of(work, 0)


def _from_trial(work: Work, tried: Trial) -> RunForecast:
    pairs = list(zip(work.phases, tried.phases, strict=True))
    parts = {
        "start": tried.start_s + sum(one.first_s for one in tried.phases),
        "steps": sum(phase.steps * one.step_s for phase, one in pairs),
        "evaluation": sum(phase.looks * one.look_s for phase, one in pairs) + work.finals * tried.final_s,
        "checkpoints": work.saves * tried.save_s,
        "model files": work.written * tried.write_s + tried.read_s,
    }
    seconds = sum(parts.values())
    rest = seconds - parts["steps"]
    tries = sum(one.tried for one in tried.phases)
    return RunForecast(
        seconds,
        rest + sum(phase.steps * one.low_s for phase, one in pairs),
        rest + sum(phase.steps * one.high_s for phase, one in pairs),
        parts,
        tried.peak_bytes,
        work.computed_bytes,
        None if tried.watts is None else tried.watts * seconds / meter.JOULES,
        tried.method,
        f"from {counted(tries, 'step')} tried on this machine in {quantity(tried.seconds, 's')}, {tried.day}",
        [one.step_s for one in tried.phases],
    )


def _from_rates(work: Work) -> RunForecast:
    """The forecast without a trial: the rate of matrix products, and the formula of the memory."""
    device = precision.choose_device(work.train.device)
    gpu = catalog.find_device(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
    threads, rates = torch.get_num_threads(), machine.cpu_rates()
    tflops = gpu.tflops if gpu else threads * max(rates.fp32, rates.bf16) / 1000
    used = gpu.expected_utilization(work.job) if gpu else catalog.PROCESSOR_UTILIZATION
    seconds = catalog.seconds(sum(phase.steps * phase.flops for phase in work.phases), tflops, used=used)
    least, most = (seconds * (1 - _SPREAD), seconds * (1 + _SPREAD)) if gpu else (seconds, seconds)
    watts = catalog.Device.LOAD * gpu.watts if gpu else catalog.Device.THREAD_WATTS * threads
    memory = work.computed_bytes
    method, source = "estimated (from the power of the device)", "from the peak rate of this machine, without a trial"
    kwh = watts * seconds / meter.JOULES
    return RunForecast(seconds, least, most, {"steps": seconds}, memory, memory, kwh, method, source)
