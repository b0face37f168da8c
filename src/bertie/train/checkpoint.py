"""Checkpoints: folders that are intact or refused.

    RUN/checkpoint-500/
        model.safetensors       parameters by module name, float32
        optimizer.safetensors   <parameter>/exp_avg, /exp_avg_sq, /step
        state.json              step, fingerprint of the run, position in metrics.jsonl, sums not yet logged
        manifest.json           step; size and xxh3 hash of the other files; written last

A checkpoint is written to a hidden folder, every file and the folder are flushed to the disk, and the folder is
renamed. A folder with the final name is therefore complete, unless it was damaged later. Every byte is verified before
use.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import xxhash
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from bertie.console import console
from bertie.errors import BadFile, DataError, MissingFile, Stopped, UnreadableFile
from bertie.files import Json, check_readable, file_hash, read_json, sync_folder
from bertie.train.sharding import whole_tensor

MODEL, OPTIMIZER, STATE, MANIFEST = "model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"
CHECKPOINT_FILES = (MODEL, OPTIMIZER, STATE)
_DTYPE_NAMES = {
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.bool: "BOOL",
}


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint."""

    folder: Path
    step: int
    state: Json

    def belongs_to(self, run: Path) -> bool:
        """Returns whether this is a checkpoint of a run, and not of another one."""
        return self.folder.resolve().parent == run.resolve()

    def tensors(self, name: str) -> dict[str, Tensor]:
        """Returns the tensors of one of its files. Raises DataError when it cannot be read."""
        check_readable(self.folder / name)
        try:
            return dict(load_file(self.folder / name))
        except (SafetensorError, OSError) as error:
            raise UnreadableFile(f"{self.folder / name} cannot be read: {error}.") from None


def save_checkpoint(
    run: Path,
    step: int,
    *,
    model: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    state: Mapping[str, object],
    keep: int = 2,
) -> Path:
    """Writes checkpoint-<step>, then deletes all but the newest `keep`. Raises Stopped when the disk is full.

    Sharded tensors are gathered one at a time, while the other ranks call `hand_over`.
    """
    final, temporary = run / f"checkpoint-{step}", run / f".checkpoint-{step}.tmp"
    needed_bytes = sum(t.numel() * t.itemsize for tensors in (model, optimizer) for t in tensors.values())
    _sweep(run)
    try:
        temporary.mkdir()
        entries = {
            MODEL: _write(temporary / MODEL, _safetensors(model)),
            OPTIMIZER: _write(temporary / OPTIMIZER, _safetensors(optimizer)),
            STATE: _write(temporary / STATE, [_json({"step": step, **state})]),
        }
        _write(temporary / MANIFEST, [_json({"format": 1, "step": step, "files": entries})])
        sync_folder(temporary)
        if final.exists():  # damaged, or the run would have been resumed from it
            final.rename(run / f".checkpoint-{step}.old")
        temporary.rename(final)
        sync_folder(run)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise Stopped.for_full_disk(error, final, needed_bytes) or error from None
    for old in [folder for folder in _numbered(run) if (_step(folder) or 0) <= step][:-keep]:
        old.rename(run / f".{old.name}.old")  # so that a kill amid the deletion leaves no half of a checkpoint
    _sweep(run)
    return final


def hand_over(*files: Mapping[str, Tensor]) -> None:
    """Takes part, on the other ranks, in gathering sharded tensors in the order in which rank 0 writes them."""
    for tensors in files:
        for _, tensor in sorted(tensors.items()):
            whole_tensor(tensor)


def latest(run: Path) -> Checkpoint | None:
    """Returns the newest intact checkpoint of a run, or None when it has none yet.

    Damaged ones are skipped with a warning. Raises DataError when all are damaged.
    """
    for torn in sorted(run.glob(".checkpoint-*.tmp")):
        console.warn(f"{torn} was not finished when its process ended. It is skipped.")
    damage = []
    for folder in reversed(_numbered(run)):
        try:
            checkpoint = verify_checkpoint(folder)
        except DataError as error:
            damage.append(str(error))
            continue
        for message in damage:
            console.warn(f"{message} It is skipped, and {folder.name} is used.")
        return checkpoint
    if damage:
        every = f"No checkpoint of {run} is intact. Restore one from a copy, or start again: --overwrite."
        raise DataError(" ".join([*damage, every]))
    return None


def verify_checkpoint(folder: Path) -> Checkpoint:
    """Returns a checkpoint after comparing all files with the sizes and hashes in its manifest. Raises DataError
    otherwise."""
    if not folder.is_dir():
        raise MissingFile(f"{folder} is not a checkpoint: the folder does not exist.")
    step = _step(folder)
    manifest = read_json(folder / MANIFEST)
    try:
        if manifest["format"] != 1 or set(manifest["files"]) != set(CHECKPOINT_FILES):
            raise DataError(f"{folder / MANIFEST} has a format that this version does not know.")
        if step is not None and manifest["step"] != step:
            raise DataError(
                f"{folder} contains the checkpoint of step {manifest['step']}: it was renamed or mixed with another."
            )
        for name in CHECKPOINT_FILES:
            _verify_file(folder / name, manifest["files"][name])
        return Checkpoint(folder, int(manifest["step"]), read_json(folder / STATE))
    except (KeyError, TypeError, ValueError):
        raise BadFile(f"{folder / MANIFEST} is damaged.") from None


def _verify_file(path: Path, entry: Mapping[str, object]) -> None:
    if not path.is_file():
        raise DataError(f"{path} is missing.")
    if (size := path.stat().st_size) != entry["size"]:
        raise BadFile(f"{path} is damaged: it has {size:,} of {entry['size']:,} bytes.")
    if file_hash(path) != entry["xxh3_128"]:
        raise BadFile(f"{path} is damaged: its hash differs.")


def _step(folder: Path) -> int | None:
    match = re.fullmatch(r"checkpoint-(\d+)", folder.name)
    return int(match[1]) if match else None


def _numbered(run: Path) -> list[Path]:
    """Returns the checkpoint folders of a run by step, the oldest first."""
    steps = {folder: step for folder in run.glob("checkpoint-*") if (step := _step(folder)) is not None}
    return sorted(steps, key=steps.__getitem__)


def _sweep(run: Path) -> None:
    """Deletes the remains of unfinished saves and deletions. A failure is only a warning."""
    for pattern in (".checkpoint-*.tmp", ".checkpoint-*.old"):
        for leftover in run.glob(pattern):
            try:
                shutil.rmtree(leftover)
            except OSError as error:
                console.warn(f"{leftover} could not be deleted: {error}")


def _json(value: object) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()


def _safetensors(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """Yields a safetensors file in parts, one per tensor, so that only the current tensor is copied.

    Format: length of the header as 8 bytes, little endian; the header in JSON; the tensors.
    https://github.com/huggingface/safetensors#format
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name, tensor in sorted(tensors.items()):
        stop = start + tensor.numel() * tensor.itemsize
        header[name] = {"dtype": _DTYPE_NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, stop]}
        start = stop
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8 bytes
    yield len(text).to_bytes(8, "little") + text
    for _, tensor in sorted(tensors.items()):
        yield whole_tensor(tensor).detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data


def _write(path: Path, pieces: Iterable[bytes | memoryview]) -> dict[str, object]:
    """Writes a file and flushes it to the disk. -> its size and hash, of the bytes to be written"""
    digest, size = xxhash.xxh3_128(), 0
    with open(path, "wb") as file:
        for piece in pieces:
            file.write(piece)
            digest.update(piece)
            size += len(piece)
        file.flush()
        os.fsync(file.fileno())
    return {"size": size, "xxh3_128": digest.hexdigest()}
