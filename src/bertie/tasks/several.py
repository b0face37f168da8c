"""Several tasks on one encoder, learned together: classification and numbers. Liu et al. 2019 (MT-DNN).

    text or pair -> encoder -> one classifier -> [ rte: 2 outputs | mrpc: 2 | stsb: 1 ]

The heads of MT-DNN are linear layers on the same vector, so they are rows of one classifier, and each task has its own.
The folder is an ordinary classification model, which every engine runs. `part` is the task of one head.

E examples · W sequences · B sequences of a batch · L outputs of all heads
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from bertie.errors import DataError, UnknownName, UsageError, nearest
from bertie.files import JsonObject
from bertie.io.tables import Example
from bertie.metrics.base import ScoreCounter
from bertie.metrics.several import SeveralScores
from bertie.models.facts import Facts
from bertie.models.loss import LossReport, LossTerm
from bertie.tasks.answerer import Logits, Prediction
from bertie.tasks.base import Task
from bertie.tasks.regression import RegressionTask
from bertie.tasks.render import RenderedExample
from bertie.tasks.sequence import SequenceTask
from bertie.tasks.source import Targets
from bertie.text.sequences import Sequences
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TooLong

if TYPE_CHECKING:
    from torch import Tensor

    from bertie.models.batch import Batch


@dataclass(frozen=True)
class Part(Task):
    """One head of several. first: the first of its outputs; reads: the texts of its examples."""

    first: int = 0
    reads: int = 1

    def texts_of_inputs(self, trained: int | None) -> int | None:
        """Returns the number of texts that the head reads."""
        return self.reads

    def encode(
        self, examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int, too_long: TooLong
    ) -> Sequences:
        """Returns the sequences of examples. Raises DataError for another number of texts than the head reads."""
        if any(len(example.texts) != self.reads for example in examples):
            raise DataError(f"{unread_reason(self.reads)} Pass its inputs, or choose another head.")
        return super().encode(examples, tokenizer, max_length=max_length, too_long=too_long)


@dataclass(frozen=True)
class PartLabels(Part, SequenceTask):
    """Classification by some outputs of a head."""

    def decode(self, logits: Logits, encoded: Sequences, examples: Sequence[Example]) -> list[Prediction]:
        """Returns the labels by these outputs."""
        return super().decode(logits[:, self.first : self.first + len(self.labels)], encoded, examples)


@dataclass(frozen=True)
class PartNumber(Part, RegressionTask):
    """A number by one output of a head."""

    def decode(self, logits: Logits, encoded: Sequences, examples: Sequence[Example]) -> list[Prediction]:
        """Returns the numbers by this output."""
        return super().decode(logits[:, self.first : self.first + 1], encoded, examples)


def unread_reason(texts: int) -> str:
    """Returns why a head does not answer other inputs than those of so many texts."""
    return f"This head reads {'single texts' if texts == 1 else 'pairs of texts'}."


@dataclass(frozen=True)
class SavedHead:
    """What is saved of a task. labels: none for a number; texts: of an example; metric: the main one; threshold: of a
    number, as `RegressionTask` has it; positive: a label, as `SequenceTask` has it."""

    labels: tuple[str, ...] = ()
    texts: int = 1
    metric: str = ""
    threshold: float | None = None
    positive: str = ""


@dataclass(frozen=True)
class SeveralPrediction(Prediction):
    """The predictions of all heads that read such an example. label: that of each head, by its name.

    silent: why the other heads give none.
    """

    parts: Mapping[str, Prediction] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> JsonObject:
        """Returns the labels by head, and the record of each head."""
        silent = {name: {"error": reason} for name, reason in self.silent.items()}
        return {"label": self.label, "heads": {name: part.as_json() for name, part in self.parts.items()} | silent}

    @property
    def label_text(self) -> str:
        """The label of each head."""
        return ", ".join(f"{name}: {part.label_text}" for name, part in self.parts.items())


@dataclass(frozen=True)
class SeveralTask(Task):
    """Several heads by name. `Example.label` is (name, label): each example teaches one head."""

    members: Mapping[str, SavedHead] = field(default_factory=dict)

    head = "sequence"
    metrics = ("mean",)
    csv_columns = ("label",)

    @property
    def table_columns(self) -> tuple[str, ...]:
        """The labels together, and the columns of each head."""
        return ("label", *(f"heads.{name}.{key}" for name in self.members for key in self.part(name).table_columns))

    def __post_init__(self) -> None:
        labels = [f"{name}/{label}" for name, one in self.members.items() for label in one.labels or ("score",)]
        object.__setattr__(self, "labels", tuple(labels))

    @classmethod
    def of(cls, parts: Mapping[str, tuple[Task, int, str]]) -> Self:
        """Returns the task of several tasks: by name the task, the texts of an example, and the main metric.

        Raises UsageError for a task that is neither classification nor a number.
        """
        members = {}
        for name, (task, texts, metric) in parts.items():
            if type(task) not in (SequenceTask, RegressionTask):
                raise UsageError(f"mix: {name} is neither of task sequence nor regression, which share a classifier.")
            number = task if isinstance(task, RegressionTask) else None
            members[name] = (
                SavedHead((), texts, metric, number.threshold)
                if number
                else SavedHead(task.labels, texts, metric, positive=getattr(task, "positive", ""))
            )
        return cls(members=members)

    @classmethod
    def of_model(cls, facts: Facts, settings: Mapping[str, object]) -> Self | None:
        """Only where the folder names the task."""
        return cls.make((), settings) if settings and cls.head in facts.heads else None

    def texts_of_inputs(self, trained: int | None) -> int | None:
        """Returns the number of texts that all heads read, None where they differ."""
        counts = {head.texts for head in self.members.values()}
        return counts.pop() if len(counts) == 1 else None

    def part(self, name: str) -> Task:
        """Returns the task of one head. Raises UsageError for an unknown name."""
        if name not in self.members:
            raise UnknownName(f"The model has no head {name!r}. {nearest(name, self.members)}")
        head, first = self.members[name], self.first(name)
        if head.labels:
            return PartLabels(labels=head.labels, positive=head.positive, first=first, reads=head.texts)
        return PartNumber(first=first, reads=head.texts, threshold=head.threshold)

    def first(self, name: str) -> int:
        """Returns the first output of a head."""
        names = [*self.members]
        return sum(len(self.members[one].labels) or 1 for one in names[: names.index(name)])

    def targets(self, examples: Sequence[Example], encoded: Sequences) -> Targets:
        """Returns, for each sequence, "head" (W,) int64, "label" (W,) int64, "number" (W,) float32 and "weight" (W,).

        Labels are numbers within their head. The weight is 0 for an unknown label.
        """
        names = {name: i for i, name in enumerate(self.members)}
        known = {name: {label: i for i, label in enumerate(one.labels)} for name, one in self.members.items()}
        head_E, label_E = np.zeros(len(examples), np.int64), np.zeros(len(examples), np.int64)
        number_E, weight_E = np.zeros(len(examples), np.float32), np.ones(len(examples), np.float32)
        for i, example in enumerate(examples):
            name, label = example.label
            head_E[i] = names[name]
            if known[name]:
                label_E[i], weight_E[i] = known[name].get(label, 0), label in known[name]
            else:
                number_E[i] = label
        of = encoded.example
        weights = encoded.weight * weight_E[of]
        return Targets({"head": head_E[of], "label": label_E[of], "number": number_E[of], "weight": weights})

    def counts(self, batch: "Batch") -> dict[str, int]:
        """Returns the number of examples."""
        return {"heads": round(float(batch.labels["weight"].sum()))}

    def losses(self, logits: "Tensor", batch: "Batch") -> LossReport:
        """Returns the cross-entropy or squared error of each example at its head. logits (B, L)

        Each example counts the same, so a head counts by its share of the examples.
        """
        from torch.nn.functional import cross_entropy

        total = logits.sum() * 0
        for i, (name, one) in enumerate(self.members.items()):
            rows = batch.where(batch.host.labels["head"] == i)
            weight_R, first = batch.labels["weight"][rows], self.first(name)
            logits_RL = logits[rows, first : first + (len(one.labels) or 1)]
            if one.labels:
                loss_R = cross_entropy(logits_RL, batch.labels["label"][rows], reduction="none")
            else:
                loss_R = (logits_RL[:, 0] - batch.labels["number"][rows]) ** 2
            total = total + (weight_R * loss_R).sum()
        return {"heads": LossTerm(total, self.counts(batch.host)["heads"])}

    def decode(self, logits: Logits, encoded: Sequences, examples: Sequence[Example]) -> list[Prediction]:
        """Returns the predictions of all heads for each example; a head for pairs has none for a single text."""
        parts = {name: self.part(name).decode(logits, encoded, examples) for name in self.members}
        predictions = list[Prediction]()
        for number, example in enumerate(examples):
            reads = {name: one.texts == len(example.texts) for name, one in self.members.items()}
            row = {name: parts[name][number] for name, own in reads.items() if own}
            silent = {name: unread_reason(self.members[name].texts) for name, own in reads.items() if not own}
            labels = {name: one.label for name, one in row.items()}
            predictions.append(SeveralPrediction(labels, parts=row, silent=silent))
        return predictions

    def scores(self) -> SeveralScores:
        """Returns a counter for each head."""
        return SeveralScores({name: (self.part(name).scores(), one.metric) for name, one in self.members.items()})

    def count(self, scores: ScoreCounter, examples: Sequence[Example], predictions: Sequence[Prediction]) -> None:
        """Counts each example at its head. Raises UsageError for examples that name none."""
        if any(not isinstance(example.label, tuple) for example in examples):
            raise UsageError(f"The model has several heads. Pass --head with one of: {', '.join(self.members)}.")
        assert isinstance(scores, SeveralScores)
        for name, _, example, prediction in self._own(examples, predictions):
            self.part(name).count(scores.parts[name][0], [example], [prediction])

    def _own(
        self, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> Iterable[tuple[str, Task, Example, Prediction]]:
        """Yields the head of each example, its task, the example with its own label, and the head's prediction."""
        for example, prediction in zip(examples, predictions, strict=True):
            assert isinstance(prediction, SeveralPrediction)
            name, label = example.label
            yield name, self.part(name), replace(example, label=label), prediction.parts[name]

    def error_score(self, example: Example, prediction: Prediction) -> float:
        """Returns that of the example's head."""
        ((_, task, own, part),) = self._own([example], [prediction])
        return task.error_score(own, part)

    def render(self, example: Example, prediction: Prediction) -> RenderedExample:
        """Renders the prediction of the example's head."""
        ((_, task, own, part),) = self._own([example], [prediction])
        return task.render(own, part)

    def slices(self, example: Example, prediction: Prediction, tokens: int, long: bool) -> dict[str, str]:
        """Returns the subgroups of an example, with its head."""
        return {"head": example.share, **super().slices(example, prediction, tokens, long)}
