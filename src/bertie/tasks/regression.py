"""Regression: a number for a text or a pair of texts, such as the similarity of two sentences or the score of a review.

Devlin et al. 2018, 4.1 (STS-B). E examples · W sequences · B sequences of a batch
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from bertie.io.fields import Fields, number_of
from bertie.io.lines import BadRecord
from bertie.io.table_format import Columns
from bertie.io.tables import Example, example
from bertie.metrics.numbers import Numbers
from bertie.models.facts import Facts
from bertie.models.loss import LabelAxis, LossReport, LossTerm
from bertie.tasks.answerer import Logits, Prediction, sigmoid
from bertie.tasks.render import RenderedExample, numbers
from bertie.tasks.source import Targets
from bertie.tasks.tabular import TabularTask
from bertie.text.sequences import Sequences

if TYPE_CHECKING:
    from torch import Tensor

    from bertie.models.batch import Batch


@dataclass(frozen=True)
class RegressionTask(TabularTask):
    """`Example.label` is a float. threshold: numbers from there on count as positive, which adds f1 to the metrics.

    activation: of the answers; that of a published cross-encoder is a sigmoid unless its folder says otherwise.
    """

    labels: tuple[str, ...] = ("score",)
    threshold: float | None = None
    activation: Literal["none", "sigmoid"] = "none"

    head = "sequence"
    label_axes: ClassVar[Mapping[str, LabelAxis]] = {"number": "sequence", "weight": "sequence"}
    honours = frozenset({"weight", "loss_function", "tabular", "markup"})
    reads_vectors = True
    problem_type = "regression"
    metrics = ("pearson", "spearman")
    baselines = ("mean", "overlap", "ridge_words", "ridge_characters")
    csv_columns = ("label",)

    @property
    def activation_of_score(self) -> str:
        """The activation of the number; `CrossEncoder` would apply a sigmoid."""
        return "Sigmoid" if self.activation == "sigmoid" else "Identity"

    @classmethod
    def example(cls, fields: Fields, columns: Columns, line: int) -> Example | BadRecord:
        """Returns the example of a row, with the label as a number."""
        row = example(fields, columns, line)
        if isinstance(row, BadRecord) or row.label is None:
            return row
        number = number_of(row.label)
        if isinstance(number, str):
            return BadRecord(line, f"{columns.label} {number}")
        return replace(row, label=number)

    @classmethod
    def from_examples(cls, examples: Sequence[Example], names: tuple[str, ...], options: Mapping[str, object]) -> Self:
        """Returns the task, whose only output is called score."""
        return cls.make(("score",), options)

    def notes(self, train: Sequence[Example], dev: Sequence[Example]) -> list[str]:
        """Returns warnings about the training labels, for example when all are equal."""
        return ["all training examples have the same number"] if len({e.label for e in train}) == 1 else []

    def targets(self, examples: Sequence[Example], encoded: Sequences) -> Targets:
        """Returns "number" (W,) float32; "weight" (W,) float32: sums to that of the example over its windows."""
        number_E = np.array([example.label for example in examples], np.float32)
        weight_E, of_W = np.array([example.weight for example in examples], np.float32), encoded.example
        return Targets(sequence={"number": number_E[of_W], "weight": encoded.weight * weight_E[of_W]})

    def counts(self, batch: "Batch") -> Mapping[str, float]:
        """Returns the sum of the examples' weights."""
        return {"number": self.loss_options.count(batch.labels["number"], batch.labels["weight"], 1)}

    def losses(self, logits: "Tensor", batch: "Batch") -> LossReport:
        """Returns the squared error. logits (B, 1); reads labels "number" and "weight"."""

        def squared(logits_B1: "Tensor", number_B: "Tensor") -> "Tensor":
            return (logits_B1[:, 0] - number_B) ** 2

        total = self.loss_options.total(squared, logits, batch.labels["number"], batch.labels["weight"])
        return {"number": LossTerm(total, self.counts(batch.host)["number"])}

    def decode(self, logits: Logits, encoded: Sequences, examples: Sequence[Example]) -> list[Prediction]:
        """The mean over windows, then the activation."""
        number_E = encoded.mean_of_windows(logits)[:, 0]
        return list(map(Prediction, (sigmoid(number_E) if self.activation == "sigmoid" else number_E).tolist()))

    def scores(self) -> Numbers:
        """Returns a counter of true and predicted numbers."""
        return Numbers(self.threshold)

    def error_score(self, example: Example, prediction: Prediction) -> float:
        """Returns the absolute error."""
        return abs(prediction.number - float(example.label))

    def render(self, example: Example, prediction: Prediction) -> RenderedExample:
        """Renders both numbers and their difference."""
        return numbers(example.texts, example.label, prediction.number, self.error_score(example, prediction))

    def scatter_point(self, example: Example, prediction: Prediction) -> tuple[float, float]:
        """Returns the true and the predicted number."""
        return float(example.label), prediction.number

    @classmethod
    def of_model(cls, facts: Facts, settings: Mapping[str, object]) -> Self | None:
        """Returns the task for a head with one output and no other problem type."""
        if facts.heads.get(cls.head) != 1 or facts.problem_type not in (None, cls.problem_type):
            return None
        activation = facts.sentence.activation or ("Identity" if facts.problem_type or settings else "Sigmoid")
        defaults = {"activation": "sigmoid"} if activation == "Sigmoid" else {}
        return cls.make(facts.labels or ("score",), {**defaults, **settings})
