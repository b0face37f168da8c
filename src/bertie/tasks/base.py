"""`Task`: how examples are read, what the model sees of them, its head, the loss, and the way from logits to an answer.

    rows -> Example -> encode -> Encoded, targets -> Batch -> logits -> losses        (fit: runs/finetune.py)
                                            Encoded -> Batch -> logits -> decode -> Prediction -> scores

A task is an objective without the corruption: `fit` runs both. Adding one is one file with a subclass and one row in
tasks/__init__.py (docs/add-a-task.md shows a whole one). What is the same for most tasks stands here as a default.

E examples · W sequences the model reads (an example may have several) · T their tokens · L outputs of the head
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from bertie.data.batch import Batch
from bertie.data.tables import Bad, Columns, Example, Fields, TableFormat, example, find_columns, stream
from bertie.errors import DataError, UsageError, nearest
from bertie.metrics.base import Scores
from bertie.models.config import EncoderConfig
from bertie.models.heads import HEADS
from bertie.models.loss import LossReport
from bertie.tasks.shown import Shown, nats, plain, top
from bertie.tasks.source import Arrays, Encoded, Targets, TooLong, encode
from bertie.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bertie.models.encoder import EncoderOutput
    from bertie.models.model import Model


@dataclass(frozen=True)
class Prediction:
    """What the model says of one example. label: the answer, of the kind the task's `Example.label` has.

    probability: the answer's, where it has one; scores: every possible answer's.
    """

    label: Any
    probability: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The same with numbers rounded to six digits, which is what float32 can vouch for."""
        record: dict[str, Any] = {"label": round(self.label, 6) if isinstance(self.label, float) else self.label}
        if self.probability is not None:
            record["probability"] = round(self.probability, 6)
        if self.scores:
            record["scores"] = {label: round(score, 6) for label, score in self.scores.items()}
        return record


@dataclass(frozen=True)
class Task(ABC):
    """A supervised task on top of an encoder. labels: the head's outputs by name, where they have names.

    A subclass is a frozen dataclass; its further fields are the task's settings (a threshold, a stride), each with a
    default. They are given as `task_options` of a run, and saved with the model.
    """

    labels: tuple[str, ...] = ()

    head: ClassVar[str]
    """The name of its head in `Model.heads`, which decides the public architecture."""
    problem_type: ClassVar[str | None] = None
    """What config.json calls it, where the public layout has a name for it."""
    metrics: ClassVar[tuple[str, ...]]
    """What is reported, the main one first: of that one more is better."""
    per_token: ClassVar[bool] = False
    """Whether `logits` has a row per token, (T, L), or one per sequence, (W, L)."""
    too_long: ClassVar[TooLong] = "truncate"
    """What is done with long texts unless the user says otherwise."""
    most_labels: ClassVar[int | None] = None
    """How many labels it can have, where each costs memory for every token or every answer."""
    csv_columns: ClassVar[tuple[str, ...]] = ("label", "probability")
    """Which keys of `Prediction.as_json` are written where predictions go to a csv file."""

    # Reading: before a task's labels are known, so of the class.

    @classmethod
    def rows(
        cls, path: Path | str, format: TableFormat, *, on_columns: Callable[[Columns], None] = lambda columns: None
    ) -> Iterator[Example | Bad]:
        """The examples of a file, or of standard input ("-"), in order; a row that cannot be used as `Bad`.

        `on_columns` is told which columns are read. By default the file is a table (data/tables.py).
        """
        return stream(path, format, on_columns=on_columns, find=cls.columns, make=cls.example)

    @classmethod
    def columns(cls, names: Sequence[str], format: TableFormat, where: str) -> Columns:
        """Which columns of a table are read. Raises DataError naming what there is."""
        return find_columns(names, format, where)

    @classmethod
    def example(cls, fields: Fields, columns: Columns, line: int) -> Example | Bad:
        """The example of one row of a table."""
        return example(fields, columns, line)

    @classmethod
    def stratum(cls, example: Example) -> Hashable:
        """Where dev examples are held out of training ones, each stratum gives its share; by default there is one."""
        return None

    # Learning.

    @classmethod
    def of(cls, examples: Sequence[Example], names: tuple[str, ...], options: Mapping[str, Any]) -> Self:
        """The task that training examples pose. names: the data set's labels in its own order, if it has any.

        options: settings the user gave. Raises DataError: examples that pose none; UsageError: a bad option.
        """
        return cls.make((), options)

    def notes(self, train: Sequence[Example], dev: Sequence[Example]) -> list[str]:
        """What is odd about the examples, in words for people."""
        return []

    def heads(self, config: EncoderConfig) -> dict[str, nn.Module]:
        """A fresh head, by the name it has in `Model.heads`."""
        return {self.head: HEADS[self.head](config, len(self.labels))}

    def encode(
        self, examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int, too_long: TooLong
    ) -> Encoded:
        """What the model reads of examples: one sequence or several for each. Must not look at their labels."""
        return encode(examples, tokenizer, max_length=max_length, too_long=too_long)

    @abstractmethod
    def targets(self, examples: Sequence[Example], encoded: Encoded) -> Targets:
        """What the model should answer: arrays of W rows (per sequence) or T rows (per token); `Batch.labels` later.

        An example whose label the task does not know must not count (weight 0), since dev files have such.
        """

    @abstractmethod
    def counts(self, batch: Batch) -> dict[str, int]:
        """Part name -> number of predictions in this batch, known before the model runs."""

    def forward(self, model: "Model", batch: Batch) -> "EncoderOutput":
        """What the encoder finds in a batch."""
        return model.encode(batch)

    def computed(self, model: "Model", encoded: Encoded) -> Arrays:
        """Arrays of T rows that stay the same while the model is trained, by their names in `Batch.labels`."""
        return {}

    def logits(self, model: "Model", output: "EncoderOutput") -> Tensor:
        """The head's output. -> (B, L), or (T, L) if per_token"""
        logits: Tensor = model.heads[self.head](output)
        return logits

    @abstractmethod
    def losses(self, logits: Tensor, batch: Batch) -> LossReport:
        """The loss of each part, as a sum and a count, never a mean: `fit` divides once, at the end of a step."""

    def loss(self, model: "Model", output: "EncoderOutput", batch: Batch) -> LossReport:
        """The same from the encoder's output, as `fit` asks for it."""
        return self.losses(self.logits(model, output).float(), batch)

    # Answering.

    @abstractmethod
    def decode(self, logits: Tensor, encoded: Encoded, examples: Sequence[Example]) -> list[Prediction]:
        """logits (W, L) or (T, L) float32, of all the sequences of E examples in order -> E predictions."""

    @abstractmethod
    def scores(self) -> Scores:
        """An empty count of true and predicted labels, which ends in the task's metrics."""

    def count(self, scores: Scores, examples: Sequence[Example], predictions: Sequence[Prediction]) -> None:
        """Count more examples, all with labels, in what `scores` returned."""
        scores.add([example.label for example in examples], [prediction.label for prediction in predictions])

    def by_id(self) -> Mapping[str, str]:
        """Where answers go by their ids: what a file's name ends in -> which key of `Prediction.as_json` it holds."""
        return {"": self.csv_columns[0]}

    def tuned(self, answers: Iterable[tuple[Example, Prediction]]) -> Self:
        """The same task with the settings that serve dev examples best (a threshold), once the model is trained.

        answers: a stream, made as it is read; a task that has nothing to choose leaves it alone.
        """
        return self

    # Showing where it goes wrong (infer/findings.py).

    def wrongness(self, example: Example, prediction: Prediction) -> float:
        """How wrong an answer is: the worst are shown first; 0 where it could not be better.

        By default its loss in nats. A label that is not the model's shares what the answer left over.
        """
        right, sure = prediction.label == example.label, prediction.probability
        left = 0.0 if sure is None else 1 - sure
        told = (1 - left) if right else left
        return nats(prediction.scores.get(example.label, told) if prediction.scores else told)

    def shown(self, example: Example, prediction: Prediction) -> Shown:
        """An answer for people."""
        texts = tuple(map(plain, example.texts))
        scores = top(prediction.scores, example.label)
        return Shown(texts, str(example.label), str(prediction.label), prediction.probability, scores)

    def slices(self, example: Example, prediction: Prediction, tokens: int, long: bool) -> dict[str, str]:
        """What an example is one of, by kind: each slice has the main metric of its own, so that a weak one shows.

        tokens: how many were read; long: whether it did not fit.
        """
        return {"tokens": length_slice(tokens), "too long": "yes" if long else "no", "texts": str(len(example.texts))}

    def point(self, example: Example, prediction: Prediction) -> tuple[float, float] | None:
        """The true number and the predicted one, where answers are numbers."""
        return None

    # In a model folder.

    @classmethod
    def of_model(cls, model: "Model", settings: Mapping[str, Any]) -> Self | None:
        """The task that a saved model with these saved settings was trained for; None if it is not this one."""
        return cls.make(model.labels, settings) if cls.head in model.heads else None

    def settings(self) -> dict[str, Any]:
        """The fields beside the labels, as JSON values: what is saved with the model."""
        return {name: value for name, value in asdict(self).items() if name != "labels"}

    def files(self, config: EncoderConfig, max_length: int) -> dict[str, Any]:
        """JSON files beside the model's own, by name, which other tools look for."""
        return {}

    @classmethod
    def make(cls, labels: tuple[str, ...], settings: Mapping[str, Any]) -> Self:
        """A task from its labels and its settings.

        Raises UsageError for a setting it does not have, or of no use; DataError for more labels than it can have.
        """
        if cls.most_labels is not None and len(labels) > cls.most_labels:
            raise DataError(
                f"There are {len(labels):,} different labels; this task can tell {cls.most_labels:,} apart. Is the "
                "column that is read the one with the labels? --label names another; --task sequence takes any number."
            )
        known = [field.name for field in fields(cls) if field.name != "labels"]
        for name in settings:
            if name not in known:
                raise UsageError(f"This task has no option {name!r}. {nearest(name, known)}")
        try:  # by way of JSON, where a list stands for a tuple
            task: Self = TypeAdapter(cls).validate_json(json.dumps({"labels": labels, **settings}, default=str))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise UsageError(f"Task option {where}: {first['msg']} (given: {str(first['input'])[:80]!r}).") from None
        return task


def length_slice(length: int, first: int = 16) -> str:
    """17 -> "17 to 32": lengths double from slice to slice, the first ends with `first`."""
    high = max(first, 1 << max(0, length - 1).bit_length())
    low = high // 2 + 1 if high > first else 1
    return f"{low} to {high}" if low < high else str(high)
