"""One function initializes a model; until then its modules may be shapes without values."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import xxhash
from torch import Generator, Tensor, nn
from torch.overrides import TorchFunctionMode

Stds = Mapping[str, float | tuple[float, ...]]


DRAWS = frozenset({Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_})


class _Undrawn(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in DRAWS:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


@contextmanager
def shapes_only() -> Iterator[None]:
    """Make modules on the meta device: shapes without memory, whose values are set later.

    Torch's modules draw random values when they are made. On the meta device that computes nothing, yet the first draw
    imports torch's compiler, which takes longer than all else that a small prediction does.
    """
    with torch.device("meta"), _Undrawn():
        yield


def initialize(
    module: nn.Module, *, std: float = 0.02, seed: int = 0, only: set[str] | None = None, stds: Stds | None = None
) -> None:
    """Give every parameter of `module` (or those named in `only`) its first value, as BERT's release does.

    Matrices: normal with standard deviation `std` (0.02), cut at two of them (modeling.py, create_initializer), so
    that what comes out deviates by 0.88 `std`. Biases 0, norm weights 1. Each parameter draws from a generator of
    (seed, its name): the same seed gives the same encoder, whatever heads stand beside it.

    stds: pattern -> the deviation of a normal that is not cut, or one for each matrix fused in a parameter, where a
    family was published with other first values; the first pattern found in a name counts.
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
