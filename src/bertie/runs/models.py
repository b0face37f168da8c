"""The model of a path: of a model folder, of a run, finished or stopped, or of a checkpoint.

    RUN/model        of a finished run
    RUN/best         of an unfinished run with select=best: the weights with the best score on dev so far
    RUN/outline      config.json, tokenizer and card of an unfinished run; a checkpoint has the weights

Heavy modules are imported only when a checkpoint is opened, since every command that takes a model calls this.
"""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from bertie.checksums import content_hashes
from bertie.console import console
from bertie.errors import DataError, UsageError, arguments
from bertie.files import read_json, seal
from bertie.folders import made_once
from bertie.hub import names
from bertie.models.beside import ADAPTER, base_of, check_adapter

if TYPE_CHECKING:
    from bertie.models.model import TorchModel
    from bertie.train.checkpoint import Checkpoint

MODEL, OUTLINE, CONFIG, SETTINGS = "model", "outline", "config.json", "run.yaml"
BEST, SCORE = "best", "score.json"


def model_folder(path: Path | str) -> Path:
    """Returns the folder of the model in `path`; `path` itself for a model folder, a preset or an unknown path.

    A name that is no file here is looked up as hub/names.py says. A finished run has its model in RUN/model. For an
    unfinished run it is RUN/best, if it is there. Otherwise, and for a checkpoint, a temporary model folder is written.
    A warning says so. Raises DataError when no checkpoint is intact; UsageError for a folder of several runs.
    """
    folder = names.place(path)
    if (folder / CONFIG).is_file():
        return folder
    if (folder / MODEL / CONFIG).is_file():
        return folder / MODEL
    if (folder / "modules.json").is_file():
        from bertie.models.sentence import first_module

        return first_module(folder) or folder
    if (folder / SETTINGS).is_file() and (folder / BEST / CONFIG).is_file():
        return _best(folder)
    if _is_checkpoint(folder) or (folder / SETTINGS).is_file():
        return _opened(folder)
    if seeds := sorted(folder.glob("seed-*")):
        raise UsageError(f"{folder} contains one run per seed. Choose one of them: {seeds[0]}.")
    if seeds := sorted(folder.glob("first/seed-*")):  # of `finetune --against`, beside second/
        raise UsageError(f"{folder} contains the runs of two compared models. Choose one of them: {seeds[0]}.")
    if (folder / ADAPTER).is_file():
        from bertie.runs.adapters import merged

        return merged(folder.resolve(), model_folder)
    check_adapter(folder)
    return folder


def adapter_base(path: str | Path) -> Path | None:
    """Returns the folder of the base of an adapter alone; None for other folders. Raises DataError without the base."""
    folder = names.place(path)
    alone = (folder / ADAPTER).is_file() and not (folder / CONFIG).is_file()
    return base_of(folder, model_folder) if alone else None


@arguments()
def load_model(folder: str | Path) -> "TorchModel":
    """Loads a model for inference: in evaluation mode, with `.tokenizer` and `.labels` set.

    Args:
        folder: Folder of a model, a run or a checkpoint. A run that has not finished gives its best weights so far
            (select=best), or its newest checkpoint.

    Returns:
        The model, on the CPU.

    Raises:
        DataError: Files are missing or damaged, or vocabulary and weights belong to different models.
    """
    from bertie import families
    from bertie.models.beside import check_generation
    from bertie.models.saving import check_vocabulary
    from bertie.models.sentence import read_sentence
    from bertie.models.seq2seq import writes
    from bertie.text.formats import TOKENIZER_FILES
    from bertie.text.tokenizer import Tokenizer

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


def check_length(length: int, most: int, model: str) -> None:
    """Raises UsageError for a max_length beyond the positions of a model."""
    if length > most:
        raise UsageError(f"max_length is {length:,}; {model} has {most:,} positions. Pass max_length={most}.")


def write_checkpoint_model(path: Path | str, out: Path, *, overwrite: bool = False) -> str:
    """Writes the model of a run's newest intact checkpoint, or of a checkpoint folder, as a model folder.

    -> its progress: "step 4,000 of 10,000". Raises as `model_folder` does.
    """
    from bertie.models.folder import MODEL_FOLDER

    found = _checkpoint(Path(path))

    def write(made: Path) -> dict[str, str]:
        _write(found, made)
        return {"step": at_step(found)}

    by = seal({"command": "export-checkpoint", "checkpoint": content_hashes(found.folder)})
    step: str = made_once(out, MODEL_FOLDER, by, write, overwrite=overwrite)["step"]
    return step


def at_step(found: "Checkpoint") -> str:
    """Returns the progress of the run of a checkpoint: "step 4,000 of 10,000"."""
    from bertie import settings

    steps = settings.read_yaml(found.folder.parent / SETTINGS).get("train", {}).get("steps", 0)
    return f"step {found.step:,} of {steps:,}"


def _is_checkpoint(folder: Path) -> bool:
    return folder.resolve().name.startswith("checkpoint-") and (folder / "manifest.json").is_file()


def _best(folder: Path) -> Path:

    score = ", ".join(f"{name} {value:z.3f}" for name, value in read_json(folder / BEST / SCORE).items())
    console.warn(
        f"{folder}: not finished; resume it, or use its best weights on dev so far ({score}), {folder / BEST}."
    )
    return folder / BEST


def _opened(folder: Path) -> Path:

    found = _checkpoint(folder)
    more = "" if (found.folder.parent / MODEL).is_dir() else ": not finished; resume it, or use it as it is"
    made = _made(found.folder.resolve(), (found.folder / "manifest.json").read_bytes())
    console.warn(f"{folder}: {at_step(found)}{more}.")
    return made


@cache
def _made(folder: Path, manifest: bytes) -> Path:
    """Returns a model folder of a checkpoint, which is deleted when this process ends. manifest: identifies its
    content."""
    from bertie.train import checkpoint

    place = Path(tempfile.mkdtemp(prefix="bertie-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    (made := place / folder.name).mkdir()
    _write(checkpoint.verify_checkpoint(folder), made)
    return made


def _checkpoint(folder: Path) -> "Checkpoint":
    from bertie.train import checkpoint

    if _is_checkpoint(folder):
        return checkpoint.verify_checkpoint(folder)
    if not (folder / SETTINGS).is_file():
        raise DataError(f"{folder} is neither a run nor a checkpoint. Pass RUN or RUN/checkpoint-N.")
    found = checkpoint.latest(folder)
    if found is None and (folder / MODEL).is_dir():
        raise DataError(f"{folder} is finished and has no checkpoints. Its model is {folder / MODEL}.")
    if found is None:
        raise DataError(
            f"{folder} has no model yet: it stopped before its first checkpoint, or kept none. Run the same "
            "command again to resume it."
        )
    return found


def _write(found: "Checkpoint", out: Path) -> None:
    """Writes the weights of a checkpoint under their public names, with the other files of the run's model."""
    from bertie import families
    from bertie.models.variant import read_public
    from bertie.models.weights import WEIGHTS, save_weights
    from bertie.objectives.rtd import with_sums
    from bertie.train import checkpoint

    run = found.folder.resolve().parent
    outline = next((run / name for name in (OUTLINE, MODEL) if (run / name / CONFIG).is_file()), None)
    if outline is None:
        raise DataError(
            f"{run} has no {OUTLINE}, which describes the model of its checkpoints. Resume the run with its command; "
            "then its checkpoints can be used."
        )
    skip = shutil.ignore_patterns("*.safetensors", "*.index.json", "checksums.json", ".lock")
    shutil.copytree(outline, out, dirs_exist_ok=True, ignore=skip)
    public, variant = read_public(outline), families.family(outline)
    tensors = found.tensors(checkpoint.MODEL)
    own = {name: tensor for name, tensor in with_sums(tensors).items() if not name.startswith("companions.")}
    save_weights(own, out / WEIGHTS, variant.table, base=variant.based(public))
