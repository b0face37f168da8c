"""`bertie.pretrain`: from a corpus and a tokenizer to a pre-trained model."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Unpack

from bertie import settings as configs
from bertie.api.finetune import FOREIGN_ARGUMENTS as TRAINERS
from bertie.api.finetune import check_alone, chosen_of, overrides_of
from bertie.api.options import PretrainOptions
from bertie.api.run import Plan, Run, run_in
from bertie.console import console
from bertie.errors import UsageError, arguments
from bertie.runs import pretrain as runs
from bertie.runs.arguments import COMMON, PRETRAIN
from bertie.runs.config import PretrainConfig
from bertie.runs.pretraining import PreparedRun
from bertie.runs.work import with_minutes
from bertie.text.tokenizer import Tokenizer
from bertie.train.callbacks import Callback
from bertie.train.rendezvous import is_main, one_process

_FOREIGN_ARGUMENTS = {  # arguments of transformers
    **{name: ours for name, ours in TRAINERS.items() if ours in {*COMMON, "output"}},
    "max_steps": "steps",
    "num_train_steps": "steps",
    "train_dataset": "corpus",
    "train": "corpus",
    "train_file": "corpus",
    "tokenizer_name": "tokenizer",
    "model_name_or_path": "model",
    "objective": "objectives",
}


@arguments(**_FOREIGN_ARGUMENTS)
def pretrain(
    corpus: str | PathLike[str] | None = None,
    tokenizer: str | Path | Tokenizer | None = None,
    *,
    model: str | Path | None = None,
    objectives: Sequence[str] | Mapping[str, object] | None = None,
    steps: int | None = None,
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
    features: str = "",
    from_: str | Path | None = None,
    minutes: float | None = None,
    settings: Mapping[str, object] | None = None,
    overrides: Sequence[str] = (),
    config: PretrainConfig | str | Path | None = None,
    output: str | Path | None = None,
    resume: str = "auto",
    overwrite: bool = False,
    allow_change: Sequence[str] = (),
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Pre-trains a model on a corpus.

    Args:
        corpus: Folder that `bertie corpus` wrote.
        tokenizer: A tokenizer, or its folder. Default: that of the model to continue from.
        model: A preset, such as "bert-mini", or a model folder to continue from.
        objectives: Names, such as ["mlm", "nsp"], or names with their options: {"mlm": {"rate": 0.2}}.
        steps: Steps of the run.
        lr: Peak learning rate.
        batch_size: Sequences of a step.
        max_length: Tokens of a sequence.
        weight_decay: Weight decay of AdamW.
        warmup: Steps in which the rate rises, or below 1 their fraction.
        seed: Seed of the weights, the order, the masks and dropout.
        device: cpu, cuda, cuda:1, mps or auto.
        precision: fp32, bf16 or auto.
        patience: Validations without an improvement after which the run ends.
        metric: Metric of a validation that stops the run. Default: the loss.
        track: Experiment trackers: tensorboard, mlflow, wandb, trackio.
        features: Column of feature vectors.
        from_: Run to repeat, on the same corpus and tokenizer: its settings, which the arguments override.
        minutes: Approximate training time, which sets the steps after a trial of a few steps.
        settings: Any other settings by their dotted names: {"optim.betas": (0.9, 0.98)}.
        overrides: Settings as texts, "optim.betas=[0.9, 0.98]", which override all others.
        config: YAML file of settings, or the name of a recipe, which the arguments override; or all settings of a
            run, instead of the arguments above.
        output: Run folder to write. Default: a temporary one, which `Run.save` keeps.
        resume: "auto" continues a run that was stopped, from its newest checkpoint; "never" refuses; or a checkpoint.
        overwrite: Whether to delete first what Bertie wrote to the folder.
        allow_change: Settings that may differ from those of the run that is resumed.
        callbacks: Called after every step and validation: early stopping, trackers, your own.

    Returns:
        The run, with `scores` on held-out text, `model` and `report`.

    Raises:
        DataError: The corpus is missing, damaged or too small, or the vocabulary does not belong to the model.
        UsageError: A setting is wrong, or the folder contains another run.
        Stopped: The run was interrupted. The same call resumes it.

    Example:
        >>> settings = {"model": "bert-tiny", "steps": 2, "batch_size": 4, "max_length": 32}
        >>> run = bertie.pretrain("corpora/notes", "tokenizers/notes", **settings)
        >>> run.model.can
        ('embed', 'similarity', 'fill_mask', 'perplexity', 'next_sentence')
    """
    call = dict(locals())
    with _ready(call) as ready:
        if output is None:
            one_process("pretrain without output")
        work = partial(
            runs.run_pretrain,
            ready,
            resume=resume,
            overwrite=overwrite,
            allow_change=tuple(allow_change),
            reference_run=None if from_ is None else Path(from_),
            callbacks=callbacks,
        )
        return run_in(output, work, partial(pretrain, **call))


@arguments(*PretrainOptions.__annotations__, **_FOREIGN_ARGUMENTS)
def plan_pretrain(
    corpus: str | PathLike[str] | None = None,
    tokenizer: str | Path | Tokenizer | None = None,
    *,
    trial: float | None = None,
    **options: Unpack[PretrainOptions],
) -> Plan:
    """Checks everything that a run needs, without training, and forecasts its cost by a trial on this machine.

    The corpus is encoded for the plan, and the run uses that.

    Args:
        corpus: Folder that `bertie corpus` wrote.
        tokenizer: A tokenizer, or its folder.
        trial: Seconds of the trial. Default: 30, or a stored trial of the same run. 0: no trial.
        **options: The settings of `pretrain`.

    Returns:
        The plan.

    Raises:
        As `pretrain`.

    Example:
        >>> settings = {"model": "bert-tiny", "steps": 2, "batch_size": 4, "max_length": 32}
        >>> plan = bertie.plan_pretrain("corpora/notes", "tokenizers/notes", **settings, trial=0)
        >>> plan.forecast.seconds < 60
        True
    """
    with _ready({**options, "corpus": corpus, "tokenizer": tokenizer}) as ready:
        return Plan(runs.plan_pretraining(ready, trial=trial), runs.summarize_plan)


@contextmanager
def _ready(call: Mapping[str, object]) -> Iterator[PretrainConfig]:
    """Context with the settings of a call. call: its arguments."""
    call = dict.fromkeys(PretrainOptions.__annotations__) | {"output": None, "overwrite": False} | dict(call)
    corpus, tokenizer, objectives, config = (call[name] for name in ("corpus", "tokenizer", "objectives", "config"))
    chosen: dict[str, object] = {
        "corpus": None if corpus is None else fspath(corpus),
        "tokenizer": str(tokenizer) if isinstance(tokenizer, str | Path) else None,
        "objectives": {name: {} for name in objectives} if isinstance(objectives, Sequence) else objectives,
        "features.column": call["features"] or None,
        **chosen_of(PRETRAIN, call),
    }
    overrides = overrides_of(call["settings"], call["overrides"])
    again = None if call["from_"] is None else Path(call["from_"])
    if again is not None and config is not None:
        raise UsageError(
            f"`config` and `from_` cannot be combined. `from_` is `config={again / 'run.yaml'}` with a check of the "
            "data."
        )
    if again is not None and not (again / "run.yaml").is_file():
        raise UsageError(f"{again} is not a run: it has no run.yaml. Pass the folder of a run of bertie pretrain.")
    with ExitStack() as stack:
        if isinstance(tokenizer, Tokenizer):
            folder = stack.enter_context(TemporaryDirectory(prefix="bertie-tokenizer-"))
            tokenizer.save(folder)
            chosen["tokenizer"] = folder
        if isinstance(config, PretrainConfig):
            check_alone(config, chosen)
            ready = config
        else:
            ready = configs.load_config(
                PretrainConfig, config if again is None else again / "run.yaml", overrides, **chosen
            )
        typed = {one.partition("=")[0] for one in overrides} | {key for key, one in chosen.items() if one is not None}
        if call["minutes"] is not None and "train.steps" in typed:
            raise UsageError("`minutes` sets train.steps. Pass only one of the two.")
        if not (ready.corpus or ready.corpora):
            raise UsageError("No corpus given. Pass the folder that `bertie corpus` wrote: `corpus=FOLDER`.")
        if call["minutes"] is not None:
            begun = None if call["overwrite"] or call["output"] is None else Path(call["output"])
            ready = with_minutes(ready, call["minutes"], begun, PreparedRun)
        if "train.batch_size" in typed:
            _tell_of_phases(ready)
        yield ready


def _tell_of_phases(ready: PretrainConfig) -> None:
    """Warns of phases that have a batch size of their own."""
    own = ", ".join(str(number) for number, phase in enumerate(ready.phases, 1) if phase.batch_size)
    if own and is_main():
        console.warn(
            f"train.batch_size does not change the phases with a batch_size of their own ({own}). Set theirs in "
            "`phases`, or lower train.micro_batch_size to save memory."
        )
