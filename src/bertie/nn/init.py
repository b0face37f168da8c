"""One function initializes a model."""

import xxhash
from torch import Generator, nn


def initialize(module: nn.Module, *, std: float = 0.02, seed: int = 0, only: set[str] | None = None) -> None:
    """Give every parameter of `module` (or those named in `only`) its first value, as BERT's release does.

    Matrices: normal with standard deviation `std` (0.02), cut at two of them (modeling.py, create_initializer), so
    that what comes out deviates by 0.88 `std`. Biases 0, norm weights 1. Each parameter draws from a generator of
    (seed, its name): the same seed gives the same encoder, whatever heads stand beside it.
    """
    for name, parameter in module.named_parameters():
        if only is not None and name not in only:
            continue
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif parameter.ndim == 1:
            nn.init.ones_(parameter)
        else:
            generator = Generator(parameter.device).manual_seed(xxhash.xxh64_intdigest(f"{seed} {name}".encode()) >> 1)
            nn.init.trunc_normal_(parameter, std=std, a=-2 * std, b=2 * std, generator=generator)
