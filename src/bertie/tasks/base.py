"""`Task`: four parts in one class. Each user of a task needs only one part.

    Reader      rows -> Example                              (reads examples, and says which belong together)
    Learner     Example, Sequences -> targets -> losses        (learner.py: trains; torch)
    Answerer    Example -> Sequences, logits -> Prediction     (answerer.py: predicts; any engine)
    View        Prediction -> report                         (view.py: renders)

A task is one file with a subclass, whose fields are its labels and settings, and one row in tasks/__init__.py.
docs/add-a-task.md has a complete example. The parts have defaults for most tasks.
"""

import json
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import ClassVar, Literal, Self, cast

import numpy as np
from pydantic import TypeAdapter, ValidationError

from bertie.errors import DataError, UnknownName, UsageError, nearest
from bertie.files import JsonObject
from bertie.io.columns import LookAhead, find_columns, no_rows
from bertie.io.fields import Fields
from bertie.io.lines import BadRecord
from bertie.io.table_format import Columns, TableFormat
from bertie.io.tables import Example, stream_examples
from bertie.io.tables import example as read_example
from bertie.metrics.resample import Reservoir
from bertie.metrics.scaling import Scaling, ScalingKind
from bertie.models.config import EncoderConfig
from bertie.models.facts import Facts
from bertie.tasks.answerer import Answerer, Logits, Prediction
from bertie.tasks.learner import Learner
from bertie.tasks.view import View
from bertie.text.sequences import Sequences


class Reader:
    """The part of a task that reads examples. The labels are not known yet, so its methods are class methods."""

    several_labels: ClassVar[bool] = False
    """Whether a cell can have several labels, between separators."""
    reads_words: ClassVar[bool] = False
    """Whether files of words with tags or trees are read."""

    @classmethod
    def reads_sets_of(cls, own: type["Reader"]) -> bool:
        """Returns whether the published sets of a task can be read. Default: of this task or one that it extends."""
        return issubclass(cls, own)

    @classmethod
    def rows(
        cls, path: Path | str, format: TableFormat, *, on_columns: Callable[[Columns], None] = lambda columns: None
    ) -> Iterator[Example | BadRecord]:
        """Yields the examples of a file, or of standard input ("-"), in order. An unusable row is an `BadRecord`.

        `on_columns` is called with the columns. By default, the file is a table (io/tables.py).
        """
        return stream_examples(path, format, on_columns=on_columns, find=cls.columns, make=cls.example)

    @classmethod
    def row_of(cls, values: Sequence[object]) -> Mapping[str, object] | None:
        """Returns the values of a tuple in Python by column; None: the last one is the label of a text or of two."""
        return None

    @classmethod
    def columns(cls, names: Sequence[str], columns: Columns, where: str, look: LookAhead = no_rows) -> Columns:
        """Returns the columns to read. Raises DataError with the available names."""
        return find_columns(names, columns, where, look)

    @classmethod
    def example(cls, fields: Fields, columns: Columns, line: int) -> Example | BadRecord:
        """Returns the example of one row of a table."""
        return read_example(fields, columns, line)

    @classmethod
    def stratify_by(cls, example: Example) -> Hashable:
        """Returns the stratification key used when a dev set is split off. Default: one stratum."""
        return None

    reads_columns: ClassVar[bool] = True
    """Whether examples are rows of a table, of which any column can be the group."""

    @classmethod
    def group(cls, example: Example) -> Hashable:
        """Returns the group of an example, such as a question or a context, or None for an example without a group.

        A group is never split between training and dev, and bootstrap samples draw whole groups.
        """
        return example.group


KEPT = 20_000_000  # probabilities held at once to choose a setting on; of more examples some are drawn
MOST_COLUMNS = 1000  # labels; of more, a table has no column for each

__all__ = ["KEPT", "Answerer", "CalibratedTask", "Learner", "Prediction", "Reader", "Task", "View"]


@dataclass(frozen=True)
class Task(Reader, Learner, Answerer, View):
    """A supervised task on an encoder. labels: the names of the head's outputs, where they have names.

    A subclass is a frozen dataclass. Its other fields are the settings of the task (a threshold, a stride), each with a
    default. They are set by `task_options` of a run, and saved with the model.
    """

    labels: tuple[str, ...] = ()

    head: ClassVar[str]
    """The name of its head in `TorchModel.heads`, which determines the class in config.json."""
    problem_type: ClassVar[str | None] = None
    """The problem_type in config.json, where the Hugging Face format has one."""
    saved_as: ClassVar[str] = ""
    """The name of the trained model's task, where it is another one: few-shot training makes a `sequence` model."""
    keeps_head: ClassVar[bool] = False
    """Whether its head is one of pre-training, whose weights a run keeps whatever the labels are."""
    most_labels: ClassVar[int | None] = None
    """The maximum number of labels, where each label needs memory for every token or prediction."""

    @classmethod
    def check_head(cls, has_head: bool) -> None:
        """Raises UsageError for a start model without the weights of the head, where the task needs them."""

    @property
    def given_names(self) -> tuple[str, ...]:
        """The names that the labels of a file can be given, by `label_names`."""
        return self.labels

    @property
    def activation_of_score(self) -> str | None:
        """The activation of its only output, of models/sentence.py, where other tools would assume another one."""
        return None

    @property
    def least_batch(self) -> int:
        """The least number of sequences in a forward pass of training, or in a step under `whole_step`: more than one
        if they are compared."""
        return 1

    @property
    def output(self) -> str:
        """The name of the array that the engine computes, by default the head's logits."""
        return self.head

    @property
    def table_columns(self) -> tuple[str, ...]:
        """The columns of a prediction in a table: csv_columns, with one for the probability of each label."""
        labels = self.labels if len(self.labels) <= MOST_COLUMNS else ()
        each = {"scores": tuple(f"scores.{label}" for label in labels)}
        return tuple(name for key in self.csv_columns for name in each.get(key, (key,)))

    # From training examples.

    @classmethod
    def from_examples(cls, examples: Sequence[Example], names: tuple[str, ...], options: Mapping[str, object]) -> Self:
        """Returns the task for training examples. names: the data set's labels in its own order, if it has any.

        options: settings of the user. Raises DataError for unusable examples, UsageError for a bad option.
        """
        return cls.make((), options)

    def check(self, train: Sequence[Example], remedy: str = "") -> None:
        """Raises DataError for training examples that the task cannot learn from. remedy: what gives it more of them,
        other than more examples in the file."""

    def notes(self, train: Sequence[Example], dev: Sequence[Example]) -> list[str]:
        """Returns what is to be told of the examples, such as labels that only dev has."""
        return []

    def warnings(self, train: Sequence[Example]) -> list[str]:
        """Returns warnings about examples for which the scores may mislead."""
        return []

    def for_examples(self, train: Sequence[Example]) -> Self:
        """Returns the task with the settings that depend on the training examples, where the user chose none."""
        return self

    def led_by(self, metric: str) -> Self:
        """Returns the task with another main metric, where it saves one with the model; "": none is chosen."""
        return self

    # In a model folder.

    @classmethod
    def of_model(cls, facts: Facts, settings: Mapping[str, object]) -> Self | None:
        """Returns the task of a saved model with these settings, or None when the model has another task."""
        return cls.make(facts.labels, settings) if cls.head in facts.heads else None

    def settings(self) -> JsonObject:
        """Returns the fields except the labels as JSON values, as they are saved with the model."""
        return {name: value for name, value in json.loads(json.dumps(asdict(self))).items() if name != "labels"}

    def files(self, config: EncoderConfig, max_length: int) -> JsonObject:
        """Returns additional JSON files of the model folder by name, for other tools."""
        return {}

    @classmethod
    def make(cls, labels: tuple[str, ...], settings: Mapping[str, object]) -> Self:
        """Returns a task with labels and settings.

        Raises UsageError for an unknown or bad setting, DataError for too many labels.
        """
        if cls.most_labels is not None and len(labels) > cls.most_labels:
            raise DataError(
                f"There are {len(labels):,} different labels; this task supports at most {cls.most_labels:,}. "
                "Check the label column (--label COLUMN), or use --task sequence, which has no limit."
            )
        known = [field.name for field in fields(cls) if field.name != "labels"]
        for name in settings:
            if name not in known:
                raise UnknownName(f"This task has no option {name!r}. {nearest(name, known)}")
        try:  # via JSON, where tuples are lists
            task = _adapter(cls).validate_json(json.dumps({"labels": labels, **settings}, default=str))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise UsageError(
                f"Task option {where}: {first['msg']} (the value is {str(first['input'])[:80]!r})."
            ) from None
        return cast(Self, task)


@cache
def _adapter(task: type[Task]) -> TypeAdapter[Task]:  # milliseconds, and a service makes a task for each call
    return TypeAdapter(task)


@dataclass(frozen=True)
class CalibratedTask(Task):
    """A classification whose probabilities can be calibrated after training (metrics/scaling.py).

    calibrate: after training, fit the scaling of the logits on held-out examples. scale, shift: that scaling, where
    the weights of the head do not contain it.
    """

    calibrate: Literal["", ScalingKind] = ""
    scale: tuple[float, ...] = ()
    shift: tuple[float, ...] = ()

    @property
    def calibrates(self) -> bool:
        """Whether the scaling of the logits is fitted."""
        return bool(self.calibrate)

    @property
    def scaling(self) -> Scaling:
        """The scaling of the logits that the weights of the head do not contain."""
        return Scaling(self.scale, self.shift)

    def with_scaling(self, scaling: Scaling) -> Self:
        """Returns the task with another scaling of the logits."""
        return replace(self, scale=scaling.scale, shift=scaling.shift)

    @abstractmethod
    def truth_of(self, example: Example) -> list[bool] | None:
        """Returns whether an example has each label (L,); None for one that the scaling is not fitted on."""

    def scaling_for(self, parts: Iterable[tuple[Sequence[Example], Sequences, Logits]]) -> Scaling:
        """Returns the scaling with the highest likelihood of the examples whose labels are known."""
        sample = Reservoir[tuple[Logits, list[bool]]](KEPT // len(self.labels))
        for examples, encoded, logits in parts:
            for i, example in enumerate(examples):
                if (truth := self.truth_of(example)) is not None:
                    sample.add((logits[encoded.windows[i] : encoded.windows[i + 1]], truth))
        if not self.calibrate or not sample.items:
            return Scaling()
        windows = np.cumsum([0, *(len(logits) for logits, _ in sample.items)])[:-1]
        logits_WL, truth_EL = np.concatenate([one for one, _ in sample.items]), [truth for _, truth in sample.items]
        return Scaling.fitted(self.calibrate, logits_WL, truth_EL, windows, exclusive=self.exclusive)
