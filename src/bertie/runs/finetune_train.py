"""The second stage of a fine-tuning run: training, with evaluations that select the weights, up to RUN/model."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from bertie.checksums import CHECKSUMS
from bertie.console import console
from bertie.costs.meter import Meter
from bertie.errors import UsageError
from bertie.files import read_json, write_json
from bertie.folders import new_folder
from bertie.models import families
from bertie.models.files import MODEL_FOLDER
from bertie.models.files import hash_model_folder as folder_hash
from bertie.models.model import TorchModel
from bertie.runs import usage
from bertie.runs.finetune_prepare import Prepared
from bertie.runs.folder import RunFolder
from bertie.runs.layout import BEST, SCORE
from bertie.runs.models import model_folder
from bertie.train import log
from bertie.train.callbacks import improves, is_loss, without_callbacks
from bertie.train.checkpoint import Checkpoint
from bertie.train.config import TrainConfig
from bertie.train.loop import Result, fit
from bertie.train.precision import choose_device
from bertie.training_facts import TrainingFacts, write_training_facts

ADAPTER = "adapter"  # of LoRA, in the folder of the merged model
NOT_OF_A_MODEL = shutil.ignore_patterns(SCORE, CHECKSUMS)  # in a run's best/
FIRST_LOOK = 50  # dev examples tried before training, so that a broken set-up fails in seconds, not at the first dev


@dataclass(frozen=True)
class Trained:
    """A run whose training has ended. Its weights are in RUN/model, or the best ones in RUN/best."""

    prepared: Prepared
    run: Path
    result: Result
    meter: Meter

    @property
    def evaluations(self) -> Sequence[Mapping[str, float]]:
        """The evaluations during training, in order: step, loss and metrics."""
        return read_evaluations(self.run)


def train_run(prepared: Prepared, run: Path, resume: str) -> Trained:
    """Trains the model, and saves it. resume: as for `fit`."""
    config, model, task = prepared.config, prepared.model, prepared.task
    for note in prepared.notes:
        console.say(note)
    for warning in prepared.warnings:
        console.warn(warning)
    meter = usage.meter(config.train.device)
    model.to(choose_device(config.train.device))  # for the first look, and for features that are computed once
    measure_run(prepared, FIRST_LOOK)
    result = fit(
        model,
        task,
        prepared.source.with_computed(task.computed(model, prepared.train.sequences)),
        train=_train_config(prepared),
        optim=config.optim,
        run=run,
        config=config,
        identity=prepared.identity,
        evaluate=partial(_evaluate, prepared, run),
        save_model=partial(save_settled, prepared),
        resume=resume,
        allow_change=None,
        begin=partial(_begin, prepared, run),
        callbacks=[prepared.callbacks],
        meter=meter,
    )
    if prepared.lora is not None:
        prepared.lora.detach(model)  # the checkpoints have its matrices, and the model their sums
    return Trained(prepared, run, result, meter)


def _train_config(prepared: Prepared) -> TrainConfig:
    """Returns the settings of the loop. No pass is recorded where sums of LoRA change between steps, or its size."""
    train = without_callbacks(prepared.config.train, prepared.metric)
    changes = bool(prepared.model.companions) or train.micro_batch_size == "auto"
    return train.model_copy(update={"graphs": False}) if changes else train


def measure_run(prepared: Prepared, most: int | None = None) -> dict[str, float]:
    """Returns loss and metrics of the (first) examples that select the weights, dev if no others do.

    Those with unknown labels count only in the metrics.
    """
    model, task = prepared.model, prepared.task
    settle_weights(prepared)
    was_training = model.training
    model.eval()
    scores, totals, counts = task.scores(), dict[str, float](), dict[str, float]()
    for part, logits in prepared.looked_at.logits(prepared.predictor, most):
        targets = task.targets(part.examples, part.sequences)
        for name, term in task.dev_losses(model, part.sequences, targets, torch.from_numpy(logits)).items():
            totals[name] = totals.get(name, 0.0) + float(term.total)
            counts[name] = counts.get(name, 0.0) + term.count
        task.count(scores, part.examples, task.decode(logits, part.sequences, part.examples))
    model.train(was_training)
    return {"loss": sum(totals[name] / (counts[name] or 1) for name in totals), **scores.compute()}


def settle_weights(prepared: Prepared) -> None:
    """Sets the weights that the loss does not train, from all others in float32."""
    model = prepared.model
    was_training, dtype = model.training, model.compute_dtype
    model.eval()
    model.compute_dtype = None
    prepared.task.settle(model, prepared.train.sequences, prepared.source.targets)
    model.compute_dtype = dtype
    model.train(was_training)


# Folders ------------------------------------------------------------------------------------------------------------


def save_settled(prepared: Prepared, folder: Path) -> None:
    """Writes the model's folder, with the weights that the loss does not train."""
    settle_weights(prepared)
    save_trained_model(prepared, folder)


def save_trained_model(
    prepared: Prepared,
    folder: Path,
    *,
    facts: TrainingFacts | None = None,
    files: Mapping[str, object] | None = None,
) -> None:
    """Writes the model's folder atomically.

    facts: those of the training, where settings of the task were fitted. files: more JSON files, by name.
    """
    with new_folder(folder, MODEL_FOLDER, keep_strangers=True) as unfinished:
        write_model(prepared, unfinished, facts=facts)
        for name, value in (files or {}).items():
            write_json(unfinished / name, value)


def write_model(prepared: Prepared, folder: Path, *, weights: bool = True, facts: TrainingFacts | None = None) -> None:
    """Writes the model's files, or all but its weights."""
    lora, start = prepared.lora, prepared.config.model
    if lora is not None:
        lora.sync(prepared.model)
    families.save(prepared.model, folder, weights=weights, training_facts=facts)
    if lora is not None and weights:
        lora.write(prepared.model, folder / ADAPTER, start, folder_hash(model_folder(start)))
        write_training_facts(folder / ADAPTER, facts or prepared.model.training_facts)
    for name, value in prepared.task.files(prepared.model.config, prepared.config.max_length).items():
        (folder / name).parent.mkdir(exist_ok=True)
        write_json(folder / name, value)


def take_model(source: Path, out: Path, *, scored: bool = False) -> None:
    """Copies the model of a folder, without its list of files. scored: whether its score is copied too."""
    with new_folder(out, MODEL_FOLDER, keep_strangers=True) as unfinished:
        ignore = shutil.ignore_patterns(CHECKSUMS) if scored else NOT_OF_A_MODEL
        shutil.copytree(source, unfinished, dirs_exist_ok=True, ignore=ignore)


def reload_weights(model: TorchModel, folder: Path) -> None:
    """Takes the weights of a model folder, which has none of a companion."""
    saved, _ = families.load(folder)
    own = {name: value for name, value in model.state_dict().items() if name.startswith("companions.")}
    model.load_state_dict(saved.state_dict() | own)


# The best weights ---------------------------------------------------------------------------------------------------


def read_evaluations(run: Path, last_step: int | None = None) -> Sequence[Mapping[str, float]]:
    """Returns the evaluations of a run, up to a step, in order: step, loss and metrics."""
    lines = (line for line in log.read_log(run) if line["kind"] == "valid")
    return [line for line in lines if last_step is None or line["step"] <= last_step]


def best_value(looks: Sequence[Mapping[str, float]], metric: str) -> float:
    """Returns the best value of a metric in some evaluations."""
    value: float = (min if is_loss(metric) else max)(line[metric] for line in looks)
    return value


def _evaluate(prepared: Prepared, run: Path, step: int) -> dict[str, float]:
    values, metric = measure_run(prepared), prepared.metric
    if prepared.config.keeps_best and _is_best(run, metric, values[metric]):
        save_trained_model(prepared, run / BEST, files={SCORE: {metric: values[metric]}})
    return values


def _is_best(run: Path, metric: str, value: float) -> bool:
    path = run / BEST / SCORE
    return not path.exists() or improves(metric, value, float(read_json(path)[metric]))


def _begin(prepared: Prepared, run: Path, checkpoint: Checkpoint | None) -> None:
    """Prepares the folder. Best weights that are not of this run's steps up to the checkpoint are deleted."""
    if checkpoint is None or not checkpoint.belongs_to(run):  # of a run that was killed before its first checkpoint
        shutil.rmtree(run / BEST, ignore_errors=True)
        if checkpoint is not None and prepared.config.keeps_best:
            _take_best(checkpoint, run, prepared.metric)
    RunFolder(run).begin(partial(write_model, prepared, weights=False))


def _take_best(checkpoint: Checkpoint, run: Path, metric: str) -> None:
    """Copies the best weights so far of the run whose checkpoint this one starts from.

    Raises UsageError when later, better ones have replaced them.
    """
    source = checkpoint.folder.resolve().parent
    if not (looks := read_evaluations(source, checkpoint.step)):
        return
    best = best_value(looks, metric)
    if not (source / BEST / SCORE).is_file() or read_json(source / BEST / SCORE).get(metric) != best:
        raise UsageError(
            f"{checkpoint.folder} cannot be resumed with select=best: {source / BEST} no longer has the best weights "
            f"of its first {checkpoint.step:,} steps ({metric} {best:z.4f}). Choose a later checkpoint, or "
            "select=last."
        )
    take_model(source / BEST, run / BEST, scored=True)
