"""Chooses the engine of a model: the one that is faster on this machine in the requested precision.

No list of processors tells. A small encoder runs once in each engine and precision, and the rates are kept in the
user's cache folder.
"""

import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch

from bertie.console import console
from bertie.errors import UsageError, WrongModel, WrongValue
from bertie.infer.engine import ENGINES
from bertie.infer.rates import EngineRates, load_or_measure_rates, native_is_faster, tell_choice
from bertie.infer.rates import quickest_precision as quickest_of
from bertie.infer.torch_engine import TorchEngine
from bertie.models import machine
from bertie.models.config import EncoderConfig
from bertie.models.encoder import Encoder
from bertie.models.model import TorchModel
from bertie.text.sequences import Sequences

if TYPE_CHECKING:
    from bertie.infer.engine import Engine
    from bertie.infer.native.encoder import NativePrecision

PROBE = EncoderConfig(
    vocab_size=64, hidden_size=256, num_hidden_layers=1, num_attention_heads=4, intermediate_size=1024
)
SEQUENCES, LENGTH, REPEATS = 8, 64, 5  # of the probe
DTYPES: "dict[NativePrecision, torch.dtype]" = {"fp32": torch.float32, "bf16": torch.bfloat16}


def engine_of(model: TorchModel, engine: str | None = None) -> "Engine":
    """Returns the engine for a model, in the precision of its `compute_dtype` or its int8 weights.

    engine: one of ENGINES; None: torch, and the native engine for int8 weights; auto: the faster of these two. The
    native engine takes a copy of the weights, so a model that is being trained needs torch. Where the native library
    cannot be had, torch takes its place, and a warning says so once. Raises UsageError for what is not a model; for a
    model that the engine cannot run; for int8 weights in bfloat16 on a CPU, except in torch.
    """
    if not isinstance(getattr(model, "_orig_mod", model), TorchModel):  # which torch.compile wraps
        raise WrongValue(f"The model is {model!r:.60}; it must be what bertie.load returns.")
    precision = _precision_of(model)
    if engine is not None and engine != "auto":
        return ENGINES[engine](model)
    if engine is None and precision != "int8":
        return TorchEngine(model)
    _check_int8(model)
    from bertie.infer.native_engine import NativeEngine, unsupported

    reason = unsupported(model)
    try:
        if reason is None and precision == "int8":
            return NativeEngine(model, precision)
        if reason is None and native_is_faster(rates(), precision):
            native = NativeEngine(model, precision)
            tell_choice(rates(), precision)
            return native
    except (OSError, ValueError) as error:
        reason = str(error)
        if precision != "int8":
            _warn_once(f"torch computes, which may be slower: there is no native engine ({reason}).")
    if precision == "int8":
        _warn_once(f"int8 weights are computed in float32, which is slower: {reason}.")
    return TorchEngine(model)


def open_native(model: TorchModel) -> "Engine":
    """Returns the native engine of a model. Raises UsageError for one that it cannot run."""
    _check_int8(model)
    from bertie.infer.native_engine import NativeEngine, unsupported

    try:
        if (reason := unsupported(model)) is None:
            return NativeEngine(model, _precision_of(model))
    except (OSError, ValueError) as error:
        reason = str(error)
    raise WrongModel(f"The native engine cannot run this model: {reason}. Pass --engine torch.")


def _precision_of(model: TorchModel) -> "NativePrecision":
    return "int8" if model.int8 else "bf16" if model.compute_dtype == torch.bfloat16 else "fp32"


def _check_int8(model: TorchModel) -> None:
    if model.int8 and model.compute_dtype == torch.bfloat16 and model.device.type == "cpu":
        raise UsageError(
            "The weights are int8, and a CPU computes them in int8. Omit the precision bf16, or choose the engine "
            "torch."
        )


def quickest(model: TorchModel, engine: str | None) -> torch.dtype:
    """float32, or bfloat16 where the engine, or the better of Bertie's two, is clearly faster in it on this machine.

    float32 for int8 weights, which `engine_of` computes in int8, and for an engine of a package."""
    if engine not in (None, "auto", "torch", "native"):
        return torch.float32
    if model.int8 and model.device.type == "cpu" and engine != "torch":
        return torch.float32
    if model.device.type != "cpu" or engine in (None, "torch"):
        return machine.cpu_rates().faster
    try:
        speeds = rates()
    except OSError:
        return machine.cpu_rates().faster
    return DTYPES[quickest_of(speeds)]  # type: ignore[index]


@cache
def rates() -> EngineRates:
    """This machine's, as they are kept, else measured in a second. Raises OSError without the native library."""
    return load_or_measure_rates(_measured)


def _measured() -> EngineRates:
    """Measures CPU time on one thread, which other programs hardly affect; interleaved, the best of each."""
    from bertie.infer.native_engine import NativeEngine

    total = SEQUENCES * LENGTH
    ids = Sequences(np.arange(total) % PROBE.vocab_size, np.zeros(total, np.int64), np.full(SEQUENCES, LENGTH))
    threads, clock = torch.get_num_threads(), time.thread_time
    best: EngineRates = {}
    torch.set_num_threads(1)
    try:
        engines: dict[str, Engine] = {}
        for precision, dtype in DTYPES.items():
            model = TorchModel(Encoder(PROBE), {}).eval()
            model.compute_dtype = None if dtype == torch.float32 else dtype
            engines[f"torch {precision}"] = TorchEngine(model)
            with suppress(ValueError):  # this processor has no products in it
                engines[f"native {precision}"] = NativeEngine(model, precision)
        for _ in range(REPEATS):
            for name, engine in engines.items():
                began = clock()
                engine.run(ids, ("mean",))
                best[name] = max(best.get(name, 0.0), total / max(clock() - began, 1e-9))
    finally:
        torch.set_num_threads(threads)
    return best


@cache
def _warn_once(message: str) -> None:
    console.warn(message)
