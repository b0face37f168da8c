"""`Task`: four parts under one name, each a small set of methods that its users ask for alone.

    Reader      rows -> Example                              (reader.py: what reads examples)
    Learner     Example, Encoded -> targets -> losses        (learner.py: what learns; torch)
    Answerer    Example -> Encoded, logits -> Prediction     (answerer.py: what answers; any engine)
    View        Prediction -> what people see                (view.py: what is shown)

A task is one file with a subclass, whose fields are its labels and settings, and one row in tasks/__init__.py
(docs/add-a-task.md shows a whole one). What is the same for most tasks is a default of the parts.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self

from pydantic import TypeAdapter, ValidationError

from bertie.data.tables import Example
from bertie.errors import DataError, UsageError, nearest
from bertie.models.config import EncoderConfig
from bertie.models.facts import Facts
from bertie.tasks.answerer import Answerer, Prediction
from bertie.tasks.learner import Learner
from bertie.tasks.reader import Reader
from bertie.tasks.view import View

__all__ = ["Answerer", "Learner", "Prediction", "Reader", "Task", "View"]


@dataclass(frozen=True)
class Task(Reader, Learner, Answerer, View):
    """A supervised task on top of an encoder. labels: the head's outputs by name, where they have names.

    A subclass is a frozen dataclass; its further fields are the task's settings (a threshold, a stride), each with a
    default. They are given as `task_options` of a run, and saved with the model.
    """

    labels: tuple[str, ...] = ()

    head: ClassVar[str]
    """The name of its head in `Model.heads`, which decides the public architecture."""
    problem_type: ClassVar[str | None] = None
    """What config.json calls it, where the public layout has a name for it."""
    most_labels: ClassVar[int | None] = None
    """How many labels it can have, where each costs memory for every token or every answer."""

    @property
    def output(self) -> str:
        """What the engine is asked for, by default the head's logits."""
        return self.head

    # From training examples.

    @classmethod
    def from_examples(cls, examples: Sequence[Example], names: tuple[str, ...], options: Mapping[str, Any]) -> Self:
        """The task that training examples pose. names: the data set's labels in its own order, if it has any.

        options: settings the user gave. Raises DataError: examples that pose none; UsageError: a bad option.
        """
        return cls.make((), options)

    def notes(self, train: Sequence[Example], dev: Sequence[Example]) -> list[str]:
        """What is odd about the examples, in words for people."""
        return []

    # In a model folder.

    @classmethod
    def of_model(cls, facts: Facts, settings: Mapping[str, Any]) -> Self | None:
        """The task that a saved model with these saved settings was trained for; None if it is not this one."""
        return cls.make(facts.labels, settings) if cls.head in facts.heads else None

    def settings(self) -> dict[str, Any]:
        """The fields other than the labels, as JSON values: what is saved with the model."""
        return {name: value for name, value in asdict(self).items() if name != "labels"}

    def files(self, config: EncoderConfig, max_length: int) -> dict[str, Any]:
        """JSON files to be written with the model's own, by name, which other tools look for."""
        return {}

    @classmethod
    def make(cls, labels: tuple[str, ...], settings: Mapping[str, Any]) -> Self:
        """A task from its labels and its settings.

        Raises UsageError for a setting it does not have, or of no use; DataError for more labels than it can have.
        """
        if cls.most_labels is not None and len(labels) > cls.most_labels:
            raise DataError(
                f"There are {len(labels):,} different labels; this task supports at most {cls.most_labels:,}. "
                "Check the label column (--label COLUMN), or use --task sequence, which has no limit."
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
            raise UsageError(
                f"Task option {where}: {first['msg']} (the value is {str(first['input'])[:80]!r})."
            ) from None
        return task
