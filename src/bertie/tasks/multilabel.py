"""Multi-label classification of a text or a pair of texts: the topics of an article, the emotions of a message.

One binary decision per label, on one head. E examples · W sequences · B sequences of a batch · L labels
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from bertie.errors import DataError, MissingColumn, UsageError, WrongValue, nearest
from bertie.io.annotations import cell_labels, is_annotated
from bertie.io.columns import LookAhead, check_apart, find_columns, no_rows
from bertie.io.fields import Fields, as_text
from bertie.io.lines import BadRecord
from bertie.io.table_format import Columns, LabelNames, TableFormat
from bertie.io.tables import Example, example
from bertie.metrics.base import ScoreCounter
from bertie.metrics.label_sets import LabelSets
from bertie.metrics.resample import Reservoir
from bertie.metrics.thresholds import COST, Goal, check_threshold, choose_threshold
from bertie.models.facts import Facts
from bertie.models.loss import LabelAxis, LossReport, LossTerm
from bertie.tasks.answerer import Logits, Prediction, sigmoid
from bertie.tasks.base import KEPT, CalibratedTask
from bertie.tasks.render import RenderedExample, nats
from bertie.tasks.sequence import label_names
from bertie.tasks.source import Targets
from bertie.tasks.tabular import TabularTask
from bertie.text.sequences import Sequences

if TYPE_CHECKING:
    from torch import Tensor

    from bertie.models.batch import Batch

SEPARATORS = ("#", ";", "|", "/")  # besides the comma: of doccano, of spreadsheets
_EXAMPLES_SAMPLED = 100  # examples that tell whether lists are of 0 and 1
YES, NO = {"1", "1.0", "true", "yes"}, {"0", "0.0", "false", "no", ""}  # 1.0: as pandas writes a column with gaps


class Hot(tuple[int, ...]):
    """A list of 0 and 1: one for each label, or the numbers of labels."""


class LabelPositions(tuple[str, ...]):
    """Labels by their positions in a list of 0 and 1, from 1: nobody has named them."""


class Renamed(tuple[str, ...]):
    """Labels of such a list by names that were given. all: those of all positions, also of one that is never 1."""

    all: tuple[str, ...] = ()


def _hot(values: list[Any]) -> Hot | None:
    """Returns a list of two or more 0 and 1; None for another list."""
    plain = len({*map(type, values)}) == 1 < len(values) and all(
        isinstance(one, bool | int | float) and one in (0, 1) for one in values
    )
    return Hot(int(one) for one in values) if plain else None


@dataclass(frozen=True)
class MultiLabelTask(TabularTask, CalibratedTask):
    """`Example.label` is a tuple of names, which may be empty. Labels with a probability above a threshold are
    predicted.

    threshold: for all labels; None: the one with the best micro F1 on dev, after training. per_label: choose a
    threshold per label instead, by its F1; they are stored in `thresholds`. optimize: choose one per label for this
    goal (metrics/thresholds.py). calibrate, scale, shift: as of `CalibratedTask`, for the probability of each label.
    """

    threshold: float | None = None
    per_label: bool = False
    thresholds: tuple[float, ...] = ()
    optimize: str = ""

    head = "sequence"
    label_axes: ClassVar[Mapping[str, LabelAxis]] = {"has": "sequence", "weight": "sequence"}
    honours = frozenset({"weight", "loss", "optimize", "calibrate", "tabular", "markup"})
    several_labels = True
    reads_vectors = True
    problem_type = "multi_label_classification"
    metrics = ("micro_f1", "macro_f1")
    baselines = ("majority", "words", "characters")
    most_labels = 5_000
    csv_columns = ("label", "scores")

    def __post_init__(self) -> None:
        if not self.labels:
            raise DataError("None of the training examples has a label.")
        if self.optimize == COST:
            raise UsageError("optimize=cost is for tasks with one label a row. Choose another goal, such as f2.")
        if self.optimize:
            Goal.of(self.optimize)

    @classmethod
    def rows(
        cls, path: Path | str, format: TableFormat, *, on_columns: Callable[[Columns], None] = lambda columns: None
    ) -> Iterator[Example | BadRecord]:
        """Yields the examples of a table. In lists of as many 0 and 1, each position is a label."""
        rows = super().rows(path, replace(format, labels=LabelNames()), on_columns=on_columns)
        first = list(itertools.islice(rows, _EXAMPLES_SAMPLED)) if format.columns.labelled else []
        lists = [row.label for row in first if isinstance(row, Example) and row.label]
        sizes = Counter(map(len, lists)) if all(isinstance(label, Hot) for label in lists) else Counter[int]()
        meant = len(sizes) == 1 or max(sizes, default=0) > 2  # three values of 0 and 1 are not three labels
        size = sizes.most_common(1)[0][0] if sizes and meant else 0
        for row in itertools.chain(first, rows):
            if isinstance(row, BadRecord) or row.label is None:
                yield row
                continue
            label = row.label
            if isinstance(label, Hot) and (not size or len(label) == size):
                chosen = (str(i) for i, value in enumerate(label, 1) if value)
                label = LabelPositions(chosen) if size else tuple(sorted(set(map(str, label))))
            elif size:
                yield BadRecord(row.line, f"labels that are not a list of {size} times 0 or 1", source=row.source)
                continue
            if isinstance(label, LabelPositions) and format.labels.names:
                label = Renamed(format.labels.of(tuple(label)))
                label.all = tuple(
                    format.labels.names[str(i + 1)] for i in range(size) if str(i + 1) in format.labels.names
                )
            yield replace(row, label=format.labels.of(label) if type(label) is tuple else label)

    @classmethod
    def columns(cls, names: Sequence[str], columns: Columns, where: str, look: LookAhead = no_rows) -> Columns:
        """Returns one label column of lists, or (`label` with several comma-separated names) a column of 0 and 1 per
        label."""
        usual = [name.strip() for name in columns.usual_label.split(",")]  # those of the training file
        if columns.label == "" and len(usual) > 1 and set(usual) <= set(names):
            columns = replace(columns, label=columns.usual_label)
        several = [name.strip() for name in (columns.label or "").split(",")]
        if len(several) == 1 or columns.label in names:
            return replace(find_columns(names, columns, where, look), separator=columns.separator or ",")
        for name in several:
            if name not in names:
                raise MissingColumn(f"{where} has no column {name!r}. {nearest(name, names)}")
        columns = find_columns(names, replace(columns, label=several[0]), where, look)
        for label in several if columns.labelled else ():
            check_apart(columns.text, columns.tabular, label, names, where)
        return replace(columns, label=",".join(several) if columns.labelled else None)

    @classmethod
    def example(cls, fields: Fields, columns: Columns, line: int) -> Example | BadRecord:
        """Reads labels from a JSON list, from "a, b" (an empty field has none), or from a 1 in each label's column."""
        row = example(fields, replace(columns, label=None), line)
        if isinstance(row, BadRecord) or columns.label is None:
            return row
        names: list[str] = []
        if columns.label in fields:
            value = fields[columns.label]
            annotated = is_annotated(fields)
            if value in (None, "") and annotated is not None:
                value = [] if annotated else None
            if value is None:
                return BadRecord(line, f"no {columns.label}")
            if isinstance(value, str):  # as `predict` and Label Studio write lists into a csv
                value = cell_labels(value)
                if isinstance(value, str) and value.lstrip().startswith("["):
                    return BadRecord(line, f"{columns.label} begins with [ and is not a JSON list")
            values = value if isinstance(value, list) else value.split(columns.separator)
            if isinstance(value, list) and (hot := _hot(value)):
                return replace(row, label=hot)
            found_names = [as_text(name) for name in values]
            if not all(isinstance(name, str) for name in found_names):
                return BadRecord(line, f"{columns.label} has an item that is not a label")
            names = [name.strip() for name in found_names]
        else:
            for name in (columns.label or "").split(","):
                value = str(fields.get(name) or "").strip().lower()
                if value not in YES | NO:
                    return BadRecord(line, f"{name} is neither 0 nor 1")
                names += [name] if value in YES else []
        return replace(row, label=tuple(sorted(set(filter(None, names)))))

    @classmethod
    def from_examples(cls, examples: Sequence[Example], names: tuple[str, ...], options: Mapping[str, object]) -> Self:
        """Returns the task with the data set's labels where they include all, otherwise with those that occur.

        Raises UsageError for a threshold out of range.
        """
        if (threshold := cls.make(("any",), options).threshold) is not None and not 0 <= threshold <= 1:
            raise WrongValue(f"task_options.threshold is {threshold:g}; it must be between 0 and 1.")
        lists = (example.label for example in examples)
        labels = {label for one in lists for label in (*one, *(one.all if isinstance(one, Renamed) else ()))}
        return cls.make(names if names and labels <= set(names) else label_names(labels), options)

    def notes(self, train: Sequence[Example], dev: Sequence[Example]) -> list[str]:
        """Warns about labels only in dev, labels with one example, and examples without labels."""
        notes = []
        counts = Counter(label for example in train for label in example.label)
        if unknown := sorted({label for example in dev for label in example.label} - set(self.labels)):
            notes.append(f"labels of dev that do not occur in training, counted as missed: {', '.join(unknown[:10])}")
        if never := [label for label in self.labels if label not in counts]:
            notes.append(f"labels without a training example, which are never learned: {', '.join(never[:10])}")
        if rare := sorted(label for label, n in counts.items() if n < 2):
            notes.append(f"labels with a single example: {', '.join(map(repr, rare[:10]))}")
        if bare := sum(not example.label for example in train):
            notes.append(f"{bare:,} of {len(train):,} training examples have no label")
        sets: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
        for one in (one for one in train if one.vectors is None):
            sets.setdefault(one.texts, set()).add(tuple(one.label))
        if unclear := sum(len(variants) > 1 for variants in sets.values()):
            notes.append(
                f"{unclear:,} training texts occur with different labels, and each row counts as all labels of its text"
            )
        if any(isinstance(example.label, LabelPositions) for example in train):
            notes.append(
                "the labels are lists of 0 and 1, and are called by their positions, from 1. To name them, pass "
                "--label-names 1=NAME,2=NAME"
            )
        if all(len(example.label) < 2 for example in train) and (mark := _separator(self.labels)):
            notes.append(
                f"no example has two labels, and labels contain {mark!r}, for example "
                f"{next(label for label in self.labels if mark in label)!r}. If it separates labels, pass "
                f"--label-separator {mark!r}"
            )
        return notes

    def targets(self, examples: Sequence[Example], encoded: Sequences) -> Targets:
        """Returns "has" (W, L) float32: 1 for each label of an example; "weight" (W,) float32: sums to 1 over its
        windows."""
        number = {label: i for i, label in enumerate(self.labels)}
        has_EL = np.zeros((len(examples), len(self.labels)), np.float32)
        for row, labelled in enumerate(examples):
            has_EL[row, [number[label] for label in labelled.label if label in number]] = 1
        weight_E, of_W = np.array([example.weight for example in examples], np.float32), encoded.example
        return Targets(sequence={"has": has_EL[of_W], "weight": encoded.weight * weight_E[of_W]})

    def counts(self, batch: "Batch") -> Mapping[str, float]:
        """Returns the number of decisions, one per label and example, or the sum of their weights."""
        outputs = len(self.labels)
        count = self.loss_options.count(batch.labels["has"], batch.labels["weight"], outputs)
        return {"label": count * (outputs if self.loss_options.function is None else 1)}

    def losses(self, logits: "Tensor", batch: "Batch") -> LossReport:
        """Returns the binary cross-entropy of each decision. logits (B, L); reads labels "has" and "weight"."""
        options, has_BL = self.loss_options, batch.labels["has"]
        total = options.total(options.of_decisions, logits, has_BL, batch.labels["weight"])
        return {"label": LossTerm(total, self.counts(batch.host)["label"])}

    def decode(self, logits: Logits, encoded: Sequences, examples: Sequence[Example]) -> list[Prediction]:
        """Returns the predicted labels from the mean probabilities over the windows of a text."""
        cuts = self.thresholds or [0.5 if self.threshold is None else self.threshold] * len(self.labels)
        predictions = []
        for row in encoded.mean_of_windows(sigmoid(self.scaling(logits))).tolist():
            label = tuple(name for name, p, cut in zip(self.labels, row, cuts, strict=True) if p >= cut)
            predictions.append(Prediction(label, None, dict(zip(self.labels, row, strict=True))))
        return predictions

    def scores(self) -> LabelSets:
        """Returns a counter of true and predicted sets."""
        return LabelSets(self.labels)

    def count(self, scores: ScoreCounter, examples: Sequence[Example], predictions: Sequence[Prediction]) -> None:
        """Adds the labels, and the probability of every decision."""
        super().count(scores, examples, predictions)
        pairs = [*zip(examples, predictions, strict=True)]
        decisions = [(p, label in one.label) for one, answer in pairs for label, p in answer.scores.items()]
        if decisions and isinstance(scores, LabelSets):
            probabilities, truth = zip(*decisions, strict=True)
            scores.calibration.add(probabilities, truth)
            scores.calibration.add_all(np.array(probabilities)[:, None], np.array(truth)[:, None])

    def truth_of(self, example: Example) -> list[bool]:
        """Returns whether an example has each label."""
        return [label in example.label for label in self.labels]

    @property
    def tunes(self) -> bool:
        """Whether no threshold was set."""
        return self.threshold is None and not self.thresholds

    def tune_on_dev(self, answers: Iterable[tuple[Example, Prediction]]) -> Self:
        """Returns the task with the best thresholds on these examples, unless one was set."""
        if not self.tunes:
            return self
        sample = Reservoir[tuple[NDArray[np.float32], NDArray[np.bool_]]](KEPT // len(self.labels))
        for one, answer in answers:
            truth = np.array(self.truth_of(one))
            sample.add((np.fromiter(answer.scores.values(), np.float32), truth))
        scores_EL, truth_EL = (np.array(part) for part in zip(*sample.items, strict=True))
        if not self.per_label and not self.optimize:
            return replace(self, threshold=choose_threshold(scores_EL.ravel(), truth_EL.ravel()).threshold)
        columns = zip(self.labels, scores_EL.T, truth_EL.T, strict=True)
        choices = {label: choose_threshold(scores, truth, self.optimize or "f1") for label, scores, truth in columns}
        return replace(self, thresholds=tuple(one.threshold for one in choices.values())).with_choices(choices)

    def with_threshold(self, threshold: float, label: str = "") -> Self:
        """Returns the task with one threshold for all labels."""
        check_threshold(threshold)
        return replace(self, threshold=threshold, thresholds=())

    def error_score(self, example: Example, prediction: Prediction) -> float:
        """Returns the sum of the losses of all decisions."""
        return sum(nats(p if label in example.label else 1 - p) for label, p in prediction.scores.items())

    def render(self, example: Example, prediction: Prediction) -> RenderedExample:
        """Renders labels as lists."""
        truth, answer = ", ".join(example.label) or "none", prediction.label_text
        return replace(super().render(example, prediction), truth=truth, answer=answer)

    def slices(self, example: Example, prediction: Prediction, tokens: int, long: bool) -> dict[str, str]:
        """Subgroups also by the number of true labels."""
        return {**super().slices(example, prediction, tokens, long), "labels": str(len(example.label))}

    @classmethod
    def of_model(cls, facts: Facts, settings: Mapping[str, object]) -> Self | None:
        """Returns the task for a head with the problem type multi-label."""
        outputs = facts.heads.get(cls.head)
        if not outputs or facts.problem_type != cls.problem_type:
            return None
        task = cls.make(facts.label_names(cls.head), settings)
        if task.thresholds and len(task.thresholds) != outputs:
            raise DataError(f"The model has {outputs:,} labels but {len(task.thresholds):,} thresholds.")
        return task


def _separator(labels: Sequence[str]) -> str:
    """Returns what separates labels that were read as one, whose parts are labels, or parts of others; "" for none."""
    for mark in SEPARATORS:
        parts = Counter(part.strip() for label in labels for part in set(label.split(mark)))
        if any(mark in label and any(parts[part.strip()] > 1 for part in label.split(mark)) for label in labels):
            return mark
    return ""
