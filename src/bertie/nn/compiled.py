"""torch.compile for the parts of layers that know nothing of sequences: their elementwise steps become few kernels.

The parts take rows of tokens, so any batch runs the same code, and all layers share it. Attention is one kernel
already. To compile the whole encoder takes many times longer, and again for other layouts.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from bertie.errors import UsageError
from bertie.nn.layer import Layer
from bertie.nn.rotary import TurnedAttention

PARTS: dict[type[nn.Module], tuple[str, ...]] = {Layer: ("joined", "feed_forward"), TurnedAttention: ("turned",)}


def has_compiler() -> bool:
    """Whether there is a C++ compiler, which torch.compile needs."""
    return any(map(shutil.which, ("g++", "clang++")))


@contextmanager
def compiled_parts(model: nn.Module, **options: Any) -> Iterator[None]:
    """Context in which the parts of all layers run compiled. They are compiled at first use, which takes some seconds.

    options: of torch.compile. Raises UsageError where there is no C++ compiler.
    """
    if not options and not has_compiler():
        raise UsageError(
            "train.compile=true needs a C++ compiler (g++ or clang++). Install one, or omit train.compile."
        )
    parts = [
        (x, name) for x in model.modules() for kind, names in PARTS.items() if isinstance(x, kind) for name in names
    ]
    try:
        for module, name in parts:
            setattr(module, name, torch.compile(getattr(module, name), dynamic=True, **options))
        yield
    finally:
        for module, name in parts:
            vars(module).pop(name, None)
