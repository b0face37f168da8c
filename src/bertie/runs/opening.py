"""The one way to open a model, for Python, the command line and the server, so that all have the same numbers.

A graph of `bertie export` runs in ONNX Runtime. A folder that needs no torch runs in the native engine, where that is
the faster one. torch reads any other folder, and runs it unless the native engine is faster, or another is chosen.
"""

import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bertie import checksums
from bertie.errors import BertieError, MissingFile, UsageError, model_hint
from bertie.folders import check_other
from bertie.infer import onnx_engine, rates
from bertie.infer.engine import PRECISIONS, check_names
from bertie.infer.native.folder import FolderEngine, open_native_engine
from bertie.models import names
from bertie.models.families import VARIANTS
from bertie.models.files import copy_other_files, hash_model_folder
from bertie.models.int8 import INT8
from bertie.models.variant import method_of, read_public
from bertie.process import return_memory
from bertie.runs.models import adapter_base, model_folder
from bertie.text.formats import TOKENIZER_FILES
from bertie.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bertie.infer.engine import Engine
    from bertie.models.model import TorchModel
    from bertie.text.tokenizer import Tokenizer


def without_torch(folder: Path, precision: str, device: str, engine: str) -> tuple[FolderEngine, Tokenizer] | None:
    """A model folder's engine and tokenizer, or None: torch is asked for, is faster, or opens the folder alone.

    Weights that are not int8 need rates that an earlier command has measured. Torch says what is wrong with a folder.
    """
    if device not in ("auto", "cpu") or (device == "auto" and _has_gpu()):
        return None
    if engine not in ("auto", "native") or precision not in PRECISIONS:
        return None
    try:
        int8 = method_of(read_public(folder)) == INT8
        if int8 and precision == "bf16":  # torch's way refuses it
            return None
        chosen = "fp32" if int8 else _precision(precision, engine)
        if chosen is None or not any((folder / name).is_file() for name in TOKENIZER_FILES):
            return None
        native = open_native_engine(folder, "bf16" if chosen == "bf16" else "fp32", VARIANTS)
        if native is None:
            return None
        return_memory()  # of the weights as they were read
        tokenizer = Tokenizer.load(folder)
    except BertieError:
        return None
    if not native.config.vocab_size - 128 < tokenizer.vocab_size <= native.config.vocab_size:
        return None
    if engine == "auto" and not int8 and (known := rates.read_stored_rates()):
        rates.tell_choice(known, chosen)
    return native, tokenizer


def _precision(precision: str, engine: str) -> str | None:
    """The precision to compute in; None where torch is faster in it, or nothing is known yet."""
    if engine == "native" and precision in ("fp32", "bf16"):
        return precision
    known = rates.read_stored_rates()
    if precision not in ("fp32", "bf16", "auto") or known is None:
        return None
    chosen = rates.quickest_precision(known) if precision == "auto" else precision
    return chosen if engine == "native" or rates.native_is_faster(known, chosen) else None


def _has_gpu() -> bool:
    return sys.platform == "darwin" or any(Path("/dev").glob("nvidia[0-9]*"))


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
        engine: torch, native, that of a package, or auto, the faster of the first two here.
        threads: Number of threads of a CPU. None: all cores.

    Raises:
        UsageError: An option is unknown, or impossible for this model.
        DataError: Files are missing or damaged.
    """
    if graph := onnx_engine.graph_of(names.place(model)):
        onnx_engine.check_options(graph, precision, device, engine)
        return Opened(*onnx_engine.open_onnx_engine(graph, threads=threads))
    folder = model_folder(model)
    if quick := without_torch(folder, precision, device, engine):
        native, tokenizer = quick
        return Opened(native.with_threads(threads) if threads else native, tokenizer)
    from bertie.runs.weights import open_in_torch

    return Opened(*open_in_torch(folder, device=device, precision=precision, engine=engine, threads=threads))


class ModelFolder:
    """The folder of a model, of a run or of a checkpoint, by its name or path."""

    def __init__(self, name: str | Path) -> None:
        self.name = name

    @cached_property
    def path(self) -> Path:
        """The folder; an unknown name stays itself."""
        return model_folder(self.name)

    @property
    def adapter_base(self) -> Path | None:
        """The folder of the base of an adapter alone; None for other folders."""
        return adapter_base(self.name)

    def open_adapters(
        self,
        adapters: Mapping[str, str | Path],
        *,
        device: str = "auto",
        precision: str = "fp32",
        engine: str = "auto",
        threads: int | None = None,
    ) -> "dict[str, Engine]":
        """Opens adapters of LoRA on this base, whose weights are in memory once. Arguments as for `open_engine`.

        Raises UsageError for the native engine, which has a copy of its weights, and DataError for another base.
        """
        if check_names(precision, engine) not in ("auto", "torch"):
            raise UsageError("Several adapters on one base run in torch. Omit the engine, or merge each with its base.")
        import torch

        from bertie.runs.adapters import on_one_base

        if threads:
            torch.set_num_threads(threads)
        folders = {name: Path(folder) for name, folder in adapters.items()}
        return {**on_one_base(Path(self.name), folders, device=device, precision=precision)}

    def open_engine(
        self,
        *,
        device: str = "auto",
        precision: str = "fp32",
        engine: str = "auto",
        threads: int | None = None,
    ) -> "Engine":
        """Opens what runs the model. See `open_engine`."""
        return open_engine(self.name, device=device, precision=precision, engine=engine, threads=threads).engine

    @property
    def graph(self) -> Path | None:
        """The graph of an exported folder; None for a model in torch."""
        return onnx_engine.graph_of(self.path)

    @property
    def public(self) -> Mapping[str, object]:
        """Its config.json. Raises DataError where it is missing or damaged."""
        return read_public(self.path)

    @property
    def files(self) -> list[str]:
        """Its files, also of folders inside, with slashes: all but hidden files and its own checksums.json."""
        names = [path.relative_to(self.path) for path in self.path.rglob("*") if path.is_file()]
        shown = [name.as_posix() for name in names if not any(part.startswith(".") for part in name.parts)]
        return sorted({*shown} - {checksums.CHECKSUMS})

    @property
    def identity(self) -> str:
        """A hash of the files that decide the model's answers: all but its card and checksums."""
        return checksums.identity(self.path)

    @property
    def fingerprint(self) -> str:
        """A hash of the weights and the config. Raises DataError where there are none."""
        return hash_model_folder(self.path)

    def damage(self) -> list[str]:
        """Returns a message for each file, but the card, that is not as checksums.json lists it; none without one."""
        if not (self.path / checksums.CHECKSUMS).exists():
            return []
        return [message for message in checksums.check_files(self.path).damage if checksums.CARD not in message]

    def check_engine(self, precision: str, engine: str) -> None:
        """Raises UsageError for an unknown precision or engine."""
        check_names(precision, engine)

    def check_exists(self) -> None:
        """Raises DataError for a path that does not exist, with how models are found by name."""
        if not names.place(self.name).exists():
            raise MissingFile(f"{self.name} does not exist. Pass the folder of a model.{model_hint(self.name)}")

    def check_output(self, out: Path) -> None:
        """Raises UsageError where what is made of the model would replace its folder."""
        check_other(out, self.path)

    def load(self, *, trainable: bool = False) -> "TorchModel":
        """Returns the model in torch. trainable: raises UsageError for quantized weights, which cannot be trained."""
        from bertie.runs.weights import load_model

        model = load_model(self.path)
        if trainable:
            model.check_trainable(self.path)
        return model

    def write_like(self, model: "TorchModel", folder: Path) -> None:
        """Writes a model that was made of this one, with the other files of its folder."""
        from bertie.models.convert import save_like

        save_like(model, folder, self.path)

    def copy_modules(self, folder: Path) -> None:
        """Copies the files of sentence-transformers: the list of modules, and the settings and weights of each."""
        copy_other_files(self.path, folder)
