"""A job on a device: time, energy, CO2, money, and whether it fits."""

from collections.abc import Sequence
from dataclasses import dataclass

from bertie.platform import ProcessorCatalog, RunPlan

PUE = 1.58  # power of a data center per power of its computers: the world's mean in 2018 (Strubell et al. 2019)
MOST_UTILIZATION = 0.6  # what is said to be higher was mostly measured with another peak, or counts padding
USABLE = 0.92  # of a device's memory; the rest is the driver's and the libraries'


@dataclass(frozen=True)
class Assumptions:
    """What a forecast rests on besides the job. country: of the power grid; utilization: None for what the device
    reaches with the job; price: USD per device and hour, instead of the catalog's."""

    country: str
    count: int
    utilization: float | None
    pue: float = PUE
    price: float | None = None


@dataclass(frozen=True)
class Forecast:
    """Estimates for one device, by its name. kwh and kg are means of a range from half to twice the number.

    sequences: the largest micro-batch that fits in its memory; 0: the job does not fit. utilization: of the peak rate.
    """

    device: str
    utilization: float
    memory_gb: float
    seconds: float
    kwh: float
    kg: float
    dollars: tuple[float, float] | None
    sequences: int

    @property
    def fits(self) -> bool:
        """Whether one sequence of every phase fits in the memory of the device."""
        return self.sequences > 0


def forecast(plan: RunPlan, key: str, assumptions: Assumptions, known: ProcessorCatalog) -> Forecast:
    """Returns the time, energy, CO2 and price of a run on `assumptions.count` devices. key: in the catalog."""
    job, device = plan.job, known.device(key)
    used = assumptions.utilization or device.expected_utilization(job, assumptions.count)
    seconds = device.seconds(job.flops, count=assumptions.count, used=used)
    hours = seconds / 3600
    kwh = device.energy_kwh(seconds, count=assumptions.count, pue=assumptions.pue)
    price = device.price if assumptions.price is None else (assumptions.price, assumptions.price)
    dollars = None if price is None else (price[0] * hours * assumptions.count, price[1] * hours * assumptions.count)
    return Forecast(
        device.name,
        used,
        device.memory_gb,
        seconds,
        kwh,
        known.grid(assumptions.country).carbon_kg(kwh),
        dollars,
        job.largest_batch(USABLE * device.memory_gb * 1e9),
    )


def cheapest(forecasts: Sequence[Forecast], number: int = 3) -> list[Forecast]:
    """Returns the devices with the lowest price for the job, among those that have a price and that it fits on."""
    priced = [one for one in forecasts if one.dollars is not None and one.fits]
    return sorted(priced, key=lambda one: one.dollars or (0.0, 0.0))[:number]
