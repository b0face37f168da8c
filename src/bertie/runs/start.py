"""The model a fine-tuning run starts from, its learning rate, and warnings about probable mistakes."""

from collections.abc import Sequence
from pathlib import Path

import xxhash

from bertie.console import console
from bertie.errors import DataError, UsageError
from bertie.io.tables import Example
from bertie.models import families
from bertie.models.config import EncoderConfig
from bertie.models.heads import HEADS
from bertie.models.model import TorchModel
from bertie.models.partial import freeze, freeze_names, reinitialize
from bertie.models.saving import check_vocabulary
from bertie.models.sentence import read_sentence
from bertie.models.variant import Variant, read_labels, read_public
from bertie.runs.config import FinetuneConfig
from bertie.runs.models import check_length, model_folder
from bertie.tasks import Task, task_name
from bertie.text.tokenizer import Tokenizer
from bertie.train.schedule import ABSURD, BASE_WIDTH, usual_rate, warmup_warnings
from bertie.training_facts import read_training_facts

MANY_EPOCHS = 80  # a plan with as many draws a warning


def start_model(
    config: FinetuneConfig, start: Path, task: Task, feature_size: int | None = None
) -> tuple[TorchModel, list[str]]:
    """Returns the model in the folder `start` with the task's heads, and the names of the modules that it lacks.

    Those start from random weights, as heads do unless task and labels are the same.

    Raises UsageError for int8 weights, a max_length beyond the positions, frozen random weights, or a pattern without
    the head of pre-training (except from scratch); DataError for another model's vocabulary.
    """
    tokenizer, lacking, seed = Tokenizer.load(start), list[str](), config.train.seed
    overrides = task.overrides(read_sentence(start, {})) | _of_head(config, task)
    if feature_size is not None:
        overrides |= _reading(families.config(start), feature_size, config)
    if config.from_scratch:
        model = families.build(start, heads=task.heads, seed=seed, **overrides)
    else:
        fresh = not (task.keeps_head or _same_task(task, start))
        model, report = families.load(start, heads=task.heads, seed=seed, fresh_heads=fresh, overrides=overrides)
        model.check_trainable(start)
        lacking = sorted({name.rpartition(".")[0] for name in report.fresh})
        task.check_head(not any(name.startswith(f"heads.{task.head}.") for name in report.fresh))
        if report.dropped:
            console.say(
                f"{config.model} was fine-tuned for another task or other labels, so the head starts from "
                f"random weights ({', '.join(report.dropped)} not used)."
            )
        console.say(f"{config.model}: {report}", level=1)
    if config.reinit:
        reinitialize(model, config.reinit, seed=config.train.seed)
    if config.freeze is not None:
        freeze(model, config.freeze)
        layers = model.config.num_hidden_layers
        if config.from_scratch or config.freeze + config.reinit > layers:
            random = "from_scratch=true" if config.from_scratch else f"reinit={config.reinit} of {layers} layers"
            raise UsageError(
                f"freeze={config.freeze} and {random} exclude each other: random weights must be trained. Omit one."
            )
    freeze_names(model, config.freeze_names)
    pooled = any(needs.pooler for needs in model.needs)
    if not any(p.requires_grad and (pooled or ".pooler." not in name) for name, p in model.named_parameters()):
        by = f"freeze={config.freeze}" if config.freeze is not None else f"freeze_names={','.join(config.freeze_names)}"
        raise UsageError(f"{by} leaves nothing to train in this task. Freeze fewer layers.")
    check_vocabulary(tokenizer, model.config, start)
    check_length(config.max_length, model.config.max_length, config.model)
    model.tokenizer, model.labels, model.problem_type = tokenizer, task.labels, task.problem_type
    model.companions.update(task.companions())
    return model, lacking


def _of_head(config: FinetuneConfig, task: Task) -> dict[str, object]:
    """Returns the settings of a run for the task's head. Raises UsageError for one that the head does not follow."""
    follows = HEADS[task.output].settings if task.output in HEADS else ()
    overrides = dict[str, object]()
    for option, name in (("pooling", "label_pooling"), ("lstm", "label_lstm")):
        value = getattr(config, option)
        if value is None:
            continue
        if name not in follows:
            instead = " For the pooling of sentence vectors, use task_options.pooling." if task.head == "embed" else ""
            raise UsageError(f"task={config.task} has no head that follows {option}={value}. Omit it.{instead}")
        overrides[name] = value
    return overrides


def _reading(shape: EncoderConfig, size: int, config: FinetuneConfig) -> dict[str, object]:
    """Returns settings with which a model reads vectors of this size. Raises DataError for one that reads others."""
    if shape.feature_size == size:
        return {}
    if shape.feature_size is not None:
        raise DataError(
            f"The feature vectors have {size:,} numbers, and {config.model} reads vectors of {shape.feature_size:,}."
        )
    return {"visual_embedding_dim": size} if config.features.kind == "regions" else {"frame_size": size}


def _same_task(task: Task, start: Path) -> bool:
    """Whether the model was fine-tuned for the same task with the same labels, so that its head can be kept."""
    if read_training_facts(start).task not in ("", task_name(task)):
        return False
    return not task.labels or read_labels(read_public(start), str(start)) == task.labels


def with_rate(config: FinetuneConfig, model: TorchModel, notes: list[str]) -> FinetuneConfig:
    """Returns the config with a learning rate for the model's size, unless one was set. `notes` gets the reason.

    The rate of a data set's recipe is not set by the user: it is for models of BERT-base's width and wider ones.
    """
    if config.rate_is_set:
        return config
    width, default = model.config.hidden_size, FinetuneConfig.model_fields["optim"].default.lr
    if width >= BASE_WIDTH and config.optim.lr != default and config.lora.rank is None:
        return config
    rate, million = _usual_rate(config, model), sum(p.numel() for p in model.parameters()) / 1e6
    if rate != config.optim.lr:
        why = f"chosen for a model of {million:.3g} M parameters; for BERT-base it is {config.optim.lr:g}"
        notes.append(f"optim.lr {rate:g}, {why}")
    return config.model_copy(update={"optim": config.optim.model_copy(update={"lr": rate})})


def _usual_rate(config: FinetuneConfig, model: TorchModel) -> float:
    return _rate(config, model.variant, model.config)


def usual_rate_of(config: FinetuneConfig) -> float:
    """Returns the usual learning rate of the model that a run starts from, whose weights are not read."""
    model = model_folder(config.model)
    return _rate(config, families.family(model), families.config(model))


def _rate(config: FinetuneConfig, variant: Variant | None, shape: EncoderConfig) -> float:
    """Returns the learning rate of a family, or that of a width."""
    own = variant.random_rate if variant else None
    return own or usual_rate(shape.hidden_size, lora=config.lora.rank is not None)


def odd(config: FinetuneConfig, model: TorchModel, train: Sequence[Example]) -> list[str]:
    """Returns warnings about probable mistakes: learning rate, warm-up, number of epochs, label column."""
    warnings = []
    usual = _usual_rate(config, model)
    if config.optim.lr > ABSURD * usual:
        warnings.append(f"optim.lr is {config.optim.lr:g}; the usual value for models of this size is {usual:g}.")
    warnings += warmup_warnings(config.optim, config.train.steps)
    if config.epochs >= MANY_EPOCHS:
        warnings.append(f"epochs is {config.epochs:g}; usual values are 3 to 20.")
    labels = [example.label for example in train]
    names = {label for label in labels if isinstance(label, str)}
    if len(labels) >= 20 and len(names) > 0.9 * len(labels):
        warnings.append(
            f"{len(names):,} of {len(labels):,} training examples have a unique label: the label column "
            "looks like an id. Choose the label column with --label."
        )
    return warnings


def hash_weights(model: TorchModel) -> str:
    """Returns a hash of all weights, including those of a new head."""
    digest = xxhash.xxh3_128()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()
