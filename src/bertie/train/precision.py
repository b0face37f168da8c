"""Where and in which precision to compute. Master weights and optimizer state are float32 in every case."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

import torch

from bertie.errors import UsageError


def choose_device(name: str = "auto") -> torch.device:
    """The device a name stands for; auto: CUDA, else Apple's, else the CPU. Raises UsageError for one that is not here.

    Under torchrun, `cuda` is this process's own: cuda:LOCAL_RANK.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"There is no device {name!r}. Use auto, cpu, cuda, cuda:1 or mps.") from None
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    here = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if (device.index or 0) >= here.get(device.type, 0):
        raise UsageError(f"Device {name!r} is not in this machine. train.device=auto takes the best that is.")
    return device


def choose_dtype(precision: Literal["auto", "fp32", "bf16"], device: torch.device) -> torch.dtype:
    """The dtype to compute in. auto: bf16 where the hardware multiplies it faster than float32.

    That is asked of the hardware, not measured, so that a resumed run gets the same answer. On a CPU it means AMX (6
    times the float32 rate of matrix products on a 2-core Xeon) or AVX-512 BF16 (2 times).
    """
    if precision != "auto":
        return {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    if device.type == "cuda":
        quick = torch.cuda.is_bf16_supported(including_emulation=False)
    elif device.type == "cpu":
        able = torch.cpu.get_capabilities()
        quick = bool(able.get("amx_bf16") or able.get("avx512_bf16"))
    else:
        quick = False
    return torch.bfloat16 if quick else torch.float32


class Computes(Protocol):
    """A model whose compute precision can be set; its weights stay float32."""

    compute_dtype: torch.dtype | None


@contextmanager
def computing_in(model: Computes, dtype: torch.dtype) -> Iterator[None]:
    """Compute in `dtype` while the block runs."""
    before = model.compute_dtype
    model.compute_dtype = None if dtype == torch.float32 else dtype
    try:
        yield
    finally:
        model.compute_dtype = before
