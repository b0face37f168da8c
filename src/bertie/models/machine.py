"""The speed of matrix products in each dtype on this machine, measured once.

It cannot be known from the processor's name. bfloat16 is six times as fast as float32 with AMX, and twice as fast with
a good AVX-512 BF16. It is half as fast with a poor one, and a hundred times slower where it is emulated.
"""

import os
import platform
import time
from dataclasses import asdict, dataclass
from functools import cache
from math import isfinite
from pathlib import Path

import torch
import torch.nn.functional as F

from bertie.errors import BertieError
from bertie.files import read_json, user_cache, write_json

_PRODUCT_SIZE = 256  # of the product: it fits into a core's second cache, so that a busy neighbor's memory is no matter
REPEATS, ENOUGH_S = 20, 0.1  # the best of so many, or of as many as fit into the time where bfloat16 is emulated
_DTYPES = torch.float32, torch.bfloat16
_WORTHWHILE = 1.25  # times as fast: below, the casts around a product cost what it gains
LIMIT_VARIABLES = (
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_CBWR",
    "ATEN_CPU_CAPABILITY",
)


@dataclass(frozen=True)
class ProductRates:
    """Billions of floating-point operations per second of one small matrix product in each dtype."""

    fp32: float
    bf16: float

    @property
    def faster(self) -> torch.dtype:
        """The faster dtype: bfloat16 where it is clearly faster, else float32."""
        return torch.bfloat16 if self.bf16 >= _WORTHWHILE * self.fp32 else torch.float32

    def __str__(self) -> str:
        return f"a bfloat16 product runs at {self.bf16:,.3g} GFLOP/s, a float32 product at {self.fp32:,.3g}"


@cache
def cpu_rates() -> ProductRates:
    """Returns this processor's rates: from the user's cache folder, or measured in some milliseconds and stored
    there."""
    path, name = user_cache() / "processors.json", processor_facts()
    known = _known(path)
    if name in known:
        return known[name]
    rates = _measured()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {key: asdict(value) for key, value in {**known, name: rates}.items()})
    except (OSError, BertieError):  # a home that cannot be written: it is measured again next time
        pass
    return rates


def processor_facts() -> str:
    """Returns what the rates depend on: the processor, torch, and environment variables of both."""
    limits = [f"{name}={os.environ[name]}" for name in LIMIT_VARIABLES if name in os.environ]
    return ", ".join([_model(), torch.backends.cpu.get_cpu_capability(), f"torch {torch.__version__}", *limits])


def _model() -> str:
    """Returns the processor's name and instruction sets, which a virtual machine may hide."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return platform.processor() or platform.machine()
    facts: dict[str, str] = {}
    for name, colon, value in (line.partition(":") for line in lines):
        if colon:
            facts.setdefault(name.strip(), value.strip())
    flags = {flag for flag in facts.get("flags", "").split() if flag.startswith(("avx", "amx"))}
    return " ".join([facts.get("model name", platform.machine()), *sorted(flags)])


def _known(path: Path) -> dict[str, ProductRates]:
    """Returns earlier measurements, or nothing where the file is missing or damaged."""
    try:
        rates = {name: ProductRates(float(row["fp32"]), float(row["bf16"])) for name, row in read_json(path).items()}
    except (BertieError, OSError, AttributeError, KeyError, TypeError, ValueError):
        return {}
    return {name: row for name, row in rates.items() if min(row.fp32, row.bf16) > 0 and isfinite(row.fp32 + row.bf16)}


@torch.no_grad()
def _measured() -> ProductRates:
    """Measures CPU time on one thread, alternating both dtypes, so that other processes have little influence."""
    exact = time.get_clock_info("thread_time").resolution < 1e-5  # not on every system
    clock = time.thread_time if exact else time.perf_counter
    pairs = [
        (torch.ones(_PRODUCT_SIZE, _PRODUCT_SIZE, dtype=dtype), torch.ones(_PRODUCT_SIZE, _PRODUCT_SIZE, dtype=dtype))
        for dtype in _DTYPES
    ]
    best, threads, began = [float("inf")] * len(_DTYPES), torch.get_num_threads(), clock()
    torch.set_num_threads(1)
    try:
        for x, weight in pairs:
            F.linear(x, weight)  # the first one makes the kernel
        for _ in range(REPEATS):
            for i, (x, weight) in enumerate(pairs):
                start = clock()
                F.linear(x, weight)
                best[i] = min(best[i], clock() - start)
            if clock() - began > ENOUGH_S:
                break
    finally:
        torch.set_num_threads(threads)
    fp32, bf16 = (2e-9 * _PRODUCT_SIZE**3 / max(seconds, 1e-9) for seconds in best)
    return ProductRates(fp32, bf16)
