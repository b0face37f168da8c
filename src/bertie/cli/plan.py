"""`bertie plan`: the cost of a pre-training run before it starts."""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertie import console
from bertie.cli.app import ConfigFile, Overrides, app, emit
from bertie.cli.options import grouped
from bertie.errors import UsageError
from bertie.report.values import count, duration, size

if TYPE_CHECKING:
    from bertie.plan.catalog import Catalog, Device
    from bertie.plan.forecast import Assumptions, Forecast
    from bertie.plan.job import Job

THIS = "this"
UNITS = {"m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class AssumptionOptions:
    """What a forecast rests on."""

    on: Annotated[
        str, typer.Option("--on", help="Devices, comma-separated, for example h100,l4,this. Default: all, and this.")
    ] = ""
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="Number of devices.")] = 1
    utilization: Annotated[
        float | None,
        typer.Option(
            "--utilization",
            min=0.001,
            max=1.0,
            help="Share of the peak rate that training reaches. Default: 0.4; 0.5 on this machine.",
        ),
    ] = None
    country: Annotated[str, typer.Option("--country", help="Country of the power grid: KOR, USA, FRA ...")] = "WORLD"
    pue: Annotated[
        float | None,
        typer.Option("--pue", min=1.0, help="Power of the data center per power of its computers. Default: 1.58."),
    ] = None
    price: Annotated[
        float | None, typer.Option("--price", min=0.0, help="USD per device and hour, instead of the catalog's.")
    ] = None
    catalog: Annotated[
        Path | None, typer.Option("--catalog", help="YAML file with devices, prices and grids of your own.")
    ] = None


ASSUMPTIONS = AssumptionOptions()


@app.command()
@grouped
def plan(
    overrides: Overrides = None,
    config: ConfigFile = None,
    assumptions: AssumptionOptions = ASSUMPTIONS,
    budget: Annotated[
        str, typer.Option("--budget", help="Time that is available, for example 24h: what fits on the first device?")
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Accept a utilization above 0.6.")] = False,
) -> None:
    """Estimate the cost of a pre-training run: operations, memory, time, energy, CO2 and money.

    No corpus is needed: every sequence counts as full. Times of GPUs are estimates from their peak rate. Energy and CO2
    are estimates too: the truth is between half and twice the number. For a measured time on this machine, use
    `bertie pretrain --dry-run`.

    [bold]Examples[/]

      bertie plan -c pretrain-bert-base

      bertie plan -c pretrain-bert-base --on h100 --gpus 8 --country KOR

      bertie plan model=bert-small train.steps=100000 --on rtx4090 --price 0 --pue 1

      bertie plan -c pretrain-bert-base --budget 24h --on this
    """
    from bertie import settings as configs
    from bertie.plan import catalog as catalogs
    from bertie.plan import cost
    from bertie.plan.forecast import Assumptions, cheapest, forecast
    from bertie.runs.config import PretrainConfig
    from bertie.runs.planning import job_of

    used = assumptions.utilization
    if used is not None and used > cost.MOST_UTILIZATION and not force:
        raise UsageError(
            f"--utilization {used:g} is above {cost.MOST_UTILIZATION:g}, which training of encoders hardly reaches. "
            "Check that padding is not counted and that the peak rate is without sparsity, or pass --force."
        )
    known = catalogs.read(assumptions.catalog)
    devices = _devices(assumptions.on, known)
    grid = known.grid(assumptions.country)
    settings = configs.load(PretrainConfig, config, overrides or ())

    def given(key: str) -> Assumptions:
        here = key == THIS
        share = used if used is not None else 0.5 if here else cost.UTILIZATION
        pue = assumptions.pue if assumptions.pue is not None else 1.0 if here else cost.PUE
        return Assumptions(grid, 1 if here else assumptions.gpus, share, pue, assumptions.price)

    if budget:
        _show_budget(settings, *next(iter(devices.items())), given, _seconds(budget))
        return
    job = job_of(settings)
    found = {key: forecast(job, device, given(key)) for key, device in devices.items()}
    best = cheapest([one for key, one in found.items() if key != THIS])
    if console.verbosity.json:
        emit(
            {
                **_facts(job),
                "country": asdict(grid),
                "prices": known.priced,
                "devices": {key: _as_json(one, given(key)) for key, one in found.items()},
                "cheapest": [one.device.name for one in best],
            }
        )
        return
    console.show(
        f"{count(job.parameters)} parameters, {count(job.tokens)} tokens, {job.flops:.3g} floating-point operations"
    )
    _show(found, given)
    if best:
        console.say(f"Cheapest: {', '.join(one.device.name for one in best)} (prices of {known.priced}).")
    console.say(
        f"Estimates. Energy and CO2: half to twice the number; {grid.name}, {grid.g_per_kwh:g} g CO2 per kWh "
        f"({grid.year}). Change them: --utilization, --country, --pue, --price, --catalog."
    )


def _devices(names: str, known: "Catalog") -> "dict[str, Device]":
    keys = [name.strip() for name in names.split(",") if name.strip()] or [*known.devices, THIS]
    return {key: _this() if key == THIS else known.device(key) for key in keys}


def _this() -> "Device":
    """This machine: its first GPU is not asked, its processor is measured with one small product."""
    import os

    import torch

    from bertie.nn import machine
    from bertie.plan.catalog import Device
    from bertie.plan.meter import THREAD_WATTS

    rates = machine.cpu_rates()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    threads = torch.get_num_threads()
    best = max(rates.fp32, rates.bf16)
    name = f"this processor, {threads} thread" + "s" * (threads > 1)
    return Device(name, best * threads / 1000, THREAD_WATTS * threads, memory)


def _facts(job: "Job") -> dict[str, Any]:
    return {
        "parameters": job.parameters,
        "tokens": job.tokens,
        "flops": job.flops,
        "phases": [asdict(phase) for phase in job.phases],
    }


def _as_json(one: "Forecast", given: "Assumptions") -> dict[str, Any]:
    return {
        "name": one.device.name,
        "count": given.count,
        "utilization": given.utilization,
        "pue": given.pue,
        "seconds": one.seconds,
        "kwh": one.kwh,
        "kg_co2": one.kg,
        "energy": "estimated, factor 2",
        "dollars": one.dollars,
        "fits": one.fits,
        "micro_batch": one.sequences,
        "memory_gb": one.device.memory_gb,
    }


def _show(found: "dict[str, Forecast]", given: Any) -> None:
    from rich.table import Table

    table = Table("device", "time", "kWh", "kg CO2", "USD", "fits", box=None)
    for key, one in found.items():
        number = given(key).count
        dollars = "–" if one.dollars is None else " to ".join(f"{money:,.2f}" for money in sorted(set(one.dollars)))
        fits = f"{one.sequences:,} sequences" if one.fits else f"no ({size(one.device.memory_gb * 1e9)})"
        table.add_row(
            f"{number} x {one.device.name}" if number > 1 else one.device.name,
            duration(one.seconds),
            f"{one.kwh:,.3g}",
            f"{one.kg:,.3g}",
            dollars,
            fits,
        )
    console.show(table)


def _seconds(text: str) -> float:
    """24h -> 86,400."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(m|min|h|d)", text.lower())
    if not found or float(found[1]) <= 0:
        raise UsageError(f"--budget is {text!r}; expected a time such as 90min, 24h or 3d.")
    return float(found[1]) * UNITS[found[2]]


def _show_budget(settings: Any, key: str, device: "Device", given: Any, seconds: float) -> None:
    from rich.table import Table

    from bertie.runs.planning import presets_within

    rows = presets_within(settings, device, given(key), seconds)
    if console.verbosity.json:
        emit({"device": device.name, "seconds": seconds, "presets": rows})
        return
    table = Table("", "preset", "parameters", "steps", "tokens", "tokens per parameter", "micro-batch", box=None)
    for row in rows:
        table.add_row(
            "*" if row["chosen"] else "",
            row["preset"],
            count(row["parameters"]),
            f"{row['steps']:,}",
            count(row["tokens"]),
            f"{row['tokens_per_parameter']:.3g}",
            f"{row['micro_batch']:,}" if row["micro_batch"] else "does not fit",
        )
    console.show(table)
    console.say(
        f"What fits into {duration(seconds)} on {device.name}. * is the largest preset that reads 20 tokens per "
        "parameter, a rule of thumb from decoders (Hoffmann et al. 2022). The loss to expect is not estimated."
    )
