"""`bertie.pretrain`: from a corpus and a tokenizer to a pre-trained model."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bertie import settings as configs
from bertie.api.finetune import THEIRS as TRAINERS
from bertie.api.finetune import check_alone, chosen_of
from bertie.api.run import Run, run_folder
from bertie.errors import UsageError, arguments
from bertie.runs import pretrain as runs
from bertie.runs.arguments import COMMON, PRETRAIN
from bertie.runs.config import PretrainConfig
from bertie.text.tokenizer import Tokenizer
from bertie.train.callbacks import Callback
from bertie.train.rendezvous import one_process

THEIRS = {  # arguments of transformers
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


@arguments(**THEIRS)
def pretrain(
    corpus: str | Path | None = None,
    tokenizer: str | Path | Tokenizer | None = None,
    *,
    model: str | Path | None = None,
    objectives: Sequence[str] | Mapping[str, Any] | None = None,
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
    settings: Mapping[str, Any] | None = None,
    config: PretrainConfig | None = None,
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
        settings: Any other settings by their dotted names: {"optim.betas": (0.9, 0.98)}.
        config: All settings of a run, instead of the arguments above.
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
    """
    chosen: dict[str, Any] = {
        "corpus": None if corpus is None else str(corpus),
        "tokenizer": str(tokenizer) if isinstance(tokenizer, str | Path) else None,
        "objectives": None if objectives is None else options_of(objectives),
        **chosen_of(PRETRAIN, locals()),
    }
    check_alone(config, chosen)
    with ExitStack() as stack:
        if isinstance(tokenizer, Tokenizer):
            folder = stack.enter_context(TemporaryDirectory(prefix="bertie-tokenizer-"))
            tokenizer.save(folder)
            chosen["tokenizer"] = folder
        ready = config or configs.load(PretrainConfig, **chosen)
        if not (ready.corpus or ready.corpora):
            raise UsageError("No corpus given. Pass the folder that `bertie corpus` wrote.")
        if output is None:
            one_process("pretrain without output")
        run, temporary = stack.enter_context(run_folder(output))
        results = runs.pretrain(
            ready, run, resume=resume, overwrite=overwrite, allow_change=allow_change, callbacks=callbacks
        )
    return Run(run, results, temporary)


def options_of(objectives: Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of each objective by its name."""
    if isinstance(objectives, str):
        raise UsageError(f"objectives is {objectives!r}; a list of names was expected: [{objectives!r}].")
    return dict(objectives) if isinstance(objectives, Mapping) else {name: {} for name in objectives}
