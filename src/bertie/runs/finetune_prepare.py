"""The first stage of a fine-tuning run: everything that it needs, made before its folder is created.

    Examples -> Prepared -> Trained (finetune_train.py) -> Assessed (finetune_assess.py)

Bad input therefore leaves no files.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import xxhash

from bertie.errors import DataError, TextTooLong, UsageError
from bertie.infer.batching import CHUNK_ROWS
from bertie.infer.engine import Array
from bertie.infer.pipeline import TextCount, TextPipeline
from bertie.infer.predict import LABELLED, Predictor
from bertie.io.lines import BadRecord
from bertie.io.tables import Example
from bertie.models.codec import only_here
from bertie.models.lora import Lora
from bertie.models.model import TorchModel
from bertie.models.saving import own_settings
from bertie.models.sentence import read_sentence, with_activation
from bertie.runs import balance
from bertie.runs.config import FinetuneConfig
from bertie.runs.examples import Examples, nothing_left
from bertie.runs.judges import with_judgments
from bertie.runs.models import model_folder
from bertie.runs.start import hash_weights, odd, start_model, with_rate
from bertie.runs.untrained import start_folder
from bertie.settings import flatten
from bertie.tasks import Task, with_task
from bertie.tasks.losses import LossFunction
from bertie.tasks.source import Targets, TaskSource, batch_of_examples, steps_of
from bertie.text.sequences import VECTORS, Sequences
from bertie.train.callbacks import LOSS, Callback, Callbacks, callbacks_of, metric_of
from bertie.train.precision import choose_device
from bertie.train.rendezvous import world_size
from bertie.training_facts import TooLong, TrainingFacts

_EVALUATIONS = 10  # evaluations on dev in a long run


@dataclass(frozen=True)
class Labeled:
    """Examples with their token ids."""

    examples: Sequence[Example]
    sequences: Sequences

    def __len__(self) -> int:
        return self.sequences.examples

    @cached_property
    def fingerprint(self) -> str:
        """Changes with the token ids, the feature vectors and the labels."""
        ids = self.sequences
        labels = "\n".join(str(example.label) for example in self.examples)
        digest = xxhash.xxh3_128(ids.input_ids.tobytes() + ids.starts.tobytes() + labels.encode())
        if VECTORS in ids.extra:
            digest.update(ids.extra[VECTORS].tobytes())
        if ids.tabular is not None:
            digest.update(ids.tabular.tobytes())
        return digest.hexdigest()

    def logits(self, predictor: Predictor, most: int | None = None) -> Iterator[tuple["Labeled", Array]]:
        """Yields the (first) examples with their logits, in chunks as in prediction."""
        total = min(most or len(self), len(self))
        for start in range(0, total, CHUNK_ROWS):
            stop = min(start + CHUNK_ROWS, total)
            part = self.sequences.part(start, stop)
            yield Labeled(self.examples[start:stop], part), predictor.logits(part)


@dataclass(frozen=True)
class Prepared:
    """Everything that a run needs. Training changes the weights of its model, and nothing else of it."""

    config: FinetuneConfig  # with the learning rate for the model
    examples: Examples
    model: TorchModel  # with the task's heads
    predictor: Predictor  # the model with the task, for evaluation
    train: Labeled
    dev: Labeled  # what is reported
    selecting: Labeled | None  # what selects the weights, where dev does not
    covering: Labeled | None  # what prediction sets rest on, if there are sets
    source: TaskSource
    callbacks: Callbacks  # those of the settings and of the caller
    loss: LossFunction | None
    lora: Lora | None  # the matrices that LoRA trains
    fresh: Sequence[str]  # the modules that start from random weights
    notes: Sequence[str]
    warnings: Sequence[str]
    identity: Mapping[str, str]
    """Contents of the model and the files instead of paths: a run can be resumed after its files have moved, but not
    after they have changed."""

    @property
    def task(self) -> Task:
        """The task."""
        return self.predictor.task

    @property
    def metric(self) -> str:
        """The metric that selects the weights."""
        return selecting_metric(self.config, self.examples)

    @property
    def looked_at(self) -> Labeled:
        """The examples of an evaluation during training."""
        return self.selecting or self.dev

    @property
    def looked_at_name(self) -> str:
        """What the report calls these examples."""
        return "held-out training" if self.selecting else "dev"

    def settings(self) -> dict[str, object]:
        """The fingerprint of the run: all settings, and the content of the files in them."""
        return flatten(self.config.model_dump(mode="json")) | dict(self.identity)


def prepare_run(
    config: FinetuneConfig,
    examples: Examples,
    *,
    callbacks: Sequence[Callback] = (),
    loss: LossFunction | None = None,
) -> Prepared:
    """Returns what a run needs. Raises DataError and UsageError for everything that would fail later."""
    if examples.columns.recognized and not config.data:  # saved, so that the same rows are read when it is run again
        config = config.model_copy(update={"text": examples.columns.text, "label": examples.columns.label or ""})
    metric = selecting_metric(config, examples)
    all_callbacks = Callbacks([*callbacks_of(config.train, metric), *callbacks])
    if config.train.metric:  # refused now, not at the first evaluation
        computed, usual = examples.task.scores().compute(), examples.task.metrics_for(examples.dev)
        known = computed if {*usual} <= {*computed} else usual  # other rows have other metrics
        metric_of(dict.fromkeys((LOSS, *known), 0.0), metric)
    start = start_folder(config, examples.train)
    task, continued = examples.task.continued(read_sentence(start, {}), config.task_options)
    of_ranks = _check_batch_size(config, task)
    notes = [*examples.notes, *continued]
    if config.weight and "weighted_scores" not in task.honours:
        notes.append("weights of rows are in the loss; the scores of this task have none")
    sizes = {example.vectors.shape[1] for example in examples.train if example.vectors is not None}
    model, fresh = start_model(config, start, task, max(sizes, default=None))
    lora = _lora(config, task, model, fresh, notes)
    # Only a pair is scored by a cross-encoder, so a model of single texts must not look like one.
    model.public = with_activation(model.public, task.activation_of_score if examples.texts == 2 else None)
    model.training_facts = training_facts(config, examples, task)
    predictor = Predictor(model)
    task = task.with_tokenizer(predictor.tokenizer)
    if task.honours:
        task = task.with_loss(balance.loss_options(config, task, examples.train, loss))
    predictor = predictor.replace(task_or_none=task)
    if own := only_here(own_settings(model)):
        notes.append(own)
    config = with_rate(config, model, notes)
    warnings = odd(config, model, examples.train if task.labels else ())
    warnings += of_ranks + task.warnings(examples.train) + balance.warning(config, task, examples.train)
    encode = partial(_encode, config, predictor.pipeline, notes)
    train, dev = encode(examples.train, "training"), encode(examples.dev, "dev")
    selecting = encode(examples.select, "selecting") if examples.select else None
    covering = encode(examples.cover, "held-out") if examples.cover else None
    targets = with_judgments(task, examples.train, task.targets(examples.train, train.sequences), config.train.device)
    _check_targets(task, train, targets, notes)
    if note := task.cut_targets(examples.train, targets):
        notes.append(f"training: {note}")
    source = TaskSource(
        train.sequences,
        targets,
        batch_size=config.train.batch_size,
        micro_batch_size=config.train.largest_micro_batch,
        seed=config.train.seed,
        order=examples.order(config.train.seed),
    )
    identity = {"model": hash_weights(model), "train_file": source.fingerprint, "dev_file": dev.fingerprint}
    others = (("selecting", selecting), ("covering", covering))
    identity |= {name: rows.fingerprint for name, rows in others if rows}
    identity |= {"data_dir": ""} | ({} if loss is None else {"loss_function": f"{loss.__module__}.{loss.__qualname__}"})
    return Prepared(
        config,
        examples,
        model,
        predictor,
        train,
        dev,
        selecting,
        covering,
        source,
        all_callbacks,
        loss,
        lora,
        fresh,
        notes,
        warnings,
        identity,
    )


def _lora(config: FinetuneConfig, task: Task, model: TorchModel, fresh: Sequence[str], notes: list[str]) -> Lora | None:
    """Adds what LoRA trains to the model, if it does. Raises UsageError for settings that exclude it."""
    own = config.lora
    if own.rank is None:
        if own != type(own)():
            raise UsageError("lora has no effect without a rank. Pass lora.rank=8 too, or omit its other settings.")
        return None
    others = ("from_scratch", "reinit", "freeze_names", "pooling", "lstm")
    chosen = next((name for name in others if getattr(config, name)), "freeze" if config.freeze is not None else "")
    if chosen or task.overrides(read_sentence(model_folder(config.model), {})):
        raise UsageError(
            f"lora trains small matrices beside frozen ones, and {chosen or f'task={config.task}'} changes the model "
            "in another way. Omit one of them."
        )
    alpha = 2.0 * own.rank if own.alpha is None else own.alpha
    modules = [name for name in fresh if name.startswith("encoder.")]
    lora = Lora(model, own.rank, alpha, own.targets, modules, config.train.seed, own.dropout)
    count = sum(one.numel() for _, *pair in lora.pairs for one in pair)
    heads = sum(one.numel() for name, one in model.own_parameters().items() if name in lora.saved)
    every = sum(one.numel() for one in model.own_parameters().values())
    notes.append(f"lora: {count:,} weights and the {heads:,} of the head are trained, instead of {every:,}")
    return lora


def check_run(config: FinetuneConfig, examples: Examples) -> None:
    """Raises what a run with this config would raise before its folder is made."""
    prepare_run(with_steps(config, examples.epoch), examples)
    choose_device(config.train.device)


def selecting_metric(config: FinetuneConfig, examples: Examples) -> str:
    """Returns the metric that selects the weights."""
    return config.train.metric or examples.metrics[0]


def with_steps(config: FinetuneConfig, examples: int) -> FinetuneConfig:
    """Returns the config with the number of steps of its epochs and, unless it was set, of steps between evaluations.

    A long run has `_EVALUATIONS` evaluations on dev: on a CPU, one of SQuAD's dev file takes as long as 500 steps. With
    patience, each epoch has one.
    """
    steps = steps_of(examples, batch_size=config.train.batch_size, epochs=config.epochs)
    known = {"steps": steps}
    if not {"train", "eval_every"} <= config.model_fields_set | config.train.model_fields_set:
        epoch = steps_of(examples, batch_size=config.train.batch_size, epochs=1)
        often = epoch if config.train.patience is not None else max(config.train.eval_every, -(-steps // _EVALUATIONS))
        known["eval_every"] = often
    return config.model_copy(update={"train": config.train.model_copy(update=known)})


def training_facts(config: FinetuneConfig, examples: Examples, task: Task) -> TrainingFacts:
    """Returns what the model's folder records of the training."""
    facts = TrainingFacts(
        max_length=config.max_length,
        too_long=_too_long(config, task),
        texts=examples.texts,
        text_columns=config.text,
        label_column=config.label,
        label_separator=config.label_separator,
        markup=config.markup,
        encoding="" if config.encoding == LABELLED.file.encoding else config.encoding,
        features=config.features if config.features.column else None,
    )
    return with_task(facts, saved_task(config, task))


def saved_task(config: FinetuneConfig, task: Task) -> Task:
    """Returns the task of the saved model, which may abstain. The scores of the run are those of all answers."""
    return task if config.abstain is None else task.with_abstain(config.abstain)


def _too_long(config: FinetuneConfig, task: Task) -> TooLong:
    return config.too_long or task.too_long


def _check_batch_size(config: FinetuneConfig, task: Task) -> list[str]:
    """Returns warnings. Raises UsageError for too few examples to compare."""
    size, ranks = config.train.batch_size, world_size()
    if task.whole_step:
        if size < task.least_batch * ranks:
            least = task.least_batch * ranks
            raise UsageError(f"This task compares the texts of a step. Set train.batch_size to at least {least}.")
        one = f"each of {ranks} processes compares only its own {size // ranks:,} examples of a step"
        return [f"{one}, so the loss differs from that of one process, which compares them all"] if ranks > 1 else []
    if task.least_batch > 1 and config.train.micro_batch_size == "auto":
        raise UsageError("This task compares the texts of a forward pass. Set train.micro_batch_size to a number.")
    if size // -(-size // (config.train.largest_micro_batch or size)) < task.least_batch:  # the smallest pass
        raise UsageError(
            "This task compares the texts of a forward pass. Set train.batch_size, and train.micro_batch_size if "
            f"it is set, to at least {task.least_batch}."
        )
    return []


def _check_targets(task: Task, train: Labeled, targets: Targets, notes: Sequence[str]) -> None:
    """Raises DataError where the loss would ignore every training example."""
    count = len(train.sequences)
    for start in range(0, count, CHUNK_ROWS):
        batch = batch_of_examples(train.sequences, np.arange(start, min(count, start + CHUNK_ROWS)), targets)
        if any(task.counts(batch).values()):
            return
    more = "".join(f" {note}." for note in notes)
    raise DataError(f"The model can learn nothing from the {len(train):,} training examples.{more}")


def _encode(
    config: FinetuneConfig, pipeline: TextPipeline, notes: list[str], examples: Sequence[Example], name: str
) -> Labeled:
    """Returns examples with their token ids. name: as messages call them. `notes` gets what is to be said of them."""
    tokenizer, too_long = pipeline.tokenizer, _too_long(config, pipeline.task)
    if bad := [row for row in map(pipeline.readable, examples) if isinstance(row, BadRecord)]:
        change = (
            ", or change features.patch_size, features.picture_size or max_length" if config.features.column else ""
        )
        raise DataError(
            f"{len(bad):,} of {len(examples):,} {name} examples cannot be read. Line {bad[0].line}: "
            f"{bad[0].reason}. Remove them{change}."
        )
    ids = pipeline.task.encode(examples, tokenizer, max_length=config.max_length, too_long=too_long)
    count = TextCount(too_long, config.max_length)
    count.add(ids, tokenizer)
    if count.long and too_long == "error":
        lines = ", ".join(str(examples[i].line) for i in ids.too_long[:5])
        raise TextTooLong(
            f"{count.long:,} of {count.rows:,} {name} texts are longer than {config.max_length} tokens, on lines "
            f"{lines}{' ...' if count.long > 5 else ''}. "
            "Raise max_length, or choose too_long=truncate or too_long=window."
        )
    notes += [f"{name}: {note}" for note in count.notes]
    if VECTORS not in ids.extra and len(bare := nothing_left(ids, tokenizer)):
        lines = ", ".join(str(examples[i].line) for i in bare[:5].tolist())
        more = ", ..." if len(bare) > 5 else ""
        notes.append(f"{name}: {len(bare):,} examples are empty after cleaning (line {lines}{more})")
    return Labeled(examples, ids)
