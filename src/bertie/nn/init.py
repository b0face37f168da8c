"""Initialization of a model. Until then, its modules may be shapes without values."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
import xxhash
from torch import Generator, Tensor, nn
from torch.overrides import TorchFunctionMode

_Stds = Mapping[str, float | tuple[float, ...]]


DRAWS = frozenset({Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_})


class _Undrawn(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if func in DRAWS:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


@contextmanager
def shapes_only() -> Iterator[None]:
    """Context in which modules are made on the meta device: shapes without memory, whose values are set later.

    Torch's modules draw random values when they are made. On the meta device this computes nothing, but the first draw
    imports torch's compiler, which takes longer than all other parts of a small prediction.
    """
    with torch.device("meta"), _Undrawn():
        yield


def initialize(
    module: nn.Module, *, std: float = 0.02, seed: int = 0, only: set[str] | None = None, stds: _Stds | None = None
) -> None:
    """Initializes every parameter of `module` (or those named in `only`), as google-research/bert does.

    Matrices: normal with standard deviation `std` (0.02), truncated at two of them (modeling.py, create_initializer),
    so that the result deviates by 0.88 `std`. Biases 0, norm weights 1. Each parameter draws from a generator of (seed,
    its name): the same seed gives the same encoder, whatever its heads.

    stds: pattern -> the deviation of a normal that is not truncated, or one for each matrix fused in a parameter, for
    families with another initialization; the first pattern found in a name counts.
    """
    for name, parameter in module.named_parameters():
        if only is not None and name not in only:
            continue
        if "bias" in name.rpartition(".")[2]:  # an LSTM's are bias_ih_l0 ...
            nn.init.zeros_(parameter)
        elif parameter.ndim == 1:
            nn.init.ones_(parameter)
        else:
            generator = Generator(parameter.device).manual_seed(xxhash.xxh64_intdigest(f"{seed} {name}".encode()) >> 1)
            own = next((own for pattern, own in (stds or {}).items() if re.search(pattern, name)), None)
            if own is None:
                nn.init.trunc_normal_(parameter, std=std, a=-2 * std, b=2 * std, generator=generator)
                continue
            parts = own if isinstance(own, tuple) else (own,)
            for part, part_std in zip(parameter.chunk(len(parts)), parts, strict=True):
                nn.init.normal_(part, std=part_std, generator=generator)
