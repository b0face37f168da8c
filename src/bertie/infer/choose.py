"""Chooses the engine of a model."""

from functools import cache
from typing import TYPE_CHECKING

from bertie.console import warn
from bertie.infer.torch_engine import TorchEngine

if TYPE_CHECKING:
    from bertie.infer.engine import Engine
    from bertie.models.model import Model


def engine_of(model: "Model") -> "Engine":
    """Returns the engine for a model: the native one for int8 weights on a CPU, and torch for all others.

    Without the native library, int8 weights are computed in torch's float32, with one warning.
    """
    if model.int8 and model.device.type == "cpu":
        from bertie.infer.native_engine import NativeEngine

        try:
            return NativeEngine(model, "int8")
        except (OSError, ValueError) as error:
            _warn_once(str(error))
    return TorchEngine(model)


@cache
def _warn_once(reason: str) -> None:
    warn(f"int8 weights are computed in float32, which is slower: {reason}.")
