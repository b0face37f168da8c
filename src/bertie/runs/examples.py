"""The data of a fine-tuning run: the files in its config, read by their task, and a dev split."""

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertie.console import console
from bertie.errors import BertieError, DataError, UsageError
from bertie.io.lines import reads_as_utf8
from bertie.io.streams import FAILURES, open_bytes, suffix_of
from bertie.io.table_format import RECOGNISED, Columns, LabelNames, TableFormat
from bertie.io.tables import Example, SkipReport
from bertie.io.tagged import sentences
from bertie.io.words import TaggedExample
from bertie.metrics.calibration import set_cut
from bertie.order import MixedOrder, balanced, key, taken
from bertie.runs.balance import check_honoured
from bertie.runs.config import HELD_OUT_SHARE, FinetuneConfig, LabeledFiles
from bertie.runs.splits import SPLIT_SEED, ExampleSplit, check_times
from bertie.tasks import TASKS, Task
from bertie.tasks.capabilities import ReadsColumns
from bertie.tasks.datasets import DATASETS, Dataset
from bertie.tasks.several import SeveralTask
from bertie.tasks.text2text import Text2TextTask
from bertie.text.sequences import Sequences
from bertie.text.tokenizer import Tokenizer
from bertie.train.callbacks import is_loss

SEVERAL, WRITTEN = "several", "text2text"  # the tasks that `mix` is for
SELECTING = 1_000  # training examples: of fewer, none are held out to select weights
LEARNED = 300  # training examples that are evaluated on where none is held out
LEARNED_NOTE = "no dev file, and no example is held out: the scores are those of examples that were learned from"
QUOTED_CELL = re.compile(r'"[^"]*(?:""[^"]*)+"', re.DOTALL)  # a text with quotation marks, as programs quote it
PARTED = 0.8  # of the dev examples of a set whose training file is not to be had: to learn from
KNOWN = 0.1  # of the dev texts, that are training texts: a note is made of more


@dataclass(frozen=True)
class Examples:
    """The examples of a run. texts: number of text columns; notes: which columns were read, what was skipped, and
    warnings."""

    task: Task
    train: list[Example]
    dev: list[Example]
    metrics: tuple[str, ...]
    texts: int = 1
    notes: list[str] = field(default_factory=list)
    columns: Columns = RECOGNISED.columns  # of the training file
    sizes: tuple[int, ...] = ()  # training examples of each of several tasks
    taken: tuple[int, ...] = ()  # and how many of them an epoch has
    select: list[Example] = field(default_factory=list)  # that select the weights; none: dev does
    cover: list[Example] = field(default_factory=list)  # for prediction sets
    balanced: bool = False  # whether an epoch has equally many examples of each label

    @property
    def dev_is_learned(self) -> bool:
        """Whether the dev examples are some of the training examples."""
        return LEARNED_NOTE in self.notes

    @property
    def epoch(self) -> int:
        """The number of examples of an epoch."""
        return sum(self.taken) or len(self.train)

    def order(self, seed: int) -> MixedOrder | None:
        """Returns the order of the training examples of several tasks or balanced labels; None for any order."""
        if self.balanced:
            return balanced([self.task.stratify_by(example) for example in self.train], seed)
        return MixedOrder(self.sizes, self.taken, seed) if self.sizes else None


def choose_task_class(config: FinetuneConfig) -> type[Task]:
    """Returns the kind of task: that of a published data set, unless a task is chosen that reads its examples.

    Raises UsageError for a task that the published set is not for.
    """
    kind = TASKS[config.task]
    if not config.data:
        return kind
    own = DATASETS[config.data].task
    if kind.reads_sets_of(TASKS[own]):
        return kind
    if config.task != FinetuneConfig.model_fields["task"].default:
        raise UsageError(f"task={config.task} does not read the examples of {config.data}. Omit it: the task is {own}.")
    return TASKS[own]


def read_examples(config: FinetuneConfig, *, parted: bool = False) -> Examples:
    """Returns the training and dev examples of a config, and their task.

    parted: for a published data set without its training file; the first dev examples are used for training and the
    rest for evaluation, in their order, so that the questions about one article stay together.
    """
    if config.mix or config.task == SEVERAL:
        return _mixed(config)
    notes: list[str] = []
    try:
        return _labeled(config, notes, parted=parted)
    except DataError:
        for note in notes:  # skipped rows, or a column that was not meant, may be the cause
            console.say(note)
        raise


def _labeled(config: FinetuneConfig, notes: list[str], *, parted: bool) -> Examples:
    """Returns the examples of one task. What is to be told of them is appended to `notes`."""
    kind, dataset = _kind_and_dataset(config)
    tables = {"train": DATASETS[config.data].tables("dev", Path(config.data_dir))} if parted else tables_of(config)
    split = split_of(config, kind)
    train, columns = _read(kind, tables["train"], LabelNames(config.label_names), notes)
    texts = _texts(kind, columns)
    task = _task(config, kind, dataset, train, notes)
    _check_weights(config, train, "training")
    remedy, dev_is_learned = "", not ("dev" in tables or parted or config.held_out)
    if "dev" in tables:
        labels = LabelNames(config.label_names).for_model((), task.given_names)
        dev, dev_columns = _read(kind, tables["dev"], labels, notes, like=columns)
        if _texts(kind, dev_columns) != texts:
            raise DataError(
                "Training and dev examples differ: one file has pairs of texts, and the other has single texts."
            )
    elif parted:
        train, dev = _parted(kind, train)
    elif dev_is_learned:
        drawn = np.argsort(key(SPLIT_SEED, np.arange(len(train))), kind="stable")[:LEARNED]
        dev = [train[i] for i in sorted(drawn.tolist())]
        notes.append(LEARNED_NOTE)
    else:
        train, dev = split.hold_out(train, config.held_out)
        remedy = "pass a dev file (--dev FILE), so that none is held out of training"
        notes.append(f"no dev file: {len(dev):,} of {len(train) + len(dev):,} examples are held out")
    _check_weights(config, dev, "dev")
    _check_parts(config, train, dev)
    if not (config.features.column or dev_is_learned):
        notes += _texts_of_both(train, dev)
    if config.per_label:
        drawn_of = _few_of(config, kind, train, notes)
        remedy, train = "raise per_label" if len(drawn_of) < len(train) else remedy, drawn_of
    train, select, cover = hold_out_more(config, split, task, train, notes)
    task.check(train, remedy)
    published = _published_labels(config, dataset)
    if published and (odd := sorted(set(task.labels) - set(published))):
        shown = ", ".join(map(repr, odd[:10]))
        notes.append(f"training has labels that are not in the published {config.data}; they are trained too: {shown}")
    task = task if dataset else task.led_by(config.train.metric).for_examples(train)  # a published set has its own
    notes += task.notes(train, dev)
    metrics = dataset.metrics_of(task) if dataset and not config.positive else task.metrics_for(dev)
    if (first := config.train.metric) and not is_loss(first):
        metrics = tuple(dict.fromkeys((first, *metrics)))
    even = config.sampling == "balanced"
    return Examples(task, train, dev, metrics, texts, notes, columns, select=select, cover=cover, balanced=even)


def _kind_and_dataset(config: FinetuneConfig) -> tuple[type[Task], Dataset | None]:
    """Returns the kind of task, and the published set whose options, labels and metrics it has.

    Raises UsageError for settings that the task does not follow.
    """
    dataset = DATASETS[config.data] if config.data else None
    if config.features.column and (dataset or not TASKS[config.task].reads_vectors):
        raise UsageError(
            f"task={config.task} does not read feature vectors{' of a published data set' if dataset else ''}. Choose "
            "sequence, multilabel or regression with --train, or omit --features."
        )
    kind = choose_task_class(config)
    check_honoured(config, kind)
    if config.label_separator and not kind.several_labels:
        raise UsageError(f"label_separator has no effect under task={config.task}, with one label a row. Omit it.")
    return kind, dataset if dataset and issubclass(kind, TASKS[dataset.task]) else None


def _published_labels(config: FinetuneConfig, dataset: Dataset | None) -> tuple[str, ...]:
    """Returns the labels of a published set by the names of the user. Two may have one name."""
    labels = dataset.labels if dataset else ()
    return tuple(dict.fromkeys(config.label_names.get(label, label) for label in labels))


def _task(
    config: FinetuneConfig, kind: type[Task], dataset: Dataset | None, train: list[Example], notes: list[str]
) -> Task:
    """Returns the task with the labels of the training examples. Raises what `Task.check` raises."""
    options = {**(dataset.options if dataset else {}), **config.task_options}
    options |= {"positive": config.positive} if config.positive else {}
    options |= {
        name: value for name in ("optimize", "costs", "calibrate", "coverage") if (value := getattr(config, name))
    }
    task, names = kind.from_examples(train, _published_labels(config, dataset), options), config.label_names
    notes += _check_names(task, names, train)
    if names and {*task.labels} == {*names.values()}:
        task = kind.make(tuple(dict.fromkeys(names.values())), options)
    task.check(train)
    return task.with_tabular(config.tabular, train) if isinstance(task, ReadsColumns) and config.tabular else task


def _parted(kind: type[Task], examples: list[Example]) -> tuple[list[Example], list[Example]]:
    """Returns the first examples to learn from, and the rest. What belongs together stays together."""
    cut = round(PARTED * len(examples))
    while (
        cut < len(examples)
        and (group := kind.group(examples[cut])) is not None
        and group == kind.group(examples[cut - 1])
    ):
        cut += 1
    return examples[:cut], examples[cut:]


def _texts_of_both(train: Sequence[Example], dev: Sequence[Example]) -> list[str]:
    """Returns a note on many dev texts that are training texts."""
    trained = {example.texts for example in train}
    if (count := sum(example.texts in trained for example in dev)) <= KNOWN * len(dev):
        return []
    both = f"{count:,} of {len(dev):,} dev texts are also training texts"
    return [f"{both}, so that the scores do not show how the model does on new texts"]


def _few_of(config: FinetuneConfig, kind: type[Task], train: list[Example], notes: list[str]) -> list[Example]:
    """Returns the training examples that are drawn of each label."""
    if all(kind.stratify_by(example) is None for example in train):
        raise UsageError("per_label draws examples of each label, which this task does not have. Omit it.")
    drawn = draw_examples(train, config.per_label or len(train), seed=config.train.seed, by=kind.stratify_by)
    notes.append(f"per_label={config.per_label}: {len(drawn):,} training examples are drawn")
    return drawn


def _check_weights(config: FinetuneConfig, examples: Sequence[Example], part: str) -> None:
    if config.weight and not any(example.weight for example in examples):
        raise DataError(f"The weight column {config.weight!r} is 0 in all {part} rows. Give some rows a weight.")


def _check_parts(config: FinetuneConfig, train: Sequence[Example], dev: Sequence[Example]) -> None:
    """Raises DataError for a group on both sides, and for training examples that are later than dev."""
    if config.group and (both := {one.group for one in train} & {one.group for one in dev}) and config.dev_file:
        shown = ", ".join(sorted(map(repr, both))[:5])
        raise DataError(
            f"{len(both):,} groups of the column {config.group!r} are in the training file and in the dev file: "
            f"{shown}. Leave them out of one, or omit the dev file: whole groups are then held out."
        )
    if config.time and config.dev_file and max(check_times(train)) > min(check_times([*train[:1], *dev])[1:]):
        raise DataError(
            f"Training rows are later than dev rows, by the column {config.time!r}. Leave them out, or omit the dev "
            "file: the latest rows are then held out."
        )


def _check_names(task: Task, names: Mapping[str, str], train: Sequence[Example]) -> list[str]:
    """Returns a note on labels that `label_names` leaves out. Raises UsageError for one that is no label."""
    if unused := [label for label, name in names.items() if name not in task.given_names]:
        raise UsageError(f"label_names has {unused[0]!r}, which is not a label of the training examples.")
    others = [label for label in task.given_names if label not in names.values()]
    if not (names and others and (task.one_label or task.several_labels)):
        return []
    own = [example.label if task.several_labels else (example.label,) for example in train]
    count, shown = sum(not {*others}.isdisjoint(labels) for labels in own), ", ".join(map(repr, others[:10]))
    return [f"labels that label_names leaves out are labels of their own, with {count:,} training examples: {shown}"]


def split_of(config: FinetuneConfig, kind: type[Task]) -> ExampleSplit:
    """Returns how the examples of a config are divided."""
    return ExampleSplit(kind.stratify_by, kind.group, bool(config.time))


def hold_out_more(
    config: FinetuneConfig,
    split: ExampleSplit,
    task: Task,
    train: list[Example],
    notes: list[str],
    *,
    apart: bool = False,
) -> tuple[list[Example], list[Example], list[Example]]:
    """Returns the examples to learn from, those that select weights and settings, and those of prediction sets.

    apart: whether others than dev select in any case. `notes` gets what is to be said of them.
    """
    share, select, cover = config.held_out or HELD_OUT_SHARE, list[Example](), list[Example]()
    if apart or _selects_apart(config, train):
        train, select = split.hold_out(train, share)
        notes.append(
            f"{len(select):,} training examples are held out to select weights, thresholds and calibration; dev is "
            "only reported"
        )
    if config.coverage:
        train, cover = split.hold_out(train, share)
        set_cut([1.0] * sum(one.label in task.labels for one in cover), config.coverage)  # whether they are enough
        notes.append(f"{len(cover):,} training examples are held out for prediction sets, and used for nothing else")
    return train, select, cover


def _selects_apart(config: FinetuneConfig, train: Sequence[Example]) -> bool:
    """Whether training examples, and not dev, select the weights. A published set has a protocol of its own: dev."""
    if not (config.keeps_best or config.train.patience or config.optimize or config.calibrate):
        return False
    return config.select_on == "train" or (config.select_on == "auto" and not config.data and len(train) >= SELECTING)


def _mixed(config: FinetuneConfig) -> Examples:
    """Returns the examples of several tasks, one task after another."""
    names = [share.name for share in config.mix]
    if len(names) < 2 or len(set(names)) < len(names) or config.task not in (SEVERAL, WRITTEN):
        raise UsageError(
            "Several tasks need `mix` with two or more names, and task=several (a head each) or task=text2text: "
            "mix: [{name: rte, data: rte, data_dir: glue}, {name: mine, train_file: mine.csv}]."
        )
    ignored = [name for name in (*LabeledFiles.model_fields, "per_label") if name != "task" and _is_given(config, name)]
    if ignored:
        raise UsageError(f"With `mix`, each share names its own files and columns. Omit {', '.join(ignored)}.")
    parts = {}
    for share in config.mix:
        own = {name: getattr(share, name) for name in LabeledFiles.model_fields}
        own |= {"task": WRITTEN if config.task == WRITTEN else share.task, "mix": (), "task_options": {}}
        try:
            parts[share.name] = read_examples(config.model_copy(update=own))
        except BertieError as error:
            raise type(error)(f"mix, {share.name}: {error.message}", hint=error.hint, code=error.code) from None
    if config.task == WRITTEN:
        task: Task = Text2TextTask.make((), config.task_options)
        texts = 1
    elif config.task_options:
        raise UsageError("task=several has no options. Omit task_options.")
    else:
        task = SeveralTask.of({name: (one.task, one.texts, one.metrics[0]) for name, one in parts.items()})
        texts = next(iter(parts.values())).texts
    templates = {share.name: Text2TextTask(template=share.template) for share in config.mix}

    def with_task(name: str, example: Example) -> Example:
        if config.task == WRITTEN:
            return replace(example, texts=(templates[name].source(example.texts),), share=name)
        return replace(example, label=(name, example.label), share=name)

    train, dev = (
        [with_task(name, example) for name, one in parts.items() for example in getattr(one, split)]
        for split in ("train", "dev")
    )
    sizes = tuple(len(one.train) for one in parts.values())
    shares = taken(sizes, exponent=config.mix_exponent, cap=config.mix_cap)
    notes = [f"{name}: {note}" for name, one in parts.items() for note in one.notes]
    shown = ", ".join(f"{name} {count:,} of {size:,}" for name, count, size in zip(parts, shares, sizes, strict=True))
    return Examples(
        task,
        train,
        dev,
        task.metrics,
        texts,
        [*notes, f"examples of an epoch: {shown}"],
        sizes=sizes,
        taken=tuple(shares),
    )


def _is_given(config: FinetuneConfig, name: str) -> bool:
    return bool(getattr(config, name) != FinetuneConfig.model_fields[name].default)


def tables_of(config: FinetuneConfig) -> dict[str, list[tuple[Path, TableFormat]]]:
    """Returns the files of each split and their format."""
    if config.data:
        for option, path in (("--train", config.train_file), ("--dev", config.dev_file)):
            if path:
                raise UsageError(f"{option} and --data exclude each other. Omit one of them.")
        dataset = DATASETS[config.data]
        dataset.check_format(make_table_format(config))
        if not config.data_dir:
            raise UsageError(f"--data {config.data} needs --data-dir: the folder with its files ({dataset.title}).")
        if "train" not in dataset.splits:
            raise DataError(f"{dataset.title} has no training examples. Train on another set, and pass it to evaluate.")
        splits = [split for split in ("train", "dev") if split in dataset.splits]
        return {split: dataset.tables(split, Path(config.data_dir)) for split in splits}
    if not config.train_file:
        raise UsageError("No training examples given. Pass --train FILE, or --data NAME --data-dir DIR.")
    format = make_table_format(config)
    files = {"train": config.train_file, "dev": config.dev_file}
    return {split: [(Path(file), _own_encoding(file, format))] for split, file in files.items() if file}


def _own_encoding(file: str, format: TableFormat) -> TableFormat:
    """Returns how a file is read: one in UTF-8 as that, although another encoding is named, as for the other file."""
    if format.file.encoding == "utf-8":
        return format
    try:
        with open_bytes(file) as stream:
            head = stream.read(1 << 20)
    except FAILURES:
        return format  # the reader says what is wrong with the file
    whole = head[: head.rfind(b"\n") + 1] or head
    return (
        replace(format, file=replace(format.file, encoding="utf-8"))
        if not whole.isascii() and reads_as_utf8(whole)
        else format
    )


def make_table_format(config: LabeledFiles) -> TableFormat:
    """Returns how the files of a config are read."""
    return TableFormat.of(
        config.text,
        config.label,
        config.columns,
        config.encoding,
        config.format,
        label_separator=config.label_separator,
        weight=config.weight,
        group=config.group,
        time=config.time,
        tabular=config.tabular,
        markup=config.markup,
        features=config.features if config.features.column else None,
    )


def _read(
    kind: type[Task],
    tables: Sequence[tuple[Path, TableFormat]],
    labels: LabelNames,
    notes: list[str],
    like: Columns = RECOGNISED.columns,
) -> tuple[list[Example], Columns]:
    """Returns examples, and their columns. `notes` gets what was read and skipped.

    like: the columns of the training file, which are those of another file where their values told them.
    """
    columns: list[Columns] = []
    examples: list[Example] = []
    for path, format in tables:
        own = format.columns
        if like.recognized:
            own = replace(own, usual_text=like.text, usual_label=like.label or "")
        before, format = len(columns), replace(format, columns=own, labels=replace(format.labels, names=labels.names))
        try:
            more, skipped = SkipReport.collect(kind.rows(path, format, on_columns=columns.append), str(path))
        except BertieError:
            if not kind.reads_words and _is_tagged(path):
                trees = ", or --task parse for its trees" if path.suffix.lower() == ".conllu" else ""
                raise UsageError(f"{path} has tags for words. Pass --task tagging{trees}.") from None
            raise
        examples += more
        notes += [f"{path.name}: {one}" for one in columns[before:]]
        notes += [f"{path.name}: {note}" for note in skipped.notes]
        if (format.file.kind or suffix_of(path)) == "tsv":
            quoted = sum(any(QUOTED_CELL.fullmatch(text) for text in example.texts) for example in examples)
            if quoted:
                notes.append(
                    f"{path.name}: {quoted:,} texts are in quotation marks, which a tsv keeps as text. If the program "
                    "that wrote the file put them around, pass --format csv"
                )
    return examples, columns[0] if columns else Columns()


def _texts(kind: type[Task], columns: Columns) -> int:
    """Returns the number of texts of an example."""
    return min(len(columns.text) or 1, kind.input_texts.stop - 1)  # of three, embeddings make pairs


def _is_tagged(path: Path) -> bool:
    """Whether a file begins with a sentence whose words have tags."""
    try:
        return isinstance(next(sentences(path, TableFormat()), None), TaggedExample)
    except BertieError:
        return False


def draw_examples(
    examples: Sequence[Example],
    count: int,
    *,
    seed: int,
    by: Callable[[Example], Hashable] = lambda example: example.label,
) -> list[Example]:
    """Draws `count` examples of each stratum, by default each label, or all where there are fewer, in their order."""
    strata: dict[Hashable, list[int]] = {}
    for i in np.argsort(key(seed, np.arange(len(examples))), kind="stable").tolist():
        strata.setdefault(by(examples[i]), []).append(i)
    return [examples[i] for i in sorted(i for rows in strata.values() for i in rows[:count])]


def nothing_left(encoded: Sequences, tokenizer: Tokenizer) -> NDArray[np.int64]:
    """Returns the examples without any token, such as those of control characters."""
    return np.flatnonzero(encoded.tokens == encoded.count(tokenizer.special_ids - {tokenizer.special_id("unk")}))
