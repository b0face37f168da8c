"""Models in torch: opened from a folder, and written like the one that they were made of."""

from pathlib import Path

import torch

from bertie.console import console
from bertie.errors import arguments
from bertie.infer.choose import engine_of, quickest
from bertie.infer.engine import Engine, check_names
from bertie.infer.native_engine import NativeStates, unsupported
from bertie.models import families
from bertie.models.model import TorchModel
from bertie.models.saving import check_vocabulary
from bertie.models.sentence import read_sentence
from bertie.models.seq2seq import writes
from bertie.models.variant import check_generation
from bertie.runs.models import model_folder
from bertie.text.formats import TOKENIZER_FILES
from bertie.text.tokenizer import Tokenizer
from bertie.train.precision import choose_device, choose_dtype


def open_teacher(folder: str, *, states_only: bool = False, device: torch.device) -> TorchModel:
    """Opens a model by its name or folder.

    states_only: with its tokenizer. On a CPU, the native library then runs the encoder: 1.3 times as fast as torch in
    float32, 2.5 times with int8 weights (benchmarks/log/pre-training-results.md).
    """
    path = model_folder(folder)
    model, _ = families.load(path)
    if not states_only:
        return model
    model.tokenizer = Tokenizer.load(path)
    if device.type == "cpu" and unsupported(model) is None:
        try:
            model.encoder = NativeStates(model)
        except (OSError, ValueError):  # the library is not available here
            return model
    return model


@arguments()
def load_model(folder: str | Path) -> TorchModel:
    """Loads a model for inference, on the CPU: in evaluation mode, with `.tokenizer` and `.labels` set.

    folder: as of `bertie.load`. Raises DataError where files are missing or damaged, or where vocabulary and weights
    belong to different models.
    """
    folder = model_folder(folder)
    model, report = families.load(folder)
    if report.fresh:
        console.warn(f"{folder}: {report}")
    if writes(model):
        check_generation(Path(folder), model.public)
    model.sentence = read_sentence(Path(folder), model.public)
    if any((Path(folder) / name).is_file() for name in TOKENIZER_FILES):
        tokenizer = Tokenizer.load(folder)
        check_vocabulary(tokenizer, model.config, Path(folder))
        model.tokenizer = tokenizer
    return model


def open_model(
    model: str | Path, *, device: str = "auto", precision: str = "fp32", engine: str = "torch"
) -> TorchModel:
    """Opens a model in torch, for what needs its modules. engine: the one that will run it, which decides `auto`."""

    runner = check_names(precision, engine)
    where = choose_device(device)
    weights = load_model(model).to(where)
    on_cpu = precision == "auto" and where.type == "cpu"
    dtype = quickest(weights, runner) if on_cpu else choose_dtype(precision, where)
    weights.compute_dtype = None if dtype == torch.float32 else dtype
    return weights


def open_in_torch(
    folder: Path, *, device: str, precision: str, engine: str, threads: int | None
) -> tuple[Engine, Tokenizer | None]:
    """Opens a model folder by way of torch: the engine that runs it, and its tokenizer. Arguments as `open_engine`."""
    if threads:
        torch.set_num_threads(threads)
    model = open_model(folder, device=device, precision=precision, engine=engine)
    return engine_of(model, check_names(precision, engine)), model.tokenizer
