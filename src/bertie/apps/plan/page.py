"""The page of `bertie plan`: the bill by item, machines next to each other, and where every figure comes from."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bertie.apps.plan.forecast import Assumptions, Forecast, cheapest
from bertie.apps.plan.law import ALPHA, BETA, FARTHEST, law
from bertie.platform import Chart, ProcessorCatalog, Report, RunPlan, quantity

_MAX_DEVICES_DRAWN = 40  # a slower machine is in the table alone
Given = Callable[[str], Assumptions]  # the assumptions for a device, by its key


def render_plan_page(
    title: str, plan: RunPlan, forecasts: Mapping[str, Forecast], assumptions_of: Given, known: ProcessorCatalog
) -> Report:
    """Returns the page of a job on several devices."""
    job = plan.job
    report = Report(f"Plan: {title}", "An estimate before the run. Every sequence counts as full.")
    best = cheapest(list(forecasts.values()), 1)
    tiles = [
        ("parameters", quantity(job.parameters)),
        ("tokens", quantity(job.tokens), quantity(len(job.phases), "phase")),
        ("operations", quantity(job.flops, "FLOPs"), "forward and backward"),
    ]
    tiles += [("cheapest", money(one), f"{one.device}, {quantity(one.seconds, 's')}") for one in best]
    report.tiles(tiles)
    _bill(report, plan)
    _machines(report, forecasts, assumptions_of)
    key, first = next(iter(forecasts.items()))
    _sources(report, key, assumptions_of, known, first.utilization)
    return report.footer(docs="plan")


def money(one: Forecast) -> str:
    """Returns "12.40 to 31.00 USD", or a dash without a price."""
    if one.dollars is None:
        return "–"
    return " to ".join(f"{each:,.2f}" for each in sorted(set(one.dollars))) + " USD"


def _bill(report: Report, plan: RunPlan) -> None:
    job = plan.job
    names = dict.fromkeys(name for phase in job.phases for name in job.flops_parts(phase))
    parts = {name: sum(p.tokens * job.flops_parts(p).get(name, 0.0) for p in job.phases) for name in names}
    report.section(
        "Bill by item", "A multiply-add counts as two operations. A backward pass counts as two forward passes."
    )
    rows = [[name, quantity(value, "FLOPs"), f"{value / job.flops:.1%}"] for name, value in parts.items() if value]
    report.table(["operations", "of the run", "share"], rows)
    memory = {name: value for name, value in job.peak.items() if value}
    total = sum(memory.values())
    rows = [[name, quantity(value, "bytes"), f"{value / total:.1%}"] for name, value in memory.items()]
    caption = f"Peak of one forward and backward pass: {quantity(total, 'bytes')}, besides the program itself. 16 bit."
    report.table(["memory", "bytes", "share"], rows, caption=caption)


def _machines(report: Report, forecasts: Mapping[str, Forecast], assumptions_of: Given) -> None:
    about = "Times come from peak rates and a utilization. Energy and CO2: half to twice the number."
    report.section("Machines", about)
    rows = [
        [
            f"{assumptions_of(key).count} x {one.device}" if assumptions_of(key).count > 1 else one.device,
            quantity(one.seconds, "s"),
            f"{one.kwh:,.3g}",
            f"{one.kg:,.3g}",
            money(one),
            quantity(one.sequences, "sequence")
            if one.fits
            else f"does not fit in {quantity(one.memory_gb * 1e9, 'bytes')}",
        ]
        for key, one in forecasts.items()
    ]
    report.table(["device", "time", "kWh", "kg CO2", "price", "largest micro-batch"], rows, stack=True)
    ordered = sorted(forecasts.values(), key=lambda one: one.seconds)
    hours = {one.device: one.seconds / 3600 for one in ordered if one.seconds < _MAX_DEVICES_DRAWN * ordered[0].seconds}
    charts = [
        (
            Chart.bars(hours, x_label="hours", form="{:,.3g}"),
            f"Time of the run, up to {_MAX_DEVICES_DRAWN} times the shortest.",
        )
    ]
    priced = {
        one.device: sum(one.dollars) / 2 for one in cheapest(list(forecasts.values()), len(forecasts)) if one.dollars
    }
    if priced:
        charts.append((Chart.bars(priced, x_label="USD", form="{:,.2f}"), "Price: the middle of lowest and highest."))
    report.charts(charts)


def _sources(report: Report, key: str, assumptions_of: Given, known: ProcessorCatalog, used: float) -> None:
    one, device, grid = assumptions_of(key), known.device(key), known.grid(assumptions_of(key).country)
    rows = [
        ["operations", "L(8h² + 4hf) + 4Lhs + m(2h² + 2hV) per token forward, times 3", "bertie help plan"],
        [
            "memory",
            "fitted to measured runs",
            "Korthikanti et al. 2022 for the form; bertie help plan for the constants",
        ],
        ["peak rates, power, memory of devices", "dense 16-bit products", "the makers' data sheets"],
        ["utilization", f"{used:.2g}", "from products, memory traffic and small kernels of a step; --utilization"],
        ["power of a GPU", f"{device.LOAD:.0%} of the board power", "an assumption"],
        ["power of this processor", f"{device.THREAD_WATTS:g} W per thread", "an assumption"],
        ["PUE, power of the data center per power of its computers", f"{one.pue:g}", "Strubell et al. 2019; --pue"],
        ["electricity", f"{grid.name}: {grid.g_per_kwh:g} g CO2 per kWh, {grid.year}", "Our World in Data"],
    ]
    price = f"{one.price:g} USD per hour" if one.price is not None else f"of {known.priced}"
    rows.append(["prices", price, "--price" if one.price is not None else known.source])
    report.section("Sources").table(["figure", "value", "source"], rows, stack=True)


def better_loss(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns which preset has a lower expected loss than the chosen one, and why it is not chosen; else ""."""
    known = [row for row in rows if row["loss"] is not None]
    chosen = next((row for row in known if row["chosen"]), None)
    best = min(known, key=lambda row: row["loss"], default=None)
    if chosen is None or best is None or best["loss"] >= chosen["loss"]:
        return ""
    return (
        f"{best['preset']} has a lower expected loss, {best['loss']:.2f}. {chosen['preset']} is chosen by the rule of "
        "thumb alone, since the law is too rough to choose between sizes."
    )


def budget_page(rows: Sequence[Mapping[str, Any]], device: str, seconds: float) -> Report:
    """Returns the page of what fits into a time: the rows of `presets_within`, and the runs behind the loss."""
    report = Report(f"What fits into {quantity(seconds, 's')}", f"Pre-training on {device}")
    cells = [
        [
            row["preset"],
            quantity(row["parameters"]),
            row["steps"],
            quantity(row["tokens"]),
            f"{row['tokens_per_parameter']:.1f}",
            None if row["loss"] is None else f"{row['loss']:.2f}",
            f"{row['beyond']:g} times",
            row["micro_batch"] or "does not fit",
        ]
        for row in rows
    ]
    chosen = next((row for row in rows if row["chosen"]), None)
    about = "No preset reads 20 tokens per parameter in this time."
    if chosen:
        about = (
            f"{chosen['preset']} is the largest preset that reads 20 tokens per parameter, a rule of thumb from "
            f"decoders (Hoffmann et al. 2022). Settings: model={chosen['preset']} train.steps={chosen['steps']}. "
            + better_loss(rows)
        ).strip()
    columns = [
        "preset",
        "parameters",
        "steps",
        "tokens",
        "tokens per parameter",
        "expected loss",
        "extrapolated",
        "largest micro-batch",
    ]
    report.section("Presets", about).table(columns, cells, stack=True)
    constants = law()
    report.section(
        "Expected loss",
        f"Nats per masked token of held-out text: {constants.e:.2f} + {constants.a:.3g}/N^{ALPHA} + "
        f"{constants.b:.3g}/D^{BETA}, "
        "with N parameters in the layers and D tokens. The law is rough: the exponents are those of Hoffmann et al. "
        f"(2022), and the constants are fitted to {len(constants.fitted)} small runs of Bertie on one corpus. "
        "On average, "
        f"they are {constants.error:.2f} nats from it. The largest run is extrapolated up to {FARTHEST:g} times.",
    )
    points = [
        [
            one.run,
            one.parameters,
            one.tokens,
            one.loss,
            constants.loss(one.parameters, one.tokens) if one.counts else "plateau",
        ]
        for one in constants.points
    ]
    report.table(["run", "parameters of the layers", "tokens", "loss", "law"], points, caption="The runs.")
    return report.footer(docs="plan")
