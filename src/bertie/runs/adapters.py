"""Folders of adapters of LoRA: merged with their base into an ordinary model folder."""

import atexit
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from torch import nn

from bertie import families
from bertie.errors import DataError
from bertie.files import read_json
from bertie.models.beside import ADAPTER
from bertie.models.config import EncoderConfig
from bertie.models.folder import MODEL_FOLDER, fingerprint
from bertie.models.heads import HEADS
from bertie.models.lora import Adapter
from bertie.models.variant import CONFIG
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import read_training_facts


@cache
def merged(folder: Path, config: bytes, find: Callable[[str], Path]) -> Path:
    """Returns a model folder of an adapter and its base, which is deleted when this process ends.

    config: identifies its content; find: the folder of a model by its name. Raises DataError where its base is not
    found, or is another one.
    """
    public = read_json(folder / ADAPTER)
    base = str(public.get("base_model_name_or_path") or "") if isinstance(public, dict) else ""
    place = find(base) if base else Path()
    if not base or not (place / CONFIG).is_file():
        raise DataError(
            f"{folder} is an adapter of {base or 'a model that it does not name'!r}, which is not here. Pass its base: "
            f"bertie convert BASE --adapter {folder} -o NEW."
        )
    home = Path(tempfile.mkdtemp(prefix="bertie-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    (out := home / MODEL_FOLDER.name).mkdir()
    merge_adapter(place, folder, out)
    return out


def merge_adapter(base: Path, folder: Path, out: Path) -> None:
    """Writes the model of an adapter and its base. Raises DataError for another base than that of its hash."""
    adapter = Adapter.read(folder)
    if adapter.own and adapter.own["base"] != fingerprint(base):
        raise DataError(
            f"{folder} is of another base than {base}: its weights have another hash. Pass the model that it names."
        )

    def heads(config: EncoderConfig) -> dict[str, nn.Module]:
        return {name: HEADS[name](config, adapter.outputs) for name in adapter.heads}

    model, _ = families.load(base, heads=heads if adapter.heads else None, fresh_heads=bool(adapter.heads))
    adapter.merge_into(model)
    if adapter.own:
        model.labels, model.problem_type = tuple(adapter.own["labels"]), adapter.own["problem_type"]
    elif adapter.heads and not model.labels:
        model.labels = tuple(f"LABEL_{number}" for number in range(adapter.outputs))
    model.tokenizer = Tokenizer.load(base)
    families.save_model(model, out, training_facts=read_training_facts(folder))
