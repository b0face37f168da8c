"""A job on a device: time, energy, CO2, money, and whether it fits."""

from collections.abc import Sequence
from dataclasses import dataclass

from bertie.platform import Costs, Job, PowerGrid, Processor

USABLE = 0.92  # of a device's memory; the rest is the driver's and the libraries'


@dataclass(frozen=True)
class Assumptions:
    """What a forecast rests on besides the job. price: USD per device and hour, instead of the catalog's."""

    grid: PowerGrid
    count: int = 1
    utilization: float = Costs.UTILIZATION
    pue: float = Costs.PUE
    price: float | None = None


@dataclass(frozen=True)
class Forecast:
    """Estimates for one device. kwh and kg are means of a range from half to twice the number.

    sequences: the largest micro-batch that fits in its memory; 0: the job does not fit.
    """

    device: Processor
    seconds: float
    kwh: float
    kg: float
    dollars: tuple[float, float] | None
    sequences: int

    @property
    def fits(self) -> bool:
        """Whether one sequence of every phase fits in the memory of the device."""
        return self.sequences > 0


def forecast(job: Job, device: Processor, given: Assumptions) -> Forecast:
    """Returns the time, energy, CO2 and price of a job on `given.count` devices of a kind."""
    seconds = Costs.seconds(job.flops, device.tflops, count=given.count, used=given.utilization)
    hours = seconds / 3600
    kwh = Costs.energy_kwh(Costs.GPU_LOAD * device.watts * given.count, hours, pue=given.pue)
    price = device.price if given.price is None else (given.price, given.price)
    dollars = None if price is None else (price[0] * hours * given.count, price[1] * hours * given.count)
    return Forecast(
        device,
        seconds,
        kwh,
        Costs.carbon_kg(kwh, given.grid.g_per_kwh),
        dollars,
        job.largest_batch(USABLE * device.memory_gb * 1e9),
    )


def cheapest(forecasts: Sequence[Forecast], number: int = 3) -> list[Forecast]:
    """Returns the devices with the lowest price for the job, among those that have a price and that it fits on."""
    priced = [one for one in forecasts if one.dollars is not None and one.fits]
    return sorted(priced, key=lambda one: one.dollars or (0.0, 0.0))[:number]
