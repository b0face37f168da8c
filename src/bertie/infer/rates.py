"""The rates of this machine's engines, kept in the user's cache folder. Imports no torch; choose.py measures."""

import os
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from math import inf
from pathlib import Path

import xxhash

from bertie.console import console
from bertie.errors import BertieError
from bertie.files import read_json, user_cache, write_json
from bertie.infer.native.library import features, hash_native_sources, name_target

EngineRates = dict[str, float]
"""Tokens a second of a small encoder: torch fp32, torch bf16, native fp32 and, where there is one, native bf16."""
_WORTHWHILE = 1.25  # times as fast: less is not worth the digits
_LIMIT_PREFIXES = ("ONEDNN_", "DNNL_", "MKL_", "ATEN_")
"""What the names of variables begin with that switch off instructions of the processor."""


def read_stored_rates() -> EngineRates | None:
    """Returns the stored rates of this machine; None before the first measurement."""
    return _read().get(_machine())


def load_or_measure_rates(measure: Callable[[], EngineRates]) -> EngineRates:
    """Returns the stored rates. If there are none, calls `measure` and stores the result."""
    rates = _read()
    name = _machine()
    if name not in rates:
        rates[name] = measure()
        with suppress(OSError, BertieError):  # a home that cannot be written: it is measured again next time
            _path().parent.mkdir(parents=True, exist_ok=True)
            write_json(_path(), rates)
    return rates[name]


def quickest_precision(rates: EngineRates) -> str:
    """bf16 where the better engine is clearly faster in it, else fp32."""
    best = {kind: max(rate for name, rate in rates.items() if name.endswith(kind)) for kind in ("fp32", "bf16")}
    return "bf16" if best["bf16"] >= _WORTHWHILE * best["fp32"] else "fp32"


def native_is_faster(rates: EngineRates, precision: str) -> bool:
    """Returns whether the native engine is at least as fast as torch."""
    return rates.get(f"native {precision}", 0.0) >= rates[f"torch {precision}"]


def tell_choice(rates: EngineRates, precision: str) -> None:
    """Prints that the native engine was chosen, and why; with --verbose, since it changes no answer."""
    times = rates[f"native {precision}"] / rates[f"torch {precision}"]
    console.say(
        f"Computing in {precision} with the native engine ({name_target()}): {times:.1f} times as fast as torch here.",
        level=1,
    )


def _path() -> Path:
    return user_cache() / "engines.json"


def _machine() -> str:
    """Returns what the rates depend on: the processor's instructions, both engines, and settings of the environment."""
    limits = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith(_LIMIT_PREFIXES))
    digest = xxhash.xxh3_64_hexdigest(" ".join(sorted(features())).encode())
    return ", ".join([digest, f"torch {version('torch')}", f"native {name_target()} {hash_native_sources()}", *limits])


def _read() -> dict[str, EngineRates]:
    """Returns the stored content; nothing if the file is missing or damaged."""
    try:
        rows = {name: {key: float(rate) for key, rate in row.items()} for name, row in read_json(_path()).items()}
    except (BertieError, OSError, AttributeError, TypeError, ValueError):
        return {}
    whole = {"torch fp32", "torch bf16", "native fp32"}
    return {name: row for name, row in rows.items() if whole <= row.keys() and all(0 < x < inf for x in row.values())}
