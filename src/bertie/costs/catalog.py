"""Devices, their prices and power grids: devices.yaml, prices.yaml and grids.yaml, and files of the user's own."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, with_config
from pydantic_core import PydanticCustomError

from bertie.errors import DataError, UsageError, nearest
from bertie.settings import read_yaml

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _ascending(prices: tuple[float, float]) -> tuple[float, float]:
    if prices[0] > prices[1]:
        raise PydanticCustomError("prices", f"The lowest price comes first: [{prices[1]:g}, {prices[0]:g}]")
    return prices


Range = Annotated[tuple[Positive, Positive], AfterValidator(_ascending)]
Month = Annotated[str, BeforeValidator(str), Field(pattern=r"^\d{4}-\d{2}(-\d{2})?$")]
STRICT = ConfigDict(extra="forbid")


@with_config(STRICT)
@dataclass(frozen=True)
class Device:
    """A processor. tflops: dense products in 16 bit, TFLOP/s; watts: power; price: USD per hour, lowest and highest."""

    name: str
    tflops: Positive
    watts: Positive
    memory_gb: Positive
    memory_tb_s: Positive | None = None
    price: Range | None = None
    bf16: bool = True


@with_config(STRICT)
@dataclass(frozen=True)
class Grid:
    """The electricity of a country: gram of CO2 equivalents per kWh, and the year of the figure."""

    name: str
    g_per_kwh: Positive
    year: int


@with_config(STRICT)
@dataclass(frozen=True)
class Catalog:
    """All known devices and grids, by key. prices: USD per hour by device, of the month `priced`, from `source`."""

    devices: dict[str, Device] = field(default_factory=dict)
    grids: dict[str, Grid] = field(default_factory=dict)
    prices: dict[str, Range] = field(default_factory=dict)
    priced: Month | None = None
    source: str = ""

    @staticmethod
    def read(path: Path | None = None, prices: Path | None = None) -> "Catalog":
        """Returns Bertie's catalog with the entries of the user's file. See `read`."""
        return read(path, prices)

    def device(self, key: str, *others: str) -> Device:
        """Returns a device. Raises UsageError for an unknown key, with the choices. others: further ones."""
        if key not in self.devices:
            raise UsageError(f"Unknown device {key!r}. {nearest(key, [*self.devices, *others])}")
        return self.devices[key]

    def grid(self, key: str) -> Grid:
        """Returns a grid by its three-letter country code (ISO 3166). Raises UsageError for an unknown one."""
        if key.upper() not in self.grids:
            raise UsageError(f"Unknown country {key!r}. {nearest(key.upper(), self.grids)}")
        return self.grids[key.upper()]


def named(gpu: str) -> Device | None:
    """Returns the device of the catalog whose key is in the name that a driver reports, such as "NVIDIA H200"."""
    plain = gpu.lower().replace(" ", "")
    found = [key for key in _ours().devices if key in plain]
    return _ours().devices[max(found, key=len)] if found else None


def read(path: Path | None = None, prices: Path | None = None) -> Catalog:
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
        raise DataError(f"{path}: {where}: {first['msg']}. docs/plan.md describes the file.") from None
