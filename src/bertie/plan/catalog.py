"""Devices and power grids with their figures: devices.yaml and grids.yaml, and a file of the user's own."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config

from bertie.errors import DataError, UsageError, nearest
from bertie.settings import read_yaml

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
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
    price: tuple[Positive, Positive] | None = None
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
    """All known devices and grids, by key. priced: month of the prices."""

    devices: dict[str, Device] = field(default_factory=dict)
    grids: dict[str, Grid] = field(default_factory=dict)
    priced: str = ""

    def device(self, key: str) -> Device:
        """Returns a device. Raises UsageError for an unknown key."""
        if key not in self.devices:
            raise UsageError(f"Unknown device {key!r}. {nearest(key, self.devices)}")
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


def read(path: Path | None = None) -> Catalog:
    """Returns Bertie's catalog with the entries of the user's file, which replace those with the same key.

    Raises DataError for a file that is not a catalog: a wrong key, or a figure that is not above 0.
    """
    own = Catalog() if path is None else _parsed(read_yaml(path), path)
    ours = _ours()
    return replace(
        ours, devices=ours.devices | own.devices, grids=ours.grids | own.grids, priced=own.priced or ours.priced
    )


@cache
def _ours() -> Catalog:
    here = Path(__file__).parent
    return _parsed({**read_yaml(here / "devices.yaml"), **read_yaml(here / "grids.yaml")}, here)


def _parsed(tree: Mapping[str, Any], path: Path) -> Catalog:
    try:
        return TypeAdapter(Catalog).validate_python(tree)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(f"{path}: {where}: {first['msg']}. docs/plan.md describes the file.") from None
