"""Classification that is learned from a teacher's probabilities, not from one label: knowledge distillation.

    {"text": "not bad at all", "label": "positive", "scores": {"negative": 0.2, "positive": 0.8}}

`bertie predict TEACHER` writes such rows for any text, so student and teacher may have different tokenizers and
families. The target is softened by a temperature, and so is the student: Hinton et al. 2015, 2. The trained model is
an ordinary classifier.

W sequences · B sequences of a batch · E examples · L labels
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Self

import numpy as np

from bertie.errors import DataError, WrongValue
from bertie.files import JsonObject
from bertie.io.columns import LookAhead, find_columns, no_rows
from bertie.io.fields import Fields
from bertie.io.lines import BadRecord
from bertie.io.table_format import Columns, SoftLabel
from bertie.io.tables import Example
from bertie.io.tables import example as plain_example
from bertie.models.loss import LossReport, LossTerm, right
from bertie.tasks.sequence import SequenceTask, label_names
from bertie.tasks.source import Targets
from bertie.text.sequences import Sequences

if TYPE_CHECKING:
    from torch import Tensor

    from bertie.models.batch import Batch

_SCORES = "scores."  # how the keys of the object `scores` begin in the columns of a table
_MIN_PROBABILITY = 1e-6  # the smallest probability: `predict` rounds to six digits


@dataclass(frozen=True)
class SoftTask(SequenceTask):
    """One of `labels` for each sequence, learned from probabilities. Raises UsageError for a setting out of range.

    soften: the temperature of the loss; 1: the probabilities as they are. truth: the share of the label itself in the
    target, for rows with a true label beside the probabilities.
    """

    soften: float = 2.0
    truth: float = 0.0

    saved_as = "sequence"
    honours = SequenceTask.honours - {"loss", "label_smoothing", "tabular"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.soften > 0:
            raise WrongValue(f"task_options.soften is {self.soften}; it must be above 0.")
        if not 0 <= self.truth <= 1:
            raise WrongValue(f"task_options.truth is {self.truth}; it must be between 0 and 1.")

    @classmethod
    def columns(cls, names: Sequence[str], columns: Columns, where: str, look: LookAhead = no_rows) -> Columns:
        """Returns the columns of texts and label, which are found as for classification."""
        return find_columns([name for name in names if not name.startswith(_SCORES)], columns, where, look)

    @classmethod
    def example(cls, fields: Fields, columns: Columns, line: int) -> Example | BadRecord:
        """Reads the label and the probabilities of a row; a row without them has only its label."""
        row = plain_example(fields, columns, line)
        if isinstance(row, BadRecord) or row.label is None:
            return row
        shares: dict[str, float] = {}
        for name in fields:
            if name.startswith(_SCORES) and fields[name] is not None:
                try:
                    shares[name.removeprefix(_SCORES)] = float(fields[name])
                except (TypeError, ValueError):
                    return BadRecord(line, f"{name} is not a number")
        if not shares:
            return row
        if not all(isfinite(share) and share >= 0 for share in shares.values()) or sum(shares.values()) <= 0:
            return BadRecord(line, "scores that are no probabilities")
        return Example(row.texts, SoftLabel.of(row.label, shares), line)

    @classmethod
    def from_examples(cls, examples: Sequence[Example], names: tuple[str, ...], options: Mapping[str, object]) -> Self:
        """Returns the task with all labels that have a probability or are a label.

        Raises DataError without scores, or if none of the labels has a probability.
        """
        soft = [example.label.shares for example in examples if isinstance(example.label, SoftLabel)]
        if not soft:
            raise DataError(
                "No training example has probabilities. --task soft reads JSON lines with an object `scores`, which "
                "`bertie predict TEACHER texts.txt -o soft.jsonl` writes. For labels alone, use --task sequence."
            )
        values = {str(example.label) for example in examples if example.label is not None}
        if values and not (teachers := set().union(*soft)) & values:
            own, others = (", ".join(map(repr, label_names(labels)[:10])) for labels in (values, teachers))
            raise DataError(
                f"The labels of the examples ({own}) are not those of the scores ({others}). Rename the labels, for "
                f"example: --label-names {label_names(values)[0]}={label_names(teachers)[0]}."
            )
        values = values.union(*soft)
        return cls.make(names if values <= set(names) else label_names(values), options)

    def notes(self, train: Sequence[Example], dev: Sequence[Example]) -> list[str]:
        """Warns also about labels that no row has a probability of."""
        soft = {name for example in train if isinstance(example.label, SoftLabel) for name in example.label.shares}
        notes = super().notes(train, dev)
        if unknown := sorted({str(example.label) for example in train} - soft):
            notes.append(f"labels that no row has a probability of: {', '.join(map(repr, unknown[:10]))}")
        return notes

    def targets(self, examples: Sequence[Example], encoded: Sequences) -> Targets:
        """Returns those of classification, and "shares" (W, L) float32: the softened target, which sums to 1."""
        plain = super().targets(examples, encoded).sequence
        number = {label: i for i, label in enumerate(self.labels)}
        target_EL = np.zeros((len(examples), len(self.labels)), np.float32)
        for row, labelled in enumerate(examples):
            if labelled.label in number:
                target_EL[row, number[labelled.label]] = 1
            if isinstance(labelled.label, SoftLabel):
                shares = [max(_MIN_PROBABILITY, labelled.label.shares.get(label, 0.0)) for label in self.labels]
                soft_L = np.array(shares, np.float32) ** (1 / self.soften)
                target_EL[row] = self.truth * target_EL[row] + (1 - self.truth) * soft_L / soft_L.sum()
        return Targets(sequence={**plain, "shares": target_EL[encoded.example]})

    def losses(self, logits: "Tensor", batch: "Batch") -> LossReport:
        """Returns the cross-entropy to the softened targets, times the square of the temperature, which keeps the size
        of the gradients. logits (B, L); reads labels "label", "shares" and "weight"."""
        from torch.nn.functional import log_softmax

        weight_B = batch.labels["weight"]
        loss_B = -(batch.labels["shares"] * log_softmax(logits / self.soften, -1)).sum(-1) * self.soften**2
        correct = (weight_B * right(logits, batch.labels["label"])).sum()
        return {"label": LossTerm((weight_B * loss_B).sum(), self.counts(batch.host)["label"], correct.detach())}

    def settings(self) -> JsonObject:
        """Returns the settings of the classifier that the trained model is."""
        return {name: value for name, value in super().settings().items() if name not in ("soften", "truth")}
