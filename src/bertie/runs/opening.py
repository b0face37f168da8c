"""The one way to open a model, for Python, the command line and the server, so that all have the same numbers.

A graph of `bertie export` runs in ONNX Runtime. A folder that needs no torch runs in the native engine, where that is
the faster one. torch reads any other folder, and runs it unless the native engine is faster.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bertie.errors import UsageError, model_hint
from bertie.hub import names
from bertie.infer.engine import check_names
from bertie.models.variant import read_public
from bertie.runs.models import adapter_base, model_folder
from bertie.runs.models import load as load_weights

if TYPE_CHECKING:
    from bertie.infer.engine import Engine
    from bertie.models.model import TorchModel
    from bertie.text.tokenizer import Tokenizer


class Opened(NamedTuple):
    """The engine of a model, and its tokenizer; None for a folder without one."""

    engine: "Engine"
    tokenizer: "Tokenizer | None"


def open_engine(
    model: str | Path,
    *,
    device: str = "auto",
    precision: str = "fp32",
    engine: str = "auto",
    threads: int | None = None,
) -> Opened:
    """Opens a model by the name or folder of it, of a run or of a checkpoint, or a graph of `bertie export`.

    Args:
        model: The name, folder or graph.
        device: cpu, cuda, cuda:1, mps or auto, the fastest.
        precision: fp32, bf16 (may change the third digit) or auto, the faster one here.
        engine: torch, native or auto, the faster one here.
        threads: Number of threads of a CPU. None: all cores.

    Raises:
        UsageError: An option is unknown, or impossible for this model.
        DataError: Files are missing or damaged.
    """
    from bertie.infer import onnx_engine
    from bertie.infer.quick import without_torch

    if graph := onnx_engine.graph_of(names.place(model)):
        onnx_engine.check_options(graph, precision, device, engine)
        return Opened(*onnx_engine.opened(graph, threads=threads))
    folder = model_folder(model)
    if quick := without_torch(folder, precision, device, engine):
        native, tokenizer = quick
        return Opened(replace(native, threads=threads) if threads else native, tokenizer)
    import torch

    from bertie.infer.choose import engine_of

    if threads:
        torch.set_num_threads(threads)
    weights = open_model(folder, device=device, precision=precision, engine=engine)
    return Opened(engine_of(weights, check_names(precision, engine)), weights.tokenizer)


def open_model(
    model: str | Path, *, device: str = "auto", precision: str = "fp32", engine: str = "torch"
) -> "TorchModel":
    """Opens a model in torch, for what needs its modules. engine: the one that will run it, which decides `auto`."""
    import torch

    from bertie.infer.choose import quickest
    from bertie.train.precision import choose_device, choose_dtype

    runner = check_names(precision, engine)
    where = choose_device(device)
    weights = load_weights(model).to(where)
    on_cpu = precision == "auto" and where.type == "cpu"
    dtype = quickest(weights, runner) if on_cpu else choose_dtype(precision, where)
    weights.compute_dtype = None if dtype == torch.float32 else dtype
    return weights


def open_adapters(
    base: str | Path,
    adapters: Mapping[str, str | Path],
    *,
    device: str = "auto",
    precision: str = "fp32",
    engine: str = "auto",
    threads: int | None = None,
) -> "dict[str, Engine]":
    """Opens adapters of LoRA on one base, whose weights are in memory once. Arguments as for `open_engine`.

    Raises UsageError for the native engine, which has a copy of its weights, and DataError for another base.
    """
    if check_names(precision, engine) == "native":
        raise UsageError("Several adapters on one base run in torch. Omit the engine, or merge each with its base.")
    import torch

    from bertie.runs.adapters import on_one_base

    if threads:
        torch.set_num_threads(threads)
    folders = {name: Path(folder) for name, folder in adapters.items()}
    return {**on_one_base(Path(base), folders, device=device, precision=precision)}


class ModelByName:
    """How the name of a model becomes its folder, its engine, or its module of torch."""

    adapter_base = staticmethod(adapter_base)
    adapters = staticmethod(open_adapters)
    engine = staticmethod(open_engine)
    find = staticmethod(names.find)
    folder = staticmethod(model_folder)
    hint = staticmethod(model_hint)
    module = staticmethod(load_weights)
    read_public = staticmethod(read_public)
