"""`bertie plan`: the cost of a run before it starts."""

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import bertie
from bertie import platform
from bertie.apps import plan as app
from bertie.apps.cli.options import grouped
from bertie.apps.cli.shared import option
from bertie.apps.cli.tables import comma_names
from bertie.apps.plan.memory import memory_at_use
from bertie.platform import UsageError, console, quantity

if TYPE_CHECKING:
    from bertie import FinetuneConfig, PretrainConfig
    from bertie.apps.plan.forecast import Assumptions, Forecast
    from bertie.platform import ProcessorCatalog, RunPlan

THIS = "this"
_BATCHES = (1, 32)  # texts of a call, whose memory is shown
_UNITS = {"m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class AssumptionOptions:
    """What a forecast rests on."""

    on: Annotated[
        str,
        typer.Option("--machine", help="Devices, comma-separated, for example h100,l4,this. Default: all, and this."),
    ] = ""
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="Number of devices.")] = 1
    utilization: Annotated[
        float | None,
        typer.Option(
            "--utilization",
            min=0.001,
            max=1.0,
            help="Share of the peak rate that training reaches. Default: by model and batch on a GPU; 0.5 on this "
            "machine.",
        ),
    ] = None
    country: Annotated[str, typer.Option("--country", help="Country of the power grid: KOR, USA, FRA ...")] = "WORLD"
    pue: Annotated[
        float | None,
        typer.Option(
            "--pue", min=1.0, max=100.0, help="Power of the data center per power of its computers. Default: 1.58."
        ),
    ] = None
    price: Annotated[
        float | None, typer.Option("--price", min=0.0, max=1e6, help="USD per device and hour, for all devices.")
    ] = None
    prices: Annotated[
        Path | None,
        typer.Option("--prices", help="Dated YAML file of prices, instead of Bertie's. See: bertie help plan."),
    ] = None
    catalog: Annotated[
        Path | None, typer.Option("--catalog", help="YAML file with devices, prices and grids of your own.")
    ] = None

    def of(self, key: str) -> "Assumptions":
        """Returns the assumptions for a device."""

        here = key == THIS
        pue = self.pue if self.pue is not None else 1.0 if here else app.forecast.PUE
        return app.forecast.Assumptions(self.country, 1 if here else self.gpus, self.utilization, pue, self.price)


ASSUMPTIONS = AssumptionOptions()


@grouped
def plan_command(
    overrides: Annotated[list[str] | None, option("overrides")] = None,
    config: Annotated[Path | None, option("config")] = None,
    assumptions: AssumptionOptions = ASSUMPTIONS,
    budget: Annotated[
        str, typer.Option("--budget", help="Time that is available, for example 24h: what fits on the first device?")
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Accept a utilization above 0.6.")] = False,
    output: Annotated[Path | None, option("page")] = None,
    overwrite: Annotated[bool, option("overwrite")] = False,
) -> None:
    """Estimate the cost of a run: operations, memory, time, energy, CO2 and money.

    The settings are those of `bertie pretrain` or `bertie finetune`. No text is needed: every sequence counts as full.
    Times are estimates from peak rates. Energy and CO2 are estimates too: the truth is between half and twice the
    number. For a measured time on this machine, pass --dry-run to `bertie pretrain` or `bertie finetune`.

    \b
    Examples:
      bertie plan -c pretrain-bert-base
      bertie plan -c pretrain-bert-base --machine h100 --gpus 8 --country KOR -o plan.html
      bertie plan -c finetune-squad model=bert-base --machine l4,this
      bertie plan model=bert-small train.steps=100000 --machine rtx4090 --price 0 --pue 1
      bertie plan -c pretrain-small-cpu --budget 24h --machine this
    """

    used = assumptions.utilization
    if used is not None and used > app.forecast.MOST_UTILIZATION and not force:
        raise UsageError(
            f"--utilization {used:g} is above {app.forecast.MOST_UTILIZATION:g}, which training of encoders hardly "
            "reaches. Check that padding is not counted and that the peak rate is without sparsity, or pass --force."
        )
    if output is not None:
        platform.File(output).check_new(overwrite=overwrite)
    known = platform.ProcessorCatalog.read(assumptions.catalog, assumptions.prices)
    keys = tuple(dict.fromkeys(comma_names(assumptions.on) or (*known.devices, THIS)))
    for key in keys:
        known.device(key)
    grid, settings = known.grid(assumptions.country), platform.RunPlan.read_settings(config, overrides or [])

    def assumptions_of(key: str) -> "Assumptions":
        return assumptions.of(key)

    if budget:
        costs = ("country", "pue", "price", "prices")
        if unused := [name for name in costs if getattr(assumptions, name) != getattr(ASSUMPTIONS, name)]:
            raise UsageError(f"--budget chooses by time alone, without --{unused[0]}. Omit one of them.")
        _show_budget(settings, keys[0], known, assumptions_of, _seconds(budget), output, used is None)
        return
    run = platform.RunPlan.of(settings)
    job = run.job
    forecasts = {key: app.forecast.forecast(run, key, assumptions_of(key), known) for key in keys}
    best = app.forecast.cheapest([one for key, one in forecasts.items() if key != THIS])
    if output is not None:
        app.page.render_plan_page(
            config.stem if config else settings.model, run, forecasts, assumptions_of, known
        ).save(output)
    if console.verbosity.json:
        console.emit(
            {
                **_facts(run),
                "country": asdict(grid),
                "prices": {"month": known.priced, "source": known.source},
                "devices": {key: _as_json(one, assumptions_of(key)) for key, one in forecasts.items()},
                "cheapest": [one.device for one in best],
            }
        )
        return
    console.show(
        f"{quantity(job.parameters)} parameters, {quantity(job.tokens)} tokens, "
        f"{job.flops:.3g} floating-point operations"
    )
    _show(forecasts, assumptions_of)
    for length, batch, sizes in _use(run):
        shown = ", ".join(f"{quantity(size, 'bytes')} ({engine})" for engine, size in sizes.items())
        console.say(f"Prediction on a CPU, {quantity(batch, 'text')} of {length:,} tokens: {shown}.")
    if best:
        own = f" and {assumptions.catalog}" if assumptions.catalog else ""
        source = f"prices of {known.priced}{own}" if assumptions.price is None else "--price"
        console.say(f"Cheapest: {', '.join(one.device for one in best)} ({source}).")
    console.say(
        "Estimates. Times: on an H200, BERT of three sizes took 1% to 17% more. Several GPUs were never run. --dry-run "
        "measures. Energy and CO2: half to twice the number; "
        f"{grid.name}, {grid.g_per_kwh:g} g CO2 per kWh ({grid.year}). "
        "Change them: --utilization, --country, --pue, --price, --prices, --catalog."
    )
    if output is not None:
        console.say(f"Page: {output}")


def _facts(plan: "RunPlan") -> dict[str, object]:
    job = plan.job
    return {
        "parameters": job.parameters,
        "tokens": job.tokens,
        "flops": job.flops,
        "phases": [{**asdict(phase), "flops_per_token": job.flops_parts(phase)} for phase in job.phases],
        "memory": {"bytes": sum(job.peak.values()), **job.peak},
        "prediction": [{"length": length, "batch": batch, "bytes": sizes} for length, batch, sizes in _use(plan)],
    }


def _use(plan: "RunPlan") -> Iterator[tuple[int, int, dict[str, float]]]:
    """Yields lengths and batches, and the memory of prediction with the model, as far as it was measured."""
    job = plan.job
    length = round(max(phase.length for phase in job.phases))
    for batch in _BATCHES:
        if sizes := memory_at_use(job.config.flat(), job.parameters, length, batch):
            yield length, batch, sizes


def _as_json(one: "Forecast", assumptions: "Assumptions") -> dict[str, object]:
    return {
        "name": one.device,
        "count": assumptions.count,
        "utilization": one.utilization,
        "pue": assumptions.pue,
        "seconds": one.seconds,
        "kwh": one.kwh,
        "kg_co2": one.kg,
        "energy": "estimated, factor 2",
        "dollars": one.dollars,
        "fits": one.fits,
        "micro_batch": one.sequences,
        "memory_gb": one.memory_gb,
    }


def _show(forecasts: "dict[str, Forecast]", assumptions_of: "Callable[[str], Assumptions]") -> None:
    from rich.table import Table

    table = Table("device", "time", "kWh", "kg CO2", "USD", "fits", box=None)
    for key, one in forecasts.items():
        number = assumptions_of(key).count
        dollars = "–" if one.dollars is None else " to ".join(f"{money:,.2f}" for money in sorted(set(one.dollars)))
        memory = quantity(one.memory_gb * 1e9, "bytes")
        fits = quantity(one.sequences, "sequence") if one.fits else f"no ({memory})"
        table.add_row(
            f"{number} x {one.device}" if number > 1 else one.device,
            quantity(one.seconds, "s"),
            f"{one.kwh:,.3g}",
            f"{one.kg:,.3g}",
            dollars,
            fits,
        )
    console.show(table)


def _seconds(text: str) -> float:
    """24h -> 86,400."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(m|min|h|d)", text.lower())
    if not match or float(match[1]) <= 0:
        raise UsageError(f"--budget is {text!r}; expected a time such as 90min, 24h or 3d.")
    return float(match[1]) * _UNITS[match[2]]


def _show_budget(
    settings: "PretrainConfig | FinetuneConfig",
    key: str,
    known: "ProcessorCatalog",
    assumptions_of: Callable[[str], "Assumptions"],
    seconds: float,
    output: Path | None,
    measured: bool,
) -> None:
    if not isinstance(settings, bertie.PretrainConfig):
        raise UsageError("--budget chooses a model to pre-train. For fine-tuning, omit it: the plan has the time.")
    tried = key == THIS and measured and settings.objectives.get("mlm") is not None
    rows = app.presets.presets_within(settings, key, assumptions_of(key), known, seconds, tried=tried)
    device = known.device(key).name
    if output is not None:
        app.page.budget_page(rows, device, seconds).save(output)
    if console.verbosity.json:
        console.emit({"device": device, "seconds": seconds, "presets": rows})
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, collapse_padding=True)
    for name in ("", "preset", "parameters", "steps", "tokens", "loss", "batch"):
        table.add_column(name, no_wrap=True)
    for row in rows:
        table.add_row(
            "*" if row["chosen"] else "",
            row["preset"],
            quantity(row["parameters"]),
            f"{row['steps']:,}",
            quantity(row["tokens"]),
            "–" if row["loss"] is None else f"{row['loss']:.2f}",
            f"{row['micro_batch']:,}" if row["micro_batch"] else "does not fit",
        )
    console.show(table)
    console.say(
        f"What fits into {quantity(seconds, 's')} on {device}. * marks the largest preset that reads 20 tokens "
        "per parameter, a rule of thumb from decoders (Hoffmann et al. 2022). The loss, in nats per masked token, is "
        "from a rough law of small runs of Bertie (bertie help plan)."
        + " The first presets were tried on this machine for 30 s; the others use the last measured rate."
        * tried
    )
    for row in rows:
        if row["chosen"]:
            where = f", extrapolated {row['beyond']:g} times" if row["beyond"] > 1 else ""
            loss = f"an expected loss of {row['loss']:.2f}{where}" if row["loss"] else "a loss that is not known"
            console.say(f"Settings of *: model={row['preset']} train.steps={row['steps']}, with {loss}.")
    if better := app.page.better_loss(rows):
        console.say(better)
