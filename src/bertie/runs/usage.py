"""What a run took, next to its forecast: in results.json and in the report. model_card.py has it in the card."""

import os

import torch

from bertie.costs import catalog
from bertie.costs.meter import Meter, Usage
from bertie.files import Json
from bertie.report.page import Report
from bertie.report.values import quantity
from bertie.train import precision

USAGE_COLUMNS = ("cost", "forecast", "measured", "difference")
_FIGURE_NAMES = {"seconds": "time", "peak_bytes": "peak memory", "kwh": "energy"}


def meter(device: str) -> Meter:
    """Returns a meter for a run on a device, as the settings name it. The first process counts for all on its
    machine."""
    chosen = precision.choose_device(device)
    gpu = torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else ""
    return Meter(int(os.environ.get("LOCAL_WORLD_SIZE", "1")), gpu)


def add_usage_section(report: Report, results: Json) -> None:
    """Adds the cost of a run to its report; nothing before it has finished."""
    if not (usage := results.get("usage")):
        return
    forecast = results.get("forecast") or {}
    rows = usage_rows(usage, forecast)
    about = "Time, memory and energy of the run, all resumes included: training, validation and checkpoints."
    report.section("Cost", about)
    if forecast:
        report.table(USAGE_COLUMNS, rows, caption=f"Forecast: {forecast['source']}.")
    else:
        report.pairs((name, measured) for name, _, measured, _ in rows)
    report.text(energy(Usage(**usage)))


def energy(usage: Usage) -> str:
    """Returns sentences on the energy of a run: how it is known, and the CO2 of it."""
    if usage.kwh is None:
        return f"The energy is {usage.method}."
    grid = catalog.Catalog.read().grid("WORLD")
    spread = " An estimate is half to twice the number." if "estimated" in usage.method else ""
    return (
        f"Energy: {energy_in_words(usage.kwh, usage.method)}.{spread} CO2 equivalents are those of the world's "
        f"mean electricity, {grid.g_per_kwh:g} g per kWh in {grid.year}. No data center is included."
    )


def energy_in_words(kwh: float | None, method: str) -> str:
    """Returns "2.1 Wh, 1 g CO2, estimated (...)"."""
    if kwh is None:
        return method
    grams = 1000 * catalog.carbon_kg(kwh, catalog.Catalog.read().grid("WORLD").g_per_kwh)
    return f"{_shown('kwh', kwh)}, {grams:.3g} g CO2, {method}"


def usage_rows(usage: Json, forecast: Json) -> list[list[str]]:
    """Returns the rows of COLUMNS: what a run took, `Usage.as_json()`, next to its forecast."""
    return [
        [name, _shown(key, forecast.get(key)), _shown(key, usage[key]), _apart(forecast.get(key), usage[key])]
        for key, name in _FIGURE_NAMES.items()
    ]


def _shown(key: str, value: float | None) -> str:
    if value is None:
        return "not known"
    if key == "kwh":
        return f"{value:.3g} kWh" if value >= 0.1 else f"{1000 * value:.3g} Wh"
    return quantity(value, "s") if key == "seconds" else quantity(value, "bytes")


def _apart(forecast: float | None, measured: float | None) -> str:
    return "–" if not forecast or measured is None else f"{measured / forecast - 1:+.0%}"
