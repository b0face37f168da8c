"""Devices, their prices and power grids: devices.yaml, prices.yaml and grids.yaml, and files of the user's own.

No assumption of a cost is hidden: every factor is an argument.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

import torch
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, with_config
from pydantic_core import PydanticCustomError

from bertie.console import counted
from bertie.errors import DataError, UnknownName, UsageError, nearest
from bertie.models import machine
from bertie.settings import read_yaml

if TYPE_CHECKING:
    from bertie.costs.job import Job

UTILIZATION = 0.4  # of the peak rate, of a device whose memory speed is unknown
PROCESSOR_UTILIZATION = 0.5  # of the rate of matrix products


def utilization(flops: float, seconds: float, tflops: float, count: int = 1) -> float:
    """Returns model FLOPs utilization: the operations of a run relative to what its devices could have done."""
    return flops / (seconds * tflops * 1e12 * count)


def seconds(flops: float, tflops: float, *, count: int = 1, used: float) -> float:
    """Returns the time of `flops` operations on `count` devices at a share `used` of their peak rate."""
    return flops / (tflops * 1e12 * count * used)


def energy_kwh(watts: float, hours: float, *, pue: float = 1.0) -> float:
    """Returns the energy of a mean power over some hours. Source: Strubell et al. 2019, equation 1."""
    return watts * hours / 1000 * pue


def carbon_kg(kwh: float, g_per_kwh: float) -> float:
    """Returns the CO2 equivalents of electricity."""
    return kwh * g_per_kwh / 1000


_THIS_MACHINE = "this"  # key of the processor of this machine
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _ascending(prices: tuple[float, float]) -> tuple[float, float]:
    if prices[0] > prices[1]:
        raise PydanticCustomError("prices", f"The lowest price comes first: [{prices[1]:g}, {prices[0]:g}]")
    return prices


_Range = Annotated[tuple[Positive, Positive], AfterValidator(_ascending)]
Month = Annotated[str, BeforeValidator(str), Field(pattern=r"^\d{4}-\d{2}(-\d{2})?$")]
STRICT = ConfigDict(extra="forbid")


@with_config(STRICT)
@dataclass(frozen=True)
class Device:
    """A processor. tflops: dense products in 16 bit, TFLOP/s; watts: power; price: USD per hour, lowest and highest.

    utilization: the share of the peak rate that training reaches; None: it depends on the run.
    """

    name: str
    tflops: Positive
    watts: Positive
    memory_gb: Positive
    memory_tb_s: Positive | None = None
    price: _Range | None = None
    bf16: bool = True
    utilization: Annotated[float, Field(gt=0, le=1)] | None = None

    LOAD: ClassVar[float] = 0.8  # of the board power while training
    THREAD_WATTS: ClassVar[float] = 4.0  # of a processor for each busy thread: 65 W of 16 and 360 W of 192 are usual

    @classmethod
    def here(cls) -> Self:
        """Returns the processor of this machine. Its rate is that of one small product, measured once."""
        rates, threads = machine.cpu_rates(), torch.get_num_threads()
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
        name, tflops = f"this processor, {counted(threads, 'thread')}", max(rates.fp32, rates.bf16) * threads / 1000
        return cls(name, tflops, cls.THREAD_WATTS * threads, memory, utilization=PROCESSOR_UTILIZATION)

    def expected_utilization(self, job: "Job", count: int = 1) -> float:
        """Returns the share of the peak rate that a run on some devices reaches, at most."""
        if self.utilization is not None:
            return self.utilization
        if self.memory_tb_s is None or not self.bf16:
            return UTILIZATION
        return utilization(job.flops, job.gpu_seconds(self.tflops, self.memory_tb_s, count), self.tflops, count)

    def seconds(self, flops: float, *, count: int = 1, used: float) -> float:
        """Returns the time of operations on some devices at a share `used` of their peak rate."""
        return seconds(flops, self.tflops, count=count, used=used)

    def energy_kwh(self, seconds: float, *, count: int = 1, pue: float = 1.0) -> float:
        """Returns the energy of some devices while training. Source: Strubell et al. 2019, equation 1."""
        return energy_kwh(self.LOAD * self.watts * count, seconds / 3600, pue=pue)


@with_config(STRICT)
@dataclass(frozen=True)
class Grid:
    """The electricity of a country: gram of CO2 equivalents per kWh, and the year of the figure."""

    name: str
    g_per_kwh: Positive
    year: int

    def carbon_kg(self, kwh: float) -> float:
        """Returns the CO2 equivalents of electricity."""
        return carbon_kg(kwh, self.g_per_kwh)


@with_config(STRICT)
@dataclass(frozen=True)
class Catalog:
    """All known devices and grids, by key. prices: USD per hour by device, of the month `priced`, from `source`."""

    devices: dict[str, Device] = field(default_factory=dict)
    grids: dict[str, Grid] = field(default_factory=dict)
    prices: dict[str, _Range] = field(default_factory=dict)
    priced: Month | None = None
    source: str = ""

    @classmethod
    def read(cls, path: Path | None = None, prices: Path | None = None) -> "Catalog":
        """Returns Bertie's catalog with the entries of the user's file, which replace those with the same key.

        prices: a dated file whose prices replace all of Bertie's. Raises DataError for a file that is not a catalog (a
        wrong key, a figure that is not above 0, prices without a month). Raises UsageError for the price of an unknown
        device.
        """
        known = _ours()
        if path is not None:
            own = _own(path)
            if own.prices and own.priced is None:
                raise DataError(f"{path} needs the month of its prices: `priced: 2026-11`.")
            known = replace(
                known,
                devices=known.devices | own.devices,
                grids=known.grids | {key.upper(): grid for key, grid in own.grids.items()},
                prices=known.prices | own.prices,
                priced=own.priced or known.priced,
                source=own.source or known.source,
            )
        if prices is not None:
            own = _own(prices)
            if own.priced is None or not own.prices:
                raise DataError(
                    f"{prices} needs the month of its prices and the prices: `priced: 2026-11` and "
                    "`prices: {h100: [2.0, 5.0]}`, lowest and highest USD per hour."
                )
            for key in own.prices:
                known.device(key)
            known = replace(known, prices=own.prices, priced=own.priced, source=own.source or str(prices))
        priced = {key: replace(each, price=known.prices.get(key, each.price)) for key, each in known.devices.items()}
        return replace(known, devices=priced)

    def device(self, key: str) -> Device:
        """Returns a device; "this": the processor of this machine. Raises UsageError for an unknown key."""
        if key == _THIS_MACHINE:
            return _here()
        if key not in self.devices:
            raise UnknownName(f"Unknown device {key!r}. {nearest(key, [*self.devices, _THIS_MACHINE])}")
        return self.devices[key]

    def grid(self, key: str) -> Grid:
        """Returns a grid by its three-letter country code (ISO 3166). Raises UsageError for an unknown one."""
        if key.upper() not in self.grids:
            raise UnknownName(f"Unknown country {key!r}. {nearest(key.upper(), self.grids)}")
        return self.grids[key.upper()]


def find_device(gpu: str) -> Device | None:
    """Returns the device of the catalog whose key is in the name that a driver reports, such as "NVIDIA H200"."""
    plain = gpu.lower().replace(" ", "")
    keys = [key for key in _ours().devices if key in plain]
    return _ours().devices[max(keys, key=len)] if keys else None


@cache
def _here() -> Device:
    return Device.here()


@cache
def _ours() -> Catalog:
    here = Path(__file__).parent
    parts = [read_yaml(here / f"{name}.yaml") for name in ("devices", "prices", "grids")]
    return _parsed({key: value for part in parts for key, value in part.items()}, here)


def _own(path: Path) -> Catalog:
    if not path.is_file():
        raise UsageError(f"{path} does not exist.")
    return _parsed(read_yaml(path), path)


def _parsed(tree: Mapping[str, object], path: Path) -> Catalog:
    try:
        return TypeAdapter(Catalog).validate_python(tree)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(f"{path}: {where}: {first['msg']}. bertie help plan describes the file.") from None
