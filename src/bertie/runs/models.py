"""The model of a path: of a model folder, of a run, finished or stopped, or of a checkpoint.

    RUN/model        of a finished run
    RUN/best         of an unfinished run with select=best: the weights with the best score on dev so far
    RUN/outline      config.json, tokenizer and card of an unfinished run; a checkpoint has the weights

Every command that takes a model calls this, so torch is imported for a checkpoint or an adapter alone.
"""

from pathlib import Path

from bertie.console import console
from bertie.errors import UsageError
from bertie.files import read_json
from bertie.models import names
from bertie.models.sentence import first_module
from bertie.models.variant import ADAPTER, base_of, check_adapter
from bertie.runs.layout import BEST, CONFIG, MODEL, SCORE, SETTINGS, is_checkpoint


def model_folder(path: Path | str) -> Path:
    """Returns the folder of the model in `path`; `path` itself for a model folder, a preset or an unknown path.

    A name that is no file here is looked up as models/names.py says. A finished run has its model in RUN/model. For an
    unfinished run it is RUN/best, if it is there. Otherwise, and for a checkpoint, a temporary model folder is written.
    A warning says so. Raises DataError when no checkpoint is intact; UsageError for a folder of several runs.
    """
    folder = names.place(path)
    if (folder / CONFIG).is_file():
        return folder
    if (folder / MODEL / CONFIG).is_file():
        return folder / MODEL
    if (folder / "modules.json").is_file():
        return first_module(folder) or folder
    if (folder / SETTINGS).is_file() and (folder / BEST / CONFIG).is_file():
        return _best(folder)
    if is_checkpoint(folder) or (folder / SETTINGS).is_file():
        from bertie.runs.checkpoints import checkpoint_model

        return checkpoint_model(folder)
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


def check_length(length: int, most: int, model: str) -> None:
    """Raises UsageError for a max_length beyond the positions of a model."""
    if length > most:
        raise UsageError(f"max_length is {length:,}; {model} has {most:,} positions. Pass max_length={most}.")


def _best(folder: Path) -> Path:
    score = ", ".join(f"{name} {value:z.3f}" for name, value in read_json(folder / BEST / SCORE).items())
    console.warn(
        f"{folder}: not finished; resume it, or use its best weights on dev so far ({score}), {folder / BEST}."
    )
    return folder / BEST
