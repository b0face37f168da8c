"""Writes a smaller model in the precision of the weights that it was made from."""

import shutil
import tempfile
from pathlib import Path

from safetensors import safe_open

from bertie.models.convert import Precision, convert
from bertie.models.folder import copy_other_files
from bertie.models.model import Model
from bertie.models.variant import CONFIG
from bertie.models.weights import WEIGHTS, weight_files

HALVES: dict[str, Precision] = {"F16": "float16", "BF16": "bfloat16"}  # as safetensors names them


def save(small: Model, folder: Path, source: Path) -> None:
    """Writes a model made from `source`, with the other files of that folder. Quantized weights stay as they are."""
    small.save_pretrained(folder, packed=small.packed)
    copy_other_files(source, folder)
    precision = _precision(source)
    if small.packed or small.variant is None or precision == "float32":
        return
    with tempfile.TemporaryDirectory(prefix="bertie-compress-") as place:
        convert(small.variant, folder, Path(place) / "model", precision=precision)
        for name in (WEIGHTS, CONFIG):
            shutil.copyfile(Path(place) / "model" / name, folder / name)


def _precision(folder: Path) -> Precision:
    """Returns the precision of a folder's weights; float32 where they differ or are quantized."""
    found = set()
    for path in weight_files(folder):
        with safe_open(path, "numpy") as file:
            found |= {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 (not a mapping)
    return HALVES.get(found.pop(), "float32") if len(found) == 1 else "float32"
