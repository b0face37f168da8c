"""Columns of a table beside its text, which a task reads too: numbers and categories.

    a number     (value - mean) / deviation of training; 0 where it is missing
    a category   1 for its value, 0 for each other one of training; all 0 where it is missing or new

    logits = head(encoder(text)) + weight · columns

This is the same as a classifier on the pooled vector joined with the columns. The weight is in bertie.json and not in
the head, so that every engine computes the logits of the text, and the columns are added to them.

E examples · W sequences · D numbers of all columns of a row · L labels
"""

import math
from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from bertie.errors import DataError, UsageError
from bertie.io.columns import DATE, column_words
from bertie.io.fields import MISSING_VALUES, NO_NUMBER, number_of
from bertie.io.tables import Example
from bertie.tasks.answerer import Logits
from bertie.tasks.base import Task
from bertie.text.sequences import Sequences
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TooLong

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bertie.models.batch import Batch
    from bertie.models.encoder import EncoderOutput
    from bertie.models.loss import LossReport
    from bertie.models.model import TorchModel
    from bertie.tasks.source import Targets

MODULE = "tabular"  # the companion of the model that trains the weight
MOST_VALUES = 200  # of a category
SPEED = 100.0  # factor of the trained weight: Adam moves each number by the learning rate, which suits wide vectors


@dataclass(frozen=True)
class TabularColumn:
    """A column. values: those of a category; a number has none, but a mean and a deviation."""

    name: str
    mean: float = 0.0
    deviation: float = 1.0
    values: tuple[str, ...] = ()

    @classmethod
    def fitted(cls, name: str, cells: Sequence[object]) -> Self:
        """Returns the column for the cells of training: one of numbers if all that are not empty are numbers.

        Raises DataError for a column without a value, with dates, or with too many categories.
        """
        known = [cell for cell in cells if not _is_empty(cell)]
        if not known:
            raise DataError(f"The column {name!r} is empty in all training rows. Leave it out of tabular.")
        numbers = [number for cell in known if (number := _number(cell)) is not None]
        reasons = {number for number in numbers if isinstance(number, str)}
        if reasons and NO_NUMBER not in reasons:
            raise DataError(f"The column {name!r} {min(reasons)}.")
        if numbers and not reasons:
            array = np.array(numbers, np.float64)
            return cls(name, float(array.mean()), float(array.std()) or 1.0)
        values = tuple(sorted(set(map(_value, known))))
        if all(map(DATE.fullmatch, values)):
            raise DataError(
                f"The column {name!r} has dates, and a later one is unknown to the model. Make numbers of "
                "them, such as the month, or read them as text: a template such as '{day}: {body}'."
            )
        if len(values) > MOST_VALUES:
            raise DataError(
                f"The column {name!r} has {len(values):,} different values; a category may have {MOST_VALUES}. Leave "
                "it out of tabular, or read it as text: a template such as '{title}. {body}'."
            )
        return cls(name, values=values)

    @property
    def width(self) -> int:
        """The numbers that a cell becomes."""
        return len(self.values) or 1

    def wrong(self, cell: object) -> str:
        """Returns why a cell cannot be read: it is no number, and those of training are. "" for one that can."""
        reason = "" if self.values else _number(cell)
        return f"{self.name} {reason}" if reason and isinstance(reason, str) else ""

    def encode(self, cell: object) -> list[float]:
        """Returns the numbers of a cell that is not `wrong`."""
        if self.values:
            return [float(_value(cell) == value) for value in self.values]
        number = _number(cell)
        return [(number - self.mean) / self.deviation if isinstance(number, float) else 0.0]


def _is_empty(cell: object) -> bool:
    return cell is None or (isinstance(cell, float) and math.isnan(cell)) or not str(cell).strip()


def _value(cell: object) -> str:
    """Returns the name of a category. What is true in JSON is True in Python and TRUE in a spreadsheet."""
    text = str(cell).strip()
    return text.lower() if text.lower() in ("true", "false") else text


def _number(cell: object) -> float | str | None:
    """Returns the number of a cell, None for a missing one, or why it is no number."""
    return None if _is_empty(cell) or str(cell).strip().casefold() in MISSING_VALUES else number_of(str(cell))


def linear_weight(rows_ED: NDArray[np.float32], labels: Sequence[object], names: Sequence[str]) -> NDArray[np.float32]:
    """Returns the weight (D, L) of a linear model of the columns alone: of numbers, sets of names, or one name."""
    from sklearn.linear_model import LogisticRegression, Ridge

    if all(isinstance(label, int | float) for label in labels):
        return np.asarray(Ridge().fit(rows_ED, labels).coef_, np.float32).reshape(-1, 1)
    weight_DL = np.zeros((rows_ED.shape[1], len(names)), np.float32)
    for number, name in enumerate(names):
        has_E = [name in label if isinstance(label, tuple) else name == label for label in labels]
        if len({*has_E}) == 2:
            weight_DL[:, number] = LogisticRegression(max_iter=200).fit(rows_ED, has_E).coef_[0]
    one_of_two = len(names) == 2 and not isinstance(labels[0], tuple)
    if one_of_two:
        weight_DL /= 2  # the difference of two logits is the logit of one
    return weight_DL


@dataclass(frozen=True)
class TabularTask(Task, ABC):
    """A task whose logits of a text may also depend on columns of its row.

    tabular: these columns. tabular_weight (D, L): how they are added. It starts as that of a model
    of the columns alone.
    """

    tabular: tuple[TabularColumn, ...] = ()
    tabular_weight: tuple[tuple[float, ...], ...] = ()

    def with_tabular(self, names: Sequence[str], train: Sequence[Example]) -> Self:
        """Returns the task that reads columns too, fitted on the training examples."""
        cells = zip(*(example.tabular for example in train), strict=True)
        columns = tuple(TabularColumn.fitted(name, column) for name, column in zip(names, cells, strict=True))
        task = replace(self, tabular=columns)
        rows_ED = np.array([task._numbers(example) for example in train], np.float32)
        weight_DL = linear_weight(rows_ED, [example.label for example in train], self.labels)
        return replace(task, tabular_weight=tuple(map(tuple, weight_DL.tolist())))

    def reading_as(self, other: "TabularTask") -> Self:
        """Returns the task that reads columns as another one does."""
        return replace(self, tabular=other.tabular, tabular_weight=other.tabular_weight)

    def companions(self) -> "dict[str, nn.Module]":
        """Returns the weight of the columns as a module."""
        if not self.tabular:
            return {}
        import torch
        from torch import nn

        weight_DL = torch.tensor(self.tabular_weight)
        width, labels = weight_DL.shape
        module = nn.Linear(width, labels, bias=False)
        with torch.no_grad():
            module.weight.copy_(weight_DL.T / SPEED)
        return {MODULE: module}

    def encode(
        self, examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int, too_long: TooLong
    ) -> Sequences:
        """Returns the sequences of the texts, with the numbers of their columns. (W, D)

        Raises UsageError for texts without the columns.
        """
        return self.with_cells(super().encode(examples, tokenizer, max_length=max_length, too_long=too_long), examples)

    def with_cells(self, encoded: Sequences, examples: Sequence[Example]) -> Sequences:
        """Returns sequences with the numbers of the columns of each row. Raises UsageError where a row has none."""
        if not self.tabular:
            return encoded
        if any(len(example.tabular) != len(self.tabular) for example in examples):
            raise UsageError(self._needs_a_table())
        rows_ED = np.array([self._numbers(example) for example in examples], np.float32)
        return replace(encoded, tabular=rows_ED[encoded.example])

    def sample_columns(self) -> dict[str, object]:
        """Returns usual values of the columns."""
        return {one.name: one.values[0] if one.values else round(one.mean, 2) for one in self.tabular}

    def _needs_a_table(self) -> str:
        columns = column_words([column.name for column in self.tabular])
        return f"The input has texts alone, and the model also reads {columns}. Pass rows with them."

    def unreadable(self, example: Example) -> str:
        """Returns why the columns of a row cannot be read; "" if they can."""
        return next(
            (why for column, cell in zip(self.tabular, example.tabular, strict=False) if (why := column.wrong(cell))),
            "",
        )

    def _numbers(self, example: Example) -> list[float]:
        if reason := self.unreadable(example):
            raise DataError(f"A row cannot be read: {reason} (line {example.line}).")
        pairs = zip(self.tabular, example.tabular, strict=True)
        return [number for column, cell in pairs for number in column.encode(cell)]

    def with_columns(self, logits: Logits, encoded: Sequences) -> Logits:
        """Returns the logits of texts (W, L) with what their columns add. Raises UsageError where they have none."""
        if not self.tabular:
            return logits
        if encoded.tabular is None:
            raise UsageError(self._needs_a_table())
        weight_DL: NDArray[np.float32] = np.array(self.tabular_weight, np.float32)
        return logits + encoded.tabular @ weight_DL

    def loss(self, model: "TorchModel", output: "EncoderOutput", batch: "Batch") -> "LossReport":
        """Returns the losses, of the text and its columns."""
        logits: Tensor = self.logits(model, output).float()
        if self.tabular:
            logits = logits + SPEED * model.companions[MODULE](batch.labels[MODULE])
        return self.losses(logits, batch)

    def settle(self, model: "TorchModel", encoded: Sequences, targets: "Targets") -> None:
        """Takes the weight of the columns from the module that is trained, and tells the model's facts of it."""
        super().settle(model, encoded, targets)
        if not self.tabular:
            return
        weight_DL = (SPEED * model.companions[MODULE].weight.detach().float().cpu()).T.tolist()  # type: ignore[operator]
        self._take(tuple(map(tuple, weight_DL)))
        facts = model.training_facts
        options = {**facts.task_options, "tabular_weight": weight_DL}
        model.training_facts = replace(facts, task_options=options)

    def reload(self, model: "TorchModel", options: Mapping[str, object]) -> None:
        """Takes the weight of the columns from the settings of a saved task."""
        import torch

        super().reload(model, options)
        weight_DL = options.get("tabular_weight")
        if self.tabular and isinstance(weight_DL, Sequence) and weight_DL:
            module = model.companions[MODULE]
            with torch.no_grad():
                module.weight.copy_(torch.tensor(weight_DL).T / SPEED)  # type: ignore[operator]
            self._take(tuple(map(tuple, weight_DL)))

    def _take(self, weight_DL: tuple[tuple[float, ...], ...]) -> None:
        object.__setattr__(self, "tabular_weight", weight_DL)  # the task is the one that the evaluations have
