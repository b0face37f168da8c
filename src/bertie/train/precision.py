"""Where and in which precision to compute. Master weights and optimizer state are float32 in every case."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import torch

from bertie.errors import UsageError
from bertie.nn import machine
from bertie.train import rendezvous


def choose_device(name: str = "auto") -> torch.device:
    """The device a name stands for; auto: CUDA, else Apple's, else the CPU. Raises UsageError for one that is not here.

    Under torchrun, `cuda` is this process's own: cuda:LOCAL_RANK.
    """
    if name == "auto":
        name = next(kind for kind, count in _counts().items() if count)
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"Unknown device {name!r}. {_there_is()}") from None
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
    """How many devices of each kind this machine has, the best kind first."""
    return {"cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available()), "cpu": 1}


def _there_is() -> str:
    here = [f"{kind}:{i}" if i else kind for kind, count in _counts().items() for i in range(count)]
    return f"Choose one of {', '.join(here)}; or auto, which chooses the fastest."


def choose_dtype(precision: str, device: torch.device) -> torch.dtype:
    """The dtype to compute in. auto: bf16 where the hardware multiplies it faster than float32.

    On a CPU it is measured once and kept (nn/machine.py), so that a resumed run gets the same answer.
    """
    if precision != "auto":
        return {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    if device.type == "cpu":
        return machine.cpu_rates().quicker
    quick = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if quick else torch.float32


def named(name: object, otherwise: torch.dtype) -> torch.dtype:
    """The compute dtype of that name, which a checkpoint holds; `otherwise` for what is none."""
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}.get(str(name), otherwise)


def why(precision: str, dtype: torch.dtype, device: torch.device) -> str:
    """One line: in what is computed, and for what reason."""
    chosen = f"Computing in {str(dtype).removeprefix('torch.')}"
    if precision != "auto":
        return f"{chosen}, as set by train.precision={precision}."
    if dtype != choose_dtype("auto", device):
        return f"{chosen}, as when the run started; train.precision=auto would choose otherwise on this machine."
    if device.type == "cpu":
        return f"{chosen}: here {machine.cpu_rates()}."
    able = "multiplies bfloat16 faster than float32" if dtype == torch.bfloat16 else "has no fast bfloat16"
    return f"{chosen}: {device.type} {able}."


class HasComputeDtype(Protocol):
    """A model whose compute precision can be set; its weights stay float32."""

    compute_dtype: torch.dtype | None


@contextmanager
def computing_in(model: HasComputeDtype, dtype: torch.dtype) -> Iterator[None]:
    """Compute in `dtype` while the block runs."""
    before = model.compute_dtype
    model.compute_dtype = None if dtype == torch.float32 else dtype
    try:
        yield
    finally:
        model.compute_dtype = before
