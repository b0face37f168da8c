"""`bertie.finetune`: from labeled examples in any form to a trained model."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, Unpack

from bertie import settings as configs
from bertie.api.folders import Comparison
from bertie.api.options import FinetuneOptions
from bertie.api.run import Plan, Run, run_in
from bertie.console import console
from bertie.errors import UsageError, WrongValue, arguments
from bertie.io import memory
from bertie.io.memory import RowsInput
from bertie.runs import finetune as runs
from bertie.runs.arguments import FINETUNE
from bertie.runs.config import EPOCHS_HINT, FinetuneConfig
from bertie.runs.finetune import run_finetune_against as runs_against
from bertie.runs.folds import finetune_folds
from bertie.tasks import TASKS
from bertie.tasks.datasets import DATASETS
from bertie.tasks.losses import LossFunction
from bertie.train.callbacks import Callback

Loss: TypeAlias = str | LossFunction
"""The name of a loss, or a function of logits, labels and weights."""
FEW_SHOT = "finetune-few-shot"
_FILE_SETTINGS = {  # arguments that are settings of the files alone
    **{name: name for name in ("positive", "columns", "encoding", "format", "label_separator")},
    "features": "features.column",
}
FOREIGN_ARGUMENTS = {  # arguments of transformers, sentence-transformers and scikit-learn
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


@arguments(**FOREIGN_ARGUMENTS)
def finetune(
    model: str | Path | None = None,
    train: RowsInput | None = None,
    dev: RowsInput | None = None,
    *,
    text: str | tuple[str, ...] | list[str] = (),
    label: str = "",
    task: str | None = None,
    label_names: Mapping[str, str] | None = None,
    weight: str = "",
    group: str = "",
    time: str = "",
    tabular: Sequence[str] = (),
    markup: str = "",
    class_weights: str | Mapping[str, float] | None = None,
    sampling: str | None = None,
    loss: Loss | None = None,
    focal_gamma: float | None = None,
    label_smoothing: float | None = None,
    optimize: str = "",
    costs: Mapping[str, Mapping[str, float]] | None = None,
    calibrate: str | None = None,
    abstain: float | None = None,
    coverage: float | None = None,
    data: str = "",
    data_dir: str | Path | None = None,
    epochs: float | None = None,
    lora: int | None = None,
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
    positive: str = "",
    columns: Sequence[str] = (),
    encoding: str = "",
    format: str = "",
    label_separator: str = "",
    features: str = "",
    few_shot: bool = False,
    folds: int | None = None,
    seeds: int | None = None,
    keep_best: bool = False,
    settings: Mapping[str, object] | None = None,
    overrides: Sequence[str] = (),
    config: FinetuneConfig | str | Path | None = None,
    output: str | Path | None = None,
    resume: str = "auto",
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Fine-tunes a model for a task.

    Args:
        model: Name or folder of a pre-trained model.
        train: Labeled examples: the path of a file, a DataFrame, an Arrow table, a data set, dicts, tuples
            (text, label), or a tuple of two lists (texts, labels). Rows without a text or a label are skipped, which
            `Run.notes` tells.
        dev: Examples to evaluate on. Default: a tenth of `train`.
        text: Column of the text, or a template ("{title}. {body}"); two for a pair. Default: recognized.
        label: Column of the label. Default: recognized.
        task: sequence, regression, multilabel, tagging ... Default: sequence, or that of the published data set.
        label_names: Names for the labels: {"0": "negative", "1": "positive"}.
        weight: Column of the weight of a row, in the loss and in the metrics.
        group: Column of groups, such as authors, that are never on both sides of a split.
        time: Column of when a row was written: the latest rows are held out.
        tabular: Columns of numbers and categories that are read beside the text: ["price", "region"].
        markup: "html" or "markdown": what is removed from texts, here and when the model is used.
        class_weights: Weights of labels in the loss: "balanced", or {"spam": 10, "ham": 1}.
        sampling: "balanced" has equally many examples of each label in an epoch.
        loss: "focal", or a function (logits, labels, weights) -> sum over rows, count.
        focal_gamma: The power of the focal loss.
        label_smoothing: Share of a target that all labels have in equal parts.
        optimize: Chooses a threshold on held-out examples for f1, f2, recall@precision=0.9, precision@recall=0.95 or
            cost. `Run.thresholds` has it.
        costs: With optimize="cost", the cost of a predicted label by the true one: {"spam": {"ham": 10}}.
        calibrate: Calibrates the probabilities on held-out examples by "temperature" or "vector" scaling.
        abstain: Probability below which the model gives no label, but a reason.
        coverage: Share of texts whose prediction set has the true label, such as 0.95.
        data: A published data set, instead of `train`.
        data_dir: Folder of the files of `data`.
        epochs: Passes over the training examples.
        lora: Rank of the matrices that LoRA trains. Default: all weights are trained.
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
        positive: Label of a classification whose F1 is the main metric, and whose threshold `optimize` chooses.
        columns: Column names of files without a header line.
        encoding: Text encoding of files.
        format: Format of files. Default: by their suffix.
        label_separator: What separates several labels in a cell.
        features: Column of feature vectors.
        few_shot: Whether to train on pairs of texts, for 2 to 64 examples per label.
        folds: Number of folds of a cross-validation: each row is answered by a model that did not learn it, in
            `Run.out_of_fold`. The model of the run learned all rows.
        seeds: Number of runs with different seeds, from `seed` up. Default: 5 on small published data, otherwise 1.
        keep_best: With several seeds, whether the model is that of the seed with the best score on dev.
        settings: Any other settings by their dotted names: {"optim.betas": (0.9, 0.98)}.
        overrides: Settings as texts, "optim.betas=[0.9, 0.98]", which override all others.
        config: YAML file of settings, or the name of a recipe, which the arguments override; or all settings of a
            run, instead of the arguments above. With `train` or `dev`, these are its examples.
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

    Example:
        >>> run = bertie.finetune("runs/tiny", reviews, text="review", label="stars", epochs=2, lr=1e-3, batch_size=8)
        >>> run.model.predict(["the soup was cold"]).labels[0] in ("good", "bad")
        True
        >>> examples = (["good soup", "cold soup"] * 9, ["good", "bad"] * 9)
        >>> run = bertie.finetune("runs/tiny", examples, settings={"held_out": 0.5})
        >>> run.scores["examples"]
        8
    """
    call = dict(locals())
    with settings_ready(call) as ready:
        if folds is not None and (seeds is not None or keep_best):
            raise UsageError("`folds` and `seeds` exclude each other. Omit one of them.")
        number = 1 if folds is not None else seeds_of(ready, seeds, keep_best)
        several = partial(runs.finetune_seeds, seeds=number, keep_best=keep_best)
        run = (
            partial(finetune_folds, folds=folds) if folds is not None else runs.run_finetune if number == 1 else several
        )
        function = loss if callable(loss) else None
        work = partial(run, ready, resume=resume, overwrite=overwrite, callbacks=callbacks, loss=function)
        return run_in(output, work, partial(finetune, **call))


@arguments(*FinetuneOptions.__annotations__, **FOREIGN_ARGUMENTS)
def finetune_against(
    model: str | Path | None,
    against: str | Path,
    train: RowsInput | None = None,
    dev: RowsInput | None = None,
    *,
    output: str | Path,
    seeds: int | None = None,
    resume: str = "auto",
    overwrite: bool = False,
    **options: Unpack[FinetuneOptions],
) -> Comparison:
    """Fine-tunes two models alike, seed by seed, and compares them.

    Args:
        model: Name or folder of the first pre-trained model.
        against: Name or folder of the second.
        train: Labeled examples, as for `finetune`.
        dev: Examples to evaluate on.
        output: Folder to write: first/, second/ and compare.html.
        seeds: Number of runs of each model. Default: 5 on small published data, otherwise 1.
        resume: As for `finetune`.
        overwrite: Whether to delete first what Bertie wrote to the folder.
        **options: The settings of `finetune`.

    Returns:
        The comparison.

    Raises:
        As `finetune`.

    Example:
        >>> comparison = bertie.finetune_against(
        ...     "runs/tiny", "starter-en", reviews, text="review", label="stars", epochs=1, output="out/against"
        ... )
    """
    with settings_ready({**options, "model": model, "train": train, "dev": dev}) as ready:
        number = seeds_of(ready, seeds, False)
        return Comparison(runs_against(ready, str(against), Path(output), number, resume=resume, overwrite=overwrite))


@arguments(*FinetuneOptions.__annotations__, **FOREIGN_ARGUMENTS)
def plan_finetune(
    model: str | Path | None = None,
    train: RowsInput | None = None,
    dev: RowsInput | None = None,
    *,
    against: str | Path | None = None,
    seeds: int | None = None,
    keep_best: bool = False,
    trial: float | None = None,
    **options: Unpack[FinetuneOptions],
) -> Plan:
    """Checks everything that a run needs, without training, and forecasts its cost by a trial on this machine.

    Args:
        model: Name or folder of a pre-trained model.
        train: Labeled examples, as for `finetune`.
        dev: Examples to evaluate on.
        against: A second model, which is checked too.
        seeds: As for `finetune`.
        keep_best: As for `finetune`.
        trial: Seconds of the trial. Default: 30, or a stored trial of the same run. 0: no trial.
        **options: The settings of `finetune`.

    Returns:
        The plan.

    Raises:
        As `finetune`.

    Example:
        >>> plan = bertie.plan_finetune("runs/tiny", reviews, text="review", label="stars", epochs=3, trial=0)
        >>> plan.facts["steps"]
        3
    """
    with settings_ready({**options, "model": model, "train": train, "dev": dev}) as ready:
        number = seeds_of(ready, seeds, keep_best)
        facts = {**runs.plan_finetuning(ready, trial=trial), "seeds": number}
        if against is not None:
            runs.plan_finetuning(ready.model_copy(update={"model": str(against)}), trial=0)
        return Plan(facts)


def seeds_of(ready: FinetuneConfig, seeds: int | None, keep_best: bool) -> int:
    """Returns the number of seeds. Raises UsageError for the best of one."""
    if seeds is not None and seeds < 1:
        raise WrongValue(f"`seeds` is {seeds}; a number of 1 or more was expected.")
    number = runs.usual_seeds(ready) if seeds is None else seeds
    if seeds is None and number > 1:
        console.say(f"{ready.data} is small: training {number} seeds, one after another (--seeds 1 for a single run)")
    if keep_best and number == 1:
        raise UsageError("`keep_best` chooses among several seeds. Pass `seeds=5` too.")
    return number


@contextmanager
def settings_ready(call: Mapping[str, object]) -> Iterator[FinetuneConfig]:
    """Context with the settings of a call, in which its examples can be read. call: its arguments."""
    call = dict.fromkeys([*FinetuneOptions.__annotations__, *FINETUNE]) | {"settings": None} | dict(call)
    model, config = call["model"], call["config"]
    chosen = {"model": None if model is None else str(model), **chosen_of({**FINETUNE, **_FILE_SETTINGS}, call)}
    if isinstance(config, FinetuneConfig):
        check_alone(config, chosen)
    elif call["few_shot"] and config is not None:
        raise UsageError(f"`few_shot` and -c {config} exclude each other. Write `extends: {FEW_SHOT}` in the file.")
    overrides, train = overrides_of(call["settings"], call["overrides"]), call["train"]
    if config is None and train is None and not (chosen.get("data") or chosen.get("train_file") or overrides):
        raise UsageError("No training examples given. Pass `train=FILE`, or `data` and `data_dir`.")
    with ExitStack() as stack:
        files: dict[str, object] = {}
        task = config.task if isinstance(config, FinetuneConfig) else str(chosen.get("task"))
        row_of = TASKS[task].row_of if task in TASKS else None
        for name in ("train", "dev"):
            if call[name] is not None:
                files[f"{name}_file"] = path = stack.enter_context(memory.open_as(name, call[name], row_of=row_of))
                if memory.in_memory(path):
                    files["format"] = "jsonl"
        if isinstance(config, FinetuneConfig):
            yield config.model_copy(update=files)
            return
        ready = settings_of(chosen | files, FEW_SHOT if call["few_shot"] else config, overrides)
        if call["few_shot"] and ready.task != "few-shot":
            raise UsageError(f"`few_shot` and `task={ready.task}` exclude each other. Omit one of them.")
        yield ready


def chosen_of(names: Mapping[str, str], arguments: Mapping[str, Any]) -> dict[str, object]:
    """Returns the settings that a call chooses, by their dotted names: its arguments, then its `settings`.

    names: argument -> setting. An empty text or list is none.
    """
    chosen = {key: arguments[name] for name, key in names.items()}
    for key, value in chosen.items():
        if isinstance(value, Path):
            chosen[key] = str(value)
        elif key in ("text", "columns", "tabular", "train.track") and value is not None:
            chosen[key] = ((value,) if isinstance(value, str) else (*value,)) if len(value) else None
        elif value == "":
            chosen[key] = None
        elif callable(value):
            chosen[key] = "function"
        elif isinstance(value, Mapping):
            chosen[key] = _by_names(value)
    return chosen | dict(arguments["settings"] or {})


def overrides_of(settings: Mapping[str, object] | None, overrides: Sequence[str] | None) -> tuple[str, ...]:
    """Returns the settings of a call as texts: "name=null" for each of `settings` that is None, and `overrides`."""
    return (*(f"{name}=null" for name, value in (settings or {}).items() if value is None), *(overrides or ()))


def _by_names(value: Mapping[object, object]) -> dict[str, object]:
    """Returns a mapping of labels, which may be numbers, with their names."""
    return {str(one): _by_names(other) if isinstance(other, Mapping) else other for one, other in value.items()}


def check_alone(config: object, chosen: Mapping[str, object]) -> None:
    """Raises UsageError for a whole config beside settings by name."""
    if config is not None and (both := [name for name, value in chosen.items() if value not in (None, ())]):
        raise UsageError(f"{both[0]} and config exclude each other. Omit one of them.")


def settings_of(
    chosen: Mapping[str, Any], file: str | Path | None = None, overrides: tuple[str, ...] = ()
) -> FinetuneConfig:
    """Returns the settings of a run: of a file or of the data set's recipe, then the chosen ones, then key=value.

    The learning rate of the data set's recipe counts as not set, because narrow models need another one.
    """
    if "train.steps" in chosen or any(one.startswith("train.steps=") for one in overrides):
        raise UsageError(EPOCHS_HINT)

    def load(path: str | Path | None) -> FinetuneConfig:
        return configs.load_config(FinetuneConfig, path, overrides, **chosen)

    if file is not None or not (data := chosen.get("data")):
        return load(file)
    recipe = DATASETS[data].recipe
    rate = "" if (own := load(None).rate_is_set) else ", with a learning rate for the model's width"
    console.say(f"{data}: using the published settings of {recipe} (-c {recipe}){rate}; override any with key=value")
    return load(recipe) if own else load(recipe).with_rate_of_recipe()
