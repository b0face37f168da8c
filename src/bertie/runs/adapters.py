"""Folders of adapters of LoRA: merged with their base into an ordinary model folder."""

import atexit
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from bertie import families
from bertie.errors import DataError
from bertie.models.beside import base_of
from bertie.models.config import EncoderConfig
from bertie.models.folder import MODEL_FOLDER, fingerprint
from bertie.models.heads import HEADS
from bertie.models.lora import Adapter
from bertie.models.model import TorchModel
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import read_training_facts


@cache
def merged(folder: Path, config: bytes, find: Callable[[str], Path]) -> Path:
    """Returns a model folder of an adapter and its base, which is deleted when this process ends.

    config: identifies its content; find: the folder of a model by its name. Raises DataError where its base is not
    found, or is another one.
    """
    place = base_of(folder, find)
    home = Path(tempfile.mkdtemp(prefix="bertie-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    (out := home / MODEL_FOLDER.name).mkdir()
    merge_adapter(place, folder, out)
    return out


def merge_adapter(base: Path, folder: Path, out: Path) -> None:
    """Writes the model of an adapter and its base. Raises DataError for another base than that of its hash."""
    adapter, model = opened_base(base, folder)
    adapter.merge_into(model)
    families.save(model, out, training_facts=read_training_facts(folder))


def opened_base(base: Path, folder: Path) -> tuple[Adapter, TorchModel]:
    """Returns an adapter, and its base with its heads and labels. Raises DataError for another base than that of its
    hash."""
    adapter = Adapter.read(folder)
    if adapter.own and adapter.own["base"] != fingerprint(base):
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
    model.tokenizer = Tokenizer.load(base)
    return adapter, model


def on_one_base(base: Path, folders: Mapping[str, Path], device: torch.device) -> dict[str, TorchModel]:
    """Returns a model for each adapter by name, on a device. The weights of the base are in memory once.

    Raises DataError as `merge_adapter`.
    """
    models, shared = dict[str, TorchModel](), dict[str, Tensor]()
    for name, folder in folders.items():
        adapter, model = opened_base(base, folder)
        for key, parameter in model.encoder.named_parameters():
            if key not in shared:
                shared[key] = parameter.data.to(device)
            parameter.data = shared[key]
        model.to(device)
        adapter.attach(model)
        model.training_facts = read_training_facts(folder)
        models[name] = model.eval().requires_grad_(False)
    return models
