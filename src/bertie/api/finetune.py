"""`bertie.finetune`: from labeled examples in any form to a trained model."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bertie import settings as configs
from bertie.api.run import Run, run_folder
from bertie.console import say
from bertie.data import memory
from bertie.errors import UsageError, arguments
from bertie.runs import finetune as runs
from bertie.runs.config import EPOCHS, FinetuneConfig
from bertie.runs.finetuning import EvalCallback
from bertie.tasks.datasets import DATASETS

COMMON = {  # arguments that everybody changes -> their settings
    "lr": "optim.lr",
    "weight_decay": "optim.weight_decay",
    "warmup": "optim.warmup",
    "batch_size": "train.batch_size",
    "seed": "train.seed",
    "device": "train.device",
    "precision": "train.precision",
}
THEIRS = {  # arguments of transformers, sentence-transformers and scikit-learn
    "learning_rate": "lr",
    "num_train_epochs": "epochs",
    "num_epochs": "epochs",
    "max_iter": "epochs",
    "per_device_train_batch_size": "batch_size",
    "train_batch_size": "batch_size",
    "max_seq_length": "max_length",
    "warmup_ratio": "warmup",
    "warmup_steps": "warmup",
    "random_state": "seed",
    "output_dir": "output",
    "run": "output",
    "train_dataset": "train",
    "eval_dataset": "dev",
    "train_file": "train",
    "dev_file": "dev",
    "text_column": "text",
    "label_column": "label",
    "dtype": "precision",
}


@arguments(**THEIRS)
def finetune(
    model: str | Path | None = None,
    train: Any = None,
    dev: Any = None,
    *,
    text: str | tuple[str, ...] | list[str] = (),
    label: str = "",
    task: str | None = None,
    label_names: Mapping[str, str] | None = None,
    data: str = "",
    data_dir: str | Path | None = None,
    epochs: float | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
    max_length: int | None = None,
    weight_decay: float | None = None,
    warmup: float | None = None,
    seed: int | None = None,
    device: str | None = None,
    precision: str | None = None,
    settings: Mapping[str, Any] | None = None,
    config: FinetuneConfig | None = None,
    output: str | Path | None = None,
    resume: str = "auto",
    overwrite: bool = False,
    callback: EvalCallback | None = None,
) -> Run:
    """Fine-tunes a model for a task.

    Args:
        model: Name or folder of a pre-trained model.
        train: Labeled examples: the path of a file, a DataFrame, an Arrow table, a data set, dicts, tuples
            (text, label), or a tuple of two lists (texts, labels).
        dev: Examples to evaluate on. Default: a tenth of `train`.
        text: Column of the text, or two columns for a pair. Default: recognized by name.
        label: Column of the label. Default: recognized by name.
        task: sequence, regression, multilabel, tagging ... Default: sequence, or that of the published data set.
        label_names: Names for the labels: {"0": "negative", "1": "positive"}.
        data: A published data set, instead of `train`.
        data_dir: Folder of the files of `data`.
        epochs: Passes over the training examples.
        lr: Peak learning rate. Default: by the model's width.
        batch_size: Examples of a step.
        max_length: Tokens of an example.
        weight_decay: Weight decay of AdamW.
        warmup: Steps in which the rate rises, or below 1 their fraction.
        seed: Seed of the order, of dropout and of the new weights.
        device: cpu, cuda, cuda:1, mps or auto.
        precision: fp32, bf16 or auto.
        settings: Any other settings by their dotted names: {"optim.betas": (0.9, 0.98)}.
        config: All settings of a run, instead of the arguments above. With `train` or `dev`, these are its examples.
        output: Run folder to write. Default: a temporary one, which `Run.save` keeps.
        resume: "auto" continues a run that was stopped, from its newest checkpoint; "never" refuses; or a checkpoint.
        overwrite: Whether to delete first what Bertie wrote to the folder.
        callback: Called at each evaluation as `callback(fraction, metrics)`. An exception from it ends the run.

    Returns:
        The run, with `scores`, `model` and `report`.

    Raises:
        DataError: Examples cannot be read, or there are fewer than two labels.
        UsageError: A setting is wrong, or the folder contains another run.
        Stopped: The run was interrupted. The same call resumes it.
    """
    chosen: dict[str, Any] = {
        "model": None if model is None else str(model),
        "text": ((text,) if isinstance(text, str) else tuple(text)) or None,
        "label": label or None,
        "task": task,
        "label_names": None if label_names is None else {str(one): str(name) for one, name in label_names.items()},
        "data": data or None,
        "data_dir": None if data_dir is None else str(data_dir),
        "epochs": epochs,
        "max_length": max_length,
    }
    chosen |= dict(zip(COMMON.values(), (lr, weight_decay, warmup, batch_size, seed, device, precision), strict=True))
    chosen |= settings or {}
    check_alone(config, chosen)
    if config is None and train is None and not data:
        raise UsageError("No training examples given. Pass train, or data and data_dir.")
    with ExitStack() as stack:
        files: dict[str, Any] = {}
        for name, examples in (("train", train), ("dev", dev)):
            if examples is not None:
                files[f"{name}_file"] = path = stack.enter_context(memory.open_as(name, examples))
                if memory.in_memory(path):
                    files["format"] = "jsonl"
        ready = config.model_copy(update=files) if config is not None else settings_of(chosen | files)
        folder, temporary = stack.enter_context(run_folder(output))
        results = runs.finetune(ready, folder, resume=resume, overwrite=overwrite, callback=callback)
    return Run(folder, results, temporary)


def check_alone(config: object, chosen: Mapping[str, Any]) -> None:
    """Raises UsageError for a whole config beside settings by name."""
    if config is not None and (both := [name for name, value in chosen.items() if value is not None]):
        raise UsageError(f"{both[0]} and config exclude each other. Omit one of them.")


def settings_of(
    chosen: Mapping[str, Any], file: str | Path | None = None, overrides: tuple[str, ...] = ()
) -> FinetuneConfig:
    """Returns the settings of a run: of a file or of the data set's recipe, then the chosen ones, then key=value.

    The learning rate of the data set's recipe counts as not set, because narrow models need another one.
    """
    if "train.steps" in chosen or any(one.startswith("train.steps=") for one in overrides):
        raise UsageError(EPOCHS)

    def load(path: str | Path | None) -> FinetuneConfig:
        return configs.load(FinetuneConfig, path, overrides, **chosen)

    if file is not None or not (data := chosen.get("data")):
        return load(file)
    recipe = DATASETS[data].recipe
    say(f"{data}: using the published settings of {recipe} (-c {recipe}); override any with key=value")
    ready = load(recipe)
    return ready if load(None).rate_is_set else ready.with_rate_of_recipe()
