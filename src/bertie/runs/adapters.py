"""Folders of adapters of LoRA: merged with their base into an ordinary model folder."""

import atexit
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from bertie.errors import DataError
from bertie.infer.torch_engine import TorchEngine
from bertie.infer.traffic import Traffic
from bertie.models import families
from bertie.models.config import EncoderConfig
from bertie.models.files import MODEL_FOLDER, hash_model_folder
from bertie.models.heads import HEADS
from bertie.models.lora import OURS, Adapter
from bertie.models.model import TorchModel
from bertie.models.variant import base_of
from bertie.process import return_memory
from bertie.text.tokenizer import Tokenizer
from bertie.train.precision import choose_device, choose_dtype
from bertie.training_facts import read_training_facts


def merged(folder: Path, find: Callable[[str], Path]) -> Path:
    """Returns a model folder of an adapter and its base, which is deleted when this process ends.

    find: the folder of a model by its name. Raises DataError where its base is not found, or is another one.
    """
    own = folder / OURS
    return _merged(folder, Traffic.of_model(folder).model, own.read_bytes() if own.is_file() else b"", find)


@cache
def _merged(folder: Path, content: str, own: bytes, find: Callable[[str], Path]) -> Path:
    """Does so once for each content of the adapter."""
    place = base_of(folder, find)
    home = Path(tempfile.mkdtemp(prefix="bertie-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    (out := home / MODEL_FOLDER.name).mkdir()
    merge_adapter(place, folder, out)
    (out / Traffic.OF_ADAPTER).write_text(content)  # its traffic is that of the adapter
    (out / Traffic.FILE).unlink(missing_ok=True)
    if (folder / Traffic.FILE).is_file():
        shutil.copyfile(folder / Traffic.FILE, out / Traffic.FILE)
    return out


def merge_adapter(base: Path, folder: Path, out: Path) -> None:
    """Writes the model of an adapter and its base. Raises DataError for another base than that of its hash."""
    adapter, model = opened_base(base, folder)
    adapter.merge_into(model)
    model.tokenizer = Tokenizer.load(base)
    families.save(model, out, training_facts=read_training_facts(folder))


def opened_base(base: Path, folder: Path) -> tuple[Adapter, TorchModel]:
    """Returns an adapter, and its base with its heads and labels. Raises DataError for another base than that of its
    hash."""
    adapter = Adapter.read(folder)
    if adapter.own and adapter.own["base"] != hash_model_folder(base):
        raise DataError(
            f"{folder} is of another base than {base}: its weights have another hash. Pass the model that it names."
        )

    def heads(config: EncoderConfig) -> dict[str, nn.Module]:
        return {name: HEADS[name](config, adapter.outputs) for name in adapter.heads}

    model, _ = families.load(base, heads=heads if adapter.heads else None, fresh_heads=bool(adapter.heads))
    if adapter.own:
        model.labels, model.problem_type = tuple(adapter.own["labels"]), adapter.own["problem_type"]
    elif adapter.heads and not model.labels:
        model.labels = tuple(f"LABEL_{number}" for number in range(adapter.outputs))
    return adapter, model


def on_one_base(
    base: Path, folders: Mapping[str, Path], *, device: str = "auto", precision: str = "fp32"
) -> dict[str, TorchEngine]:
    """Returns the engine of each adapter by name. The weights of the base are in memory once.

    Raises DataError as `merge_adapter`, and UsageError for a device or a precision that there is not.
    """
    return_memory(later=True)  # of the weights of the base that each opens, and of the sums that layers compute with
    where, engines, shared = choose_device(device), dict[str, TorchEngine](), dict[str, Tensor]()
    dtype, tokenizer = choose_dtype(precision, where), Tokenizer.load(base)
    for name, folder in folders.items():
        adapter, model = opened_base(base, folder)
        for key, parameter in model.encoder.named_parameters():
            if key not in shared:
                shared[key] = parameter.data.to(where)
            parameter.data = shared[key]
        adapter.attach(model.to(where))
        model.training_facts, model.tokenizer = read_training_facts(folder), tokenizer
        model.compute_dtype = None if dtype == torch.float32 else dtype
        engines[name] = TorchEngine(model.eval().requires_grad_(False))
    return engines
