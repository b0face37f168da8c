"""The model of a checkpoint as a model folder."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from bertie.checksums import content_hashes
from bertie.console import console
from bertie.errors import DataError
from bertie.files import seal
from bertie.folders import made_once
from bertie.models import families
from bertie.models.files import MODEL_FOLDER, WEIGHTS
from bertie.models.variant import read_public
from bertie.models.weights import save_weights
from bertie.objectives.rtd import with_sums
from bertie.runs.layout import CONFIG, MODEL, OUTLINE, SETTINGS, is_checkpoint
from bertie.settings import read_yaml
from bertie.train import checkpoint
from bertie.train.checkpoint import Checkpoint


def write_checkpoint_model(path: Path | str, out: Path, *, overwrite: bool = False) -> str:
    """Writes the model of a run's newest intact checkpoint, or of a checkpoint folder, as a model folder.

    -> its progress: "step 4,000 of 10,000". Raises as `model_folder` does.
    """
    point = _checkpoint(Path(path))

    def write(folder: Path) -> dict[str, str]:
        _write(point, folder)
        return {"step": at_step(point)}

    by = seal({"command": "export-checkpoint", "checkpoint": content_hashes(point.folder)})
    step: str = made_once(out, MODEL_FOLDER, by, write, overwrite=overwrite)["step"]
    return step


def at_step(point: Checkpoint) -> str:
    """Returns the progress of the run of a checkpoint: "step 4,000 of 10,000"."""
    steps = read_yaml(point.folder.parent / SETTINGS).get("train", {}).get("steps", 0)
    return f"step {point.step:,} of {steps:,}"


def checkpoint_model(folder: Path) -> Path:
    """Returns a temporary model folder of a checkpoint, or of a run's newest one, and warns that it is unfinished."""
    point = _checkpoint(folder)
    more = "" if (point.folder.parent / MODEL).is_dir() else ": not finished; resume it, or use it as it is"
    model = _made(point.folder.resolve(), (point.folder / "manifest.json").read_bytes())
    console.warn(f"{folder}: {at_step(point)}{more}.")
    return model


@cache
def _made(folder: Path, manifest: bytes) -> Path:
    """Returns a model folder of a checkpoint, which is deleted when this process ends. manifest: identifies its
    content."""
    place = Path(tempfile.mkdtemp(prefix="bertie-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    (model := place / folder.name).mkdir()
    _write(checkpoint.verify_checkpoint(folder), model)
    return model


def _checkpoint(folder: Path) -> Checkpoint:
    if is_checkpoint(folder):
        return checkpoint.verify_checkpoint(folder)
    if not (folder / SETTINGS).is_file():
        raise DataError(f"{folder} is neither a run nor a checkpoint. Pass RUN or RUN/checkpoint-N.")
    point = checkpoint.latest(folder)
    if point is None and (folder / MODEL).is_dir():
        raise DataError(f"{folder} is finished and has no checkpoints. Its model is {folder / MODEL}.")
    if point is None:
        raise DataError(
            f"{folder} has no model yet: it stopped before its first checkpoint, or kept none. Run the same "
            "command again to resume it."
        )
    return point


def _write(point: Checkpoint, out: Path) -> None:
    """Writes the weights of a checkpoint under their public names, with the other files of the run's model."""
    run = point.folder.resolve().parent
    outline = next((run / name for name in (OUTLINE, MODEL) if (run / name / CONFIG).is_file()), None)
    if outline is None:
        raise DataError(
            f"{run} has no {OUTLINE}, which describes the model of its checkpoints. Resume the run with its command; "
            "then its checkpoints can be used."
        )
    skip = shutil.ignore_patterns("*.safetensors", "*.index.json", "checksums.json", ".lock")
    shutil.copytree(outline, out, dirs_exist_ok=True, ignore=skip)
    public, variant = read_public(outline), families.family(outline)
    tensors = point.tensors(checkpoint.MODEL)
    own = {name: tensor for name, tensor in with_sums(tensors).items() if not name.startswith("companions.")}
    save_weights(own, out / WEIGHTS, variant.table, base=variant.based(public))
