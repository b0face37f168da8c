"""`bertie.finetune`: from labeled examples in any form to a trained model."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bertie import settings as configs
from bertie.api.run import Run, run_folder
from bertie.console import say
from bertie.data import memory
from bertie.errors import UsageError, arguments
from bertie.runs import finetune as runs
from bertie.runs.arguments import FINETUNE
from bertie.runs.config import EPOCHS, FinetuneConfig
from bertie.tasks.datasets import DATASETS
from bertie.tasks.losses import LossFunction
from bertie.train.callbacks import Callback

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
    weight: str = "",
    class_weights: str | Mapping[str, float] | None = None,
    sampling: str | None = None,
    loss: str | LossFunction | None = None,
    focal_gamma: float | None = None,
    label_smoothing: float | None = None,
    optimize: str = "",
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
    patience: int | None = None,
    metric: str | None = None,
    track: str | Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    config: FinetuneConfig | None = None,
    output: str | Path | None = None,
    resume: str = "auto",
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
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
        weight: Column of the weight of a row, in the loss and in the metrics.
        class_weights: Weights of labels in the loss: "balanced", or {"spam": 10, "ham": 1}.
        sampling: "balanced" has equally many examples of each label in an epoch.
        loss: "focal", or a function (logits, labels, weights) -> sum over rows, count.
        focal_gamma: The power of the focal loss.
        label_smoothing: Share of a target that all labels have in equal parts.
        optimize: Chooses a threshold on held-out examples for f1, f2, recall@precision=0.9 or precision@recall=0.95.
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
        patience: Evaluations without an improvement after which the run ends, with the best weights.
        metric: Metric that selects weights and stops the run. Default: the main metric of the task.
        track: Experiment trackers: tensorboard, mlflow, wandb, trackio.
        settings: Any other settings by their dotted names: {"optim.betas": (0.9, 0.98)}.
        config: All settings of a run, instead of the arguments above. With `train` or `dev`, these are its examples.
        output: Run folder to write. Default: a temporary one, which `Run.save` keeps.
        resume: "auto" continues a run that was stopped, from its newest checkpoint; "never" refuses; or a checkpoint.
        overwrite: Whether to delete first what Bertie wrote to the folder.
        callbacks: Called after every step and evaluation: early stopping, trackers, your own.

    Returns:
        The run, with `scores`, `model` and `report`.

    Raises:
        DataError: Examples cannot be read, or there are fewer than two labels.
        UsageError: A setting is wrong, or the folder contains another run.
        Stopped: The run was interrupted. The same call resumes it.
    """
    chosen = {"model": None if model is None else str(model), **chosen_of(FINETUNE, locals())}
    function = loss if callable(loss) else None
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
        results = runs.finetune(ready, folder, resume=resume, overwrite=overwrite, callbacks=callbacks, loss=function)
    return Run(folder, results, temporary)


def chosen_of(names: Mapping[str, str], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that a call chooses, by their dotted names: its arguments, then its `settings`.

    names: argument -> setting. An empty text or list is none.
    """
    chosen = {key: arguments[name] for name, key in names.items()}
    for key, value in chosen.items():
        if isinstance(value, Path):
            chosen[key] = str(value)
        elif key in ("text", "train.track") and value is not None:
            chosen[key] = ((value,) if isinstance(value, str) else (*value,)) if len(value) else None
        elif value == "":
            chosen[key] = None
        elif callable(value):
            chosen[key] = "function"
        elif isinstance(value, Mapping):
            chosen[key] = {str(one): other for one, other in value.items()}  # labels may be numbers
    return chosen | dict(arguments["settings"] or {})


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
