"""Rewrites a model folder: current names, another precision, one file or shards. Everything else is unchanged.

Weights are processed one at a time, so a folder may be larger than memory. A pickle is opened in a separate process
(models/unpickle.py), and only on request.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Literal, get_args

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from bertie.checksums import CHECKSUMS
from bertie.console import console
from bertie.errors import DataError, UnknownName, UsageError, nearest
from bertie.files import (
    LOCK,
    JsonObject,
    atomic_write,
    check_readable,
    files_in,
    is_leftover,
    read_json,
    some_of,
    write_json,
)
from bertie.folders import check_other, made_once
from bertie.models.files import (
    FOREIGN,
    MODEL_FOLDER,
    WEIGHTS,
    WEIGHTS_INDEX,
    copy_other_files,
    has_weights,
    weight_files,
)
from bertie.models.model import TorchModel
from bertie.models.sentence import check_modules, module_folders
from bertie.models.variant import CONFIG, Variant, check_generation, method_of, read_public
from bertie.models.weights import WeightsFolder, decoder_biases

FolderPrecision = Literal["float32", "float16", "bfloat16"]
PICKLE, PICKLE_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
UNPICKLE_LIMIT_S = 3600
WIDTHS = ("embedding_dimension", "word_embedding_dimension")  # of a pooling of sentence-transformers 6, and of older
_DENSE_INPUTS = "in_features"  # of a Dense module
HALVES: dict[str, FolderPrecision] = {"F16": "float16", "BF16": "bfloat16"}  # as safetensors names them


@dataclass(frozen=True)
class Converted:
    """The result: tensors, bytes of weights, number of files, the precision, and other files that were copied."""

    tensors: int
    bytes: int
    files: int
    precision: FolderPrecision
    copied: Sequence[str]


def convert_folder(
    variant: Variant,
    source: Path,
    out: Path,
    *,
    precision: FolderPrecision = "float32",
    shard_bytes: int | None = None,
    unsafe: bool = False,
    overwrite: bool = False,
    by: str = "",
) -> Converted:
    """Writes `source` to the folder `out`. `shard_bytes`: maximum size of a file; `unsafe`: whether to open a pickle.

    by: as for folders.made_once. Raises DataError for a damaged folder or numbers too large for float16, UsageError
    for quantized weights and when `out` is not empty.
    """
    if precision not in get_args(FolderPrecision):
        raise UnknownName(f"Unknown precision {precision!r}. {nearest(precision, get_args(FolderPrecision))}")
    if shard_bytes is not None and shard_bytes < 1:
        raise UsageError(f"{shard_bytes:,} bytes per file are too few for weights.")
    check_other(out, source)
    if method_of(read_public(source)) is not None:
        raise UsageError(
            f"{source} has quantized weights, which have no other precision. Write a float copy: bertie compress "
            f"{source} --float -o NEW"
        )

    def write(folder: Path) -> JsonObject:
        return asdict(_written(variant, source, folder, precision, shard_bytes, unsafe))

    return Converted(**made_once(out, MODEL_FOLDER, by, write, overwrite=overwrite))


def save_like(model: TorchModel, folder: Path, source: Path) -> None:
    """Writes a model made from `source`: in the precision of its weights, with the other files of that folder.

    Quantized weights stay as they are. Raises UsageError for a wider model with a Dense module.
    """
    model.save_pretrained(folder, packed=model.packed)
    copy_other_files(source, folder)
    width, widened = model.config.hidden_size, False
    for path in (path / CONFIG for path in module_folders(folder) if path != folder):  # the pooling, then what reads it
        settings = read_json(path) if path.is_file() else {}
        if widened and _DENSE_INPUTS in settings:
            raise UsageError(
                f"{source} has a matrix after its pooling ({path.parent.name}), which reads vectors of the old width. "
                "Omit --times; --intermediate works."
            )
        if old := {key: width for key in WIDTHS if settings.get(key, width) != width}:
            widened = True
            write_json(path, settings | old)
    precision = _precision(source)
    if model.packed or model.variant is None or precision == "float32":
        return
    with tempfile.TemporaryDirectory(prefix="bertie-convert-") as place:
        convert_folder(model.variant, folder, Path(place) / "model", precision=precision)
        for name in (WEIGHTS, CONFIG):
            shutil.copyfile(Path(place) / "model" / name, folder / name)


def _precision(folder: Path) -> FolderPrecision:
    """Returns the precision of a folder's weights; float32 where they differ or are quantized."""
    precisions = set()
    for path in weight_files(folder):
        with safe_open(path, "numpy") as file:
            kinds = {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 (not a mapping)
            precisions |= {
                kind for kind in kinds if kind.startswith(("F", "BF"))
            }  # older files have buffers of integers
    return HALVES.get(precisions.pop(), "float32") if len(precisions) == 1 else "float32"


def _written(
    variant: Variant, source: Path, out_folder: Path, precision: FolderPrecision, shard_bytes: int | None, unsafe: bool
) -> Converted:
    public = read_public(source)
    check_modules(source)
    check_generation(source, public)
    with _opened(source, unsafe) as folder, WeightsFolder(folder, variant.table) as weights:
        base = "" if variant.based(public) else variant.table.base
        names = {name: name.removeprefix(base) for name in weights.stored}
        if variant.heads(public) == () and not all(name.startswith(base) for name in names):
            names = {name: name for name in names}  # it has more than its class says: then all names are whole
        second = dict[str, str]()
        if "heads.mlm.weight" in variant.table and weights.has_own_matrix("mlm"):
            weights.use_decoder_bias()
            second = decoder_biases(weights.stored, variant.table)
        sizes = {name: prod(weights.shape(name)) * _dtype(precision).itemsize for name in weights.stored}
        total = sum(sizes.values()) + sum(sizes[name] for name in second)
        shards = _shards(sizes, shard_bytes)
        files = _file_names(len(shards))
        for file, shard in zip(files, shards, strict=True):
            state = {names[name]: _cast(weights.stored_as(name), precision, folder, name) for name in shard}
            state |= {second[name]: state[names[name]].clone() for name in shard if name in second}
            with atomic_write(out_folder / file) as temporary:
                save_file(state, temporary.name, metadata={"format": "pt"})
        if len(files) > 1:
            where = {names[name]: file for file, shard in zip(files, shards, strict=True) for name in shard}
            where |= {other: where[names[name]] for name, other in second.items()}
            index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}
            write_json(out_folder / WEIGHTS_INDEX, index)
    copied = (*_copy_rest(source, out_folder), *_copy_modules(source, out_folder, unsafe))
    write_json(out_folder / CONFIG, _with_precision(public, precision))  # last: a folder without it is not a model
    return Converted(len(sizes) + len(second), total, len(files), precision, copied)


def _dtype(precision: FolderPrecision) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, precision)
    return dtype


def _cast(tensor: Tensor, precision: FolderPrecision, folder: Path, name: str) -> Tensor:
    cast = tensor.to(_dtype(precision)).contiguous()
    if not cast.isfinite().all():
        raise DataError(
            f"{folder}: {name} contains {float(tensor.abs().max()):.3g}, which is out of range in "
            f"{precision}. Choose bfloat16."
        )
    return cast


def _shards(sizes: Mapping[str, int], most: int | None) -> list[list[str]]:
    """Yields names in order, split where a file would exceed `most` bytes. A larger weight has its own file."""
    shards: list[list[str]] = [[]]
    held = 0
    for name, size in sorted(sizes.items()):
        if most is not None and shards[-1] and held + size > most:
            shards.append([])
            held = 0
        shards[-1].append(name)
        held += size
    return shards


def _file_names(count: int) -> list[str]:
    stem, end = WEIGHTS.split(".")
    return [WEIGHTS] if count == 1 else [f"{stem}-{i:05}-of-{count:05}.{end}" for i in range(1, count + 1)]


def _with_precision(public: Mapping[str, object], precision: FolderPrecision) -> dict[str, object]:
    keys = [key for key in ("dtype", "torch_dtype") if key in public] or ["dtype"]
    return {**public, **dict.fromkeys(keys, precision)}


def _copy_rest(source: Path, out: Path) -> tuple[str, ...]:
    """Copies the tokenizer, the card and all other files except weights and code. Links to files are followed: all
    files in the cache of the Hub are links."""
    copied = []
    files, unreadable = files_in(source, hidden=True)
    if unreadable:
        console.warn(f"Not copied, since it cannot be read: {some_of(unreadable)}.")
    for path in files:
        name = path.relative_to(source)
        ours = (
            str(name) in (CONFIG, WEIGHTS_INDEX) or path.name in (CHECKSUMS, LOCK) or any(map(is_leftover, name.parts))
        )
        weights = path.suffix in (".safetensors", ".bin", ".h5", ".msgpack", ".ot", ".onnx") or path.name in FOREIGN
        if weights or ours or path.suffix == ".py":
            continue
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, out / name)
        copied.append(str(name))
    return tuple(copied)


def _copy_modules(source: Path, out: Path, unsafe: bool) -> Iterator[str]:
    """Copies the weights of modules of `sentence-transformers` and yields their names."""
    for path in (path.name for path in module_folders(source) if path != source):
        (out / path).mkdir(exist_ok=True)
        if (source / path / WEIGHTS).is_file():
            shutil.copyfile(source / path / WEIGHTS, out / path / WEIGHTS)
            yield f"{path}/{WEIGHTS}"
        elif unsafe and (source / path / PICKLE).is_file():
            _unpickle(source / path / PICKLE, out / path / WEIGHTS)


@contextmanager
def _opened(source: Path, unsafe: bool) -> Iterator[Path]:
    """Returns the folder of the weights: the source, or a temporary one with the content of its pickle."""
    if not unsafe or has_weights(source):
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="bertie-convert-") as temporary:
        folder = Path(temporary)
        for pickle in _pickles(source):
            _unpickle(pickle, folder / f"{pickle.name}.safetensors")
        names = sorted(path.name for path in folder.iterdir())
        write_json(folder / WEIGHTS_INDEX, {"weight_map": {str(i): name for i, name in enumerate(names)}})
        yield folder


def _pickles(source: Path) -> list[Path]:
    if (source / PICKLE).is_file():
        return [source / PICKLE]
    index = read_json(source / PICKLE_INDEX) if (source / PICKLE_INDEX).is_file() else {}
    names = sorted(set(index["weight_map"].values())) if isinstance(index.get("weight_map"), dict) else []
    if not names or any(not isinstance(name, str) or Path(name).name != name for name in names):
        raise DataError(f"{source} has neither {WEIGHTS} nor {PICKLE}. Check that it is a model folder.")
    return [source / name for name in names]


def _unpickle(pickle: Path, out: Path) -> None:
    """Reads the numbers of a pickle in a separate process, which gets only two paths."""
    check_readable(pickle)
    command = [sys.executable, "-I", "-m", "bertie.models.unpickle", str(pickle.resolve()), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=UNPICKLE_LIMIT_S, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["it ended without a message"])[-1]
        raise DataError(f"{pickle} was not converted: {reason[:500]}")
