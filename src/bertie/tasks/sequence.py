"""Single-label classification of a text or a pair of texts.

    [CLS] text [SEP]            one segment
    [CLS] first [SEP] second [SEP]     two (Devlin et al. 2018, figure 4 a and b)

E examples · W sequences · B sequences of a batch · L labels
"""

import re
import shlex
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from bertie.errors import DataError, UnknownLabel, UsageError, WrongValue, nearest
from bertie.io.fields import MISSING_VALUES
from bertie.io.tables import Example
from bertie.metrics.base import ScoreCounter
from bertie.metrics.calibration import set_cut
from bertie.metrics.confusion import Confusion, rarest
from bertie.metrics.resample import Reservoir
from bertie.metrics.thresholds import COST, Goal, check_costs, check_threshold, choose_threshold, cost_of
from bertie.models.facts import Facts
from bertie.models.loss import LabelAxis, LossReport, LossTerm, right
from bertie.tasks.answerer import Logits, Prediction, softmax
from bertie.tasks.base import KEPT, CalibratedTask, Task
from bertie.tasks.source import Targets
from bertie.tasks.tabular import TabularTask
from bertie.text.sequences import Sequences

if TYPE_CHECKING:
    from torch import Tensor

    from bertie.models.batch import Batch

_NUMBER = re.compile(r"-?\d+(\.\d+)?")
CLASSES = 20  # whole numbers that can be classes, as stars are
MAX_PROBABILITIES = 1000  # labels of which a prediction tells the probability: with more, the most probable ones
SHOWN_TEXT = 60  # characters of a text in a note
Main = Literal["accuracy", "macro_f1", "mcc", "f1"]


@dataclass(frozen=True)
class SequenceTask(TabularTask, CalibratedTask):
    """One of `labels` for each sequence. Raises DataError for fewer than two labels.

    calibrate, scale, shift: as of `CalibratedTask`. positive: the label whose F1 is the main metric; "": f1 is that of
    the second of two labels. optimize: after training, choose the threshold of a label's probability for this goal
    (metrics/thresholds.py), and of which label: `positive`, or the second of two.
    threshold, threshold_of: such a threshold; None: the most probable label is predicted. costs: of a predicted label,
    by the true one, for optimize=cost. abstain: below this probability, no answer is given. coverage: the share of
    prediction sets that have the true label; set_from: the probability from which on a label is in one. main: the main
    metric; None: F1 of `positive` if it is set, macro F1 where a label is rare in training, otherwise accuracy.
    """

    positive: str = ""
    main: Main | None = None
    optimize: str = ""
    threshold: float | None = None
    threshold_of: str = ""
    costs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    abstain: float | None = None
    coverage: float | None = None
    set_from: float | None = None

    head = "sequence"
    label_axes: ClassVar[Mapping[str, LabelAxis]] = {"label": "sequence", "weight": "sequence"}
    problem_type: ClassVar[str | None] = "single_label_classification"
    honours = frozenset(
        {
            *("weight", "weighted_scores", "class_weights", "sampling", "loss", "label_smoothing"),
            *("optimize", "costs", "calibrate", "abstain", "coverage", "tabular", "markup"),
        }
    )
    one_label = True
    exclusive = True
    reads_vectors: ClassVar[bool] = True
    baselines: ClassVar[tuple[str, ...]] = ("majority", "overlap", "words", "characters")

    def __post_init__(self) -> None:
        if len(self.labels) < 2:
            have = f"only {self.labels[0]!r}" if self.labels else "no label at all"
            raise DataError(
                f"Classification needs at least two labels; the training examples have {have}. "
                "Check the label column: --label COLUMN."
            )
        if self.positive and self.positive not in self.labels:
            raise UnknownLabel(
                f"The positive label {self.positive!r} does not exist. {nearest(self.positive, self.labels)}"
            )
        if self.optimize:
            Goal.of(self.optimize)
        if self.costs or self.optimize == COST:
            check_costs(self.costs, self.labels)
        if self.abstain is not None and not 0 <= self.abstain <= 1:
            raise WrongValue(f"abstain is {self.abstain:g}; it must be a probability, between 0 and 1.")
        if self.threshold is not None:
            check_threshold(self.threshold)
        if self.optimize or self.threshold is not None:
            self.labels.index(self.threshold_label)

    @property
    def metrics(self) -> tuple[str, ...]:  # type: ignore[override]
        """The main metric, then accuracy and macro F1."""
        main = self.main or ("f1" if self.positive else "accuracy")
        return tuple(dict.fromkeys((main, "accuracy", "macro_f1")))

    @classmethod
    def stratify_by(cls, example: Example) -> Hashable:
        """The dev set is stratified by label."""
        label: str | None = example.label
        return label

    @classmethod
    def from_examples(cls, examples: Sequence[Example], names: tuple[str, ...], options: Mapping[str, object]) -> Self:
        """Returns the task with the data set's labels where they include all, otherwise with those that occur."""
        labels = {example.label for example in examples if example.label is not None}
        return cls.make(names if labels <= set(names) else label_names(labels), options)

    def notes(self, train: Sequence[Example], dev: Sequence[Example]) -> list[str]:
        """Warns about labels only in dev, labels with one training example, and labels that may be meant otherwise."""
        notes, counts = [], Counter(example.label for example in train)
        if unknown := sorted({str(example.label) for example in dev} - set(self.labels)):
            rows = sum(example.label in unknown for example in dev)
            notes.append(
                f"{rows:,} dev examples have labels that do not occur in training and count as errors: "
                f"{', '.join(map(repr, unknown[:10]))}"
            )
        if rare := sorted(label for label, n in counts.items() if n < 2):
            notes.append(f"labels with a single example: {', '.join(map(repr, rare[:10]))}")
        return notes + _doubts(train)

    def warnings(self, train: Sequence[Example]) -> list[str]:
        """Warns about a rare label, unless one was chosen."""
        rare = None if self.positive else rarest(Counter(str(example.label) for example in train))
        if rare is None or "accuracy" not in self.metrics:  # ranking and relations have measures of their own
            return []
        label, share = rare
        return [
            f"{label!r} is the label of only {share:.1%} of the training examples, and accuracy says little about it. "
            f"Look at macro F1, or at the F1 of one label: --positive {shlex.quote(label)}."
        ]

    def for_examples(self, train: Sequence[Example]) -> Self:
        """Returns the task with macro F1 as its main metric, where a label is rare and no metric was chosen."""
        free = self.main is None and not self.positive
        return (
            replace(self, main="macro_f1")
            if free and rarest(Counter(str(example.label) for example in train))
            else self
        )

    def led_by(self, metric: str) -> Self:
        """Returns the task with another main metric, unless its options set one."""
        known: dict[str, Main] = {main: main for main in get_args(Main)}
        return self if self.main is not None else replace(self, main=known.get(metric))

    def targets(self, examples: Sequence[Example], encoded: Sequences) -> Targets:
        """Returns "label" (W,) int64; "weight" (W,) float32: sums to that of the example over its windows, 0 for an
        unknown label."""
        number = {label: i for i, label in enumerate(self.labels)}
        label_E = np.array([number.get(example.label, 0) for example in examples], np.int64)
        weight_L = {label: self.loss_options.class_weights.get(label, 1.0) for label in self.labels}
        weights = [example.weight * weight_L.get(example.label, 0.0) for example in examples]
        weight_E, of_W = np.array(weights, np.float32), encoded.example
        return Targets(sequence={"label": label_E[of_W], "weight": encoded.weight * weight_E[of_W]})

    def counts(self, batch: "Batch") -> Mapping[str, float]:
        """Returns the sum of the examples' weights. The windows of a long text count as one."""
        return {"label": self.loss_options.count(batch.labels["label"], batch.labels["weight"], len(self.labels))}

    def losses(self, logits: "Tensor", batch: "Batch") -> LossReport:
        """Returns the cross-entropy, or the loss of the run. logits (B, L); reads labels "label" and "weight"."""
        target_B, weight_B = batch.labels["label"], batch.labels["weight"]
        total = self.loss_options.total(self.loss_options.of_labels, logits, target_B, weight_B)
        correct = (weight_B * right(logits, target_B)).sum()
        return {"label": LossTerm(total, SequenceTask.counts(self, batch.host)["label"], correct.detach())}

    @property
    def threshold_label(self) -> str:
        """The label that a threshold is for. Raises UsageError where none of several labels is chosen."""
        if not self.threshold_of and not self.positive and len(self.labels) > 2:
            several = f"A threshold is for one label, and there are {len(self.labels):,}."
            raise UsageError(f"{several} Name it in training or evaluation: --positive LABEL.")
        return self.threshold_of or self.positive or self.labels[1]

    def with_threshold(self, threshold: float, label: str = "") -> Self:
        """Returns the task with another threshold of the probability of a label; "": of its own one."""
        positive, own = label or self.positive, label or self.threshold_of
        return replace(self, threshold=threshold, positive=positive, threshold_of=own)

    def with_abstain(self, abstain: float) -> Self:
        """Returns the task that gives no answer where the probability of the label is below `abstain`."""
        return replace(self, abstain=abstain)

    @property
    def table_columns(self) -> tuple[str, ...]:
        """Those of the label and the probabilities, the reason for no label, and the prediction set."""
        columns = [*super().table_columns, *(["reason"] if self.abstain else [])]
        return (*columns, *(["label_set"] if self.set_from is not None else []))

    def answer(self, row: Mapping[str, float], best: int) -> Prediction:
        """Returns the prediction of a label by its number. row: the probabilities of labels."""
        label = self.labels[best]
        p, of_set, reason = row[label], None, ""
        if self.set_from is not None:
            of_set = tuple(name for name, value in row.items() if value >= self.set_from or name == label)
        if self.abstain and p < self.abstain:
            reason = f"the probability of {label!r} is {p:z.3f}, below {self.abstain:g}"
        return Prediction(None if reason else label, p, row, reason=reason, label_set=of_set)

    def choose(self, logits_L: NDArray[np.float32]) -> int:
        """Returns the number of the label that is predicted from the logits of one sequence."""
        return self.winner(softmax(self.scaling(logits_L[None]))[0].tolist())

    def winner(self, row_L: Sequence[float]) -> int:
        """Returns the number of the predicted label: the one of the threshold, or the most probable (other) one."""
        best = max(range(len(row_L)), key=row_L.__getitem__)
        if self.threshold is None:
            return best
        own = self.labels.index(self.threshold_label)
        if row_L[own] >= self.threshold:
            return own
        return best if best != own else max((i for i in range(len(row_L)) if i != own), key=row_L.__getitem__)

    def decode(self, logits: Logits, encoded: Sequences, examples: Sequence[Example]) -> list[Prediction]:
        """Returns the label with the highest mean probability over the windows of a text, or that of the threshold.

        Of labels with equal probabilities, the first one is returned.
        """
        predictions = []
        probability_EL = encoded.mean_of_windows(softmax(self.scaling(logits)))
        if len(self.labels) <= MAX_PROBABILITIES:
            for row in probability_EL.tolist():
                predictions.append(self.answer(dict(zip(self.labels, row, strict=True)), self.winner(row)))
            return predictions
        for row in probability_EL:
            numbers = _highest(row, MAX_PROBABILITIES)
            scores = dict(zip((self.labels[number] for number in numbers), row[numbers].tolist(), strict=True))
            best = numbers[0] if self.threshold is None else self.winner(row.tolist())
            scores.setdefault(self.labels[best], float(row[best]))
            predictions.append(self.answer(scores, best))
        return predictions

    def scores(self) -> ScoreCounter:
        """Returns a counter of true and predicted labels."""
        return Confusion(self.labels, positive=self.positive, costs=self.costs)

    def count(self, scores: ScoreCounter, examples: Sequence[Example], predictions: Sequence[Prediction]) -> None:
        """Adds the labels and the probabilities of the predictions, where they have one, with the examples' weights."""
        assert isinstance(scores, Confusion)
        pairs = [*zip(examples, predictions, strict=True)]
        known = [(one, answer) for one, answer in pairs if answer.probability is not None]
        answered = [pair for pair in pairs if not pair[1].reason]
        weights = [one.weight for one, _ in answered] if "weighted_scores" in self.honours else None
        scores.add([one.label for one, _ in answered], [self.label_of(answer) for _, answer in answered], weights)
        scores.calibration.add(
            (answer.probability or 0.0 for _, answer in known),
            (self.label_of(answer) == one.label for one, answer in known),
        )
        scores.selective.add(
            [answer.probability or 0.0 for _, answer in known],
            [self.label_of(answer) == one.label for one, answer in known],
        )
        scores.selective.withheld += len(pairs) - len(answered)
        sets = [(one.label, answer.label_set) for one, answer in pairs if answer.label_set is not None]
        scores.sets.add([label for label, _ in sets], [labels for _, labels in sets])
        whole = [(one.label, answer.scores) for one, answer in known if len(answer.scores) == len(self.labels)]
        if whole:
            truth = [[label == other for other in shares] for label, shares in whole]
            scores.calibration.add_all([[*shares.values()] for _, shares in whole], truth)

    def label_of(self, answer: Prediction) -> str:
        """Returns the label that a prediction has, or would have if it were not withheld."""
        if not answer.reason:
            return str(answer.label)
        if len(answer.scores) < len(self.labels):
            return max(answer.scores, key=answer.scores.__getitem__)
        return self.labels[self.winner([*answer.scores.values()])]

    @property
    def calibrates(self) -> bool:
        """Whether the scaling of the logits is fitted, which that of many labels is not."""
        return super().calibrates and len(self.labels) <= MAX_PROBABILITIES

    def truth_of(self, example: Example) -> list[bool] | None:
        """Returns which label an example has, unless the model does not know it."""
        return [label == example.label for label in self.labels] if example.label in self.labels else None

    @property
    def tunes(self) -> bool:
        """Whether a threshold is chosen, which none of many labels has."""
        return bool(self.optimize) and self.threshold is None and len(self.labels) <= MAX_PROBABILITIES

    def tune_on_dev(self, answers: Iterable[tuple[Example, Prediction]]) -> Self:
        """Returns the task with the threshold that is best for `optimize`."""
        if not self.tunes:
            return self
        sample = Reservoir[tuple[float, bool, tuple[float, float]]](KEPT)
        own = self.threshold_label
        for example, answer in answers:
            if example.label in self.labels and answer.scores:
                other = max((label for label in self.labels if label != own), key=answer.scores.__getitem__)
                costs = cost_of(self.costs, example.label, own), cost_of(self.costs, example.label, other)
                sample.add((answer.scores[own], example.label == own, costs))
        if not sample.items:
            return self
        scores, truth, each = zip(*sample.items, strict=True)
        chosen = choose_threshold(scores, truth, self.optimize, each if self.optimize == COST else None)
        task = replace(self, threshold=chosen.threshold, threshold_of=own)
        return task.with_choices({own: chosen})

    def with_sets_for(self, answers: Iterable[tuple[Example, Prediction]]) -> Self:
        """Returns the task whose sets have the promised coverage, by the probabilities of the true labels."""
        if self.coverage is None:
            return self
        p = [answer.scores.get(one.label, 0.0) for one, answer in answers if one.label in self.labels]
        return replace(self, set_from=set_cut(p, self.coverage))

    @classmethod
    def of_model(cls, facts: Facts, settings: Mapping[str, object]) -> Self | None:
        """Returns the task for a head with at least two outputs and no other problem type."""
        if facts.heads.get(cls.head, 0) < 2 or facts.problem_type not in (None, cls.problem_type):
            return None
        return cls.make(facts.label_names(cls.head), settings)


def with_positive(task: Task, label: str) -> Task:
    """Returns a task whose main metric is the F1 of a label; "": the task itself.

    Raises UsageError for a task that is no classification, and for an unknown label.
    """
    if not label:
        return task
    if not isinstance(task, SequenceTask) or "accuracy" not in task.metrics:
        raise UsageError("positive is a label of a classification, and the model has another task. Omit it.")
    own = task.threshold_of if task.threshold is None else task.threshold_label
    return replace(task, positive=label, main=None, threshold_of=own)


def label_names(labels: set[str]) -> tuple[str, ...]:
    """Returns labels in the order of the model's outputs: numbers by value if all are integers, otherwise
    alphabetically.

    The order does not depend on the order of the rows.
    """
    if all(len(label) < 20 and label.removeprefix("-").isdecimal() for label in labels):
        return tuple(sorted(labels, key=lambda label: (int(label), label)))
    return tuple(sorted(labels))


def _doubts(train: Sequence[Example]) -> list[str]:
    """Returns notes on texts with several labels, labels that differ in case alone, and labels that are numbers."""
    notes, names = [], {example.label for example in train}
    labels: dict[tuple[str, ...], set[str]] = {}
    for example in train:
        if type(example) is Example and example.vectors is None:  # others differ in more than their texts
            labels.setdefault(example.texts, set()).add(example.label)
    if unclear := [texts[0][:SHOWN_TEXT] for texts, variants in labels.items() if len(variants) > 1]:
        notes.append(f"{len(unclear):,} training texts have more than one label, for example {unclear[0]!r}")
    forms: dict[str, list[str]] = {}
    for label in sorted(names):
        forms.setdefault(" ".join(normalize("NFC", label).casefold().split()), []).append(label)
    if alike := [form for form in forms.values() if len(form) > 1]:
        shown = "; ".join(", ".join(map(repr, form)) for form in alike[:5])
        notes.append(f"labels that differ only in case, spaces or Unicode form are kept apart: {shown}")
    if missing := sorted(name for name in names if name.casefold() in MISSING_VALUES):
        count = sum(example.label in missing for example in train)
        notes.append(
            f"the label {missing[0]!r} may mean that there is none ({count:,} training examples). If so, remove these "
            "rows"
        )
    numbers = [float(name) for name in names if _NUMBER.fullmatch(name)]
    if len(numbers) == len(names) and (len(numbers) > CLASSES or any(n % 1 for n in numbers)):
        notes.append(f"all {len(names)} labels are numbers; to predict a number, pass --task regression")
    return notes


def _highest(values: NDArray[Any], count: int) -> list[int]:
    """Returns the positions of the highest of more values, highest first, and the first ones for a tie.

    Sorting all of 20,000 values would take ten times as long.
    """
    least = np.partition(values, len(values) - count)[len(values) - count]
    some = np.flatnonzero(~(values < least))  # also where there is no number
    order: list[int] = some[np.argsort(-values[some], kind="stable")[:count]].tolist()
    return order
