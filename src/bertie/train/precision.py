"""Device and precision of the computation. Master weights and optimizer state are always float32."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

from bertie.console import console
from bertie.errors import UnknownName, UsageError
from bertie.models import machine
from bertie.models.model import TorchModel
from bertie.train import rendezvous


def choose_device(name: str = "auto") -> torch.device:
    """Returns the device of a name; auto: CUDA, else Apple's GPU, else the CPU. Raises UsageError for a missing device.

    Under torchrun, `cuda` is cuda:LOCAL_RANK.
    """
    if name == "auto":
        name = next(kind for kind, count in _counts().items() if count)
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise UnknownName(f"Unknown device {name!r}. {_there_is()}") from None
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", rendezvous.local_rank())
    if (device.index or 0) >= _counts().get(device.type, 0):
        built = (
            ""
            if device.type != "cuda" or torch.version.cuda
            else (" This installation of torch supports only the CPU.")
        )
        raise UsageError(f"This machine has no device {name!r}.{built} {_there_is()}")
    return device


def _counts() -> dict[str, int]:
    """Returns the number of devices of each kind in this machine, the fastest kind first."""
    return {"cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available()), "cpu": 1}


def _there_is() -> str:
    here = [f"{kind}:{i}" if i else kind for kind, count in _counts().items() for i in range(count)]
    return f"Choose one of {', '.join(here)}; or auto, which chooses the fastest."


def choose_dtype(precision: str, device: torch.device) -> torch.dtype:
    """Returns the compute dtype. auto: bf16 where the hardware multiplies it faster than float32.

    On a CPU, this is measured once and stored (models/machine.py), so that a resumed run has the same dtype.
    """
    if precision != "auto":
        return {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    if device.type == "cpu":
        return machine.cpu_rates().faster
    quick = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if quick else torch.float32


def dtype_of_checkpoint(name: object, otherwise: torch.dtype) -> torch.dtype:
    """Returns the compute dtype of that name in a checkpoint, or `otherwise` for an unknown name."""
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}.get(str(name), otherwise)


def why(precision: str, dtype: torch.dtype, device: torch.device) -> str:
    """Returns one line about the compute dtype and its reason."""
    chosen = f"Computing in {str(dtype).removeprefix('torch.')}"
    if precision != "auto":
        return f"{chosen}, as set by train.precision={precision}."
    if dtype != choose_dtype("auto", device):
        return f"{chosen}, as when the run started; train.precision=auto would choose otherwise on this machine."
    if device.type == "cpu":
        return f"{chosen}: here {machine.cpu_rates()}."
    able = "multiplies bfloat16 faster than float32" if dtype == torch.bfloat16 else "has no fast bfloat16"
    return f"{chosen}: {device.type} {able}."


@cache
def tell_precision(line: str) -> None:
    """Prints a line about the compute dtype, once a process: a table is made of many runs."""
    console.say(line)


@contextmanager
def computing_in(model: TorchModel, dtype: torch.dtype) -> Iterator[None]:
    """Context in which a model computes in `dtype`."""
    before = model.compute_dtype
    model.compute_dtype = None if dtype == torch.float32 else dtype
    try:
        yield
    finally:
        model.compute_dtype = before
