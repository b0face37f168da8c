"""`Answerer`: from examples to ids, and from a head's logits to predictions. It uses only NumPy, so it fits any engine.

    examples -> encode -> Sequences -> (an engine) -> logits -> decode -> Prediction -> scores

E examples · W sequences (an example may have several) · T their tokens · L outputs of the head
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bertie.console import counted
from bertie.errors import UsageError
from bertie.io.tables import Example
from bertie.metrics.base import ScoreCounter
from bertie.metrics.scaling import Scaling
from bertie.metrics.tags import Entity
from bertie.metrics.thresholds import ChosenThreshold
from bertie.tasks.render import RenderedExample, render_plain_text
from bertie.tasks.source import encode_examples
from bertie.text.sequences import Sequences
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TooLong

Float = NDArray[np.float32]


def softmax(logits: Float) -> Float:
    """Returns probabilities along the last dimension. (..., L) -> (..., L)"""
    powers: Float = np.exp(logits - logits.max(-1, keepdims=True))
    powers /= powers.sum(-1, keepdims=True)
    return powers


def sigmoid(logits: Float) -> Float:
    """Returns the sigmoid without overflow. (...) -> (...)"""
    small = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1 / (1 + small), small / (1 + small)).astype(np.float32)


def unit_vectors(vectors: Float) -> Float:
    """Returns vectors of length 1; zero vectors stay zero. (..., H) -> (..., H)"""
    units: Float = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return units


Logits = NDArray[np.float32]


class TaggedWord(NamedTuple):
    """A word with its tag and the probability of it. start, end: its characters in the text."""

    tag: str
    probability: float
    start: int
    end: int


@dataclass(frozen=True)
class Prediction:
    """The prediction for one example.

    Attributes:
        label: The predicted label, of the same type as the task's `Example.label`.
        probability: The probability of the label, where there is one.
        scores: The probability of every possible label.
        error: Why a text has no answer, such as "empty text"; the label is then None.
        reason: Why an answer is withheld, where the model is not sure; the label is then None.
        label_set: Labels among which the true one is, with the probability that was promised (metrics/calibration.py).
    """

    label: object
    probability: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    error: str = field(default="", kw_only=True)
    reason: str = field(default="", kw_only=True)
    label_set: tuple[str, ...] | None = field(default=None, kw_only=True)

    @property
    def entities(self) -> list[Entity]:
        """The names that a tagger found, by characters of the text; none of another task."""
        return []

    @property
    def tagged_words(self) -> list[TaggedWord]:
        """The words of a tagged text; none of another task."""
        return []

    @property
    def number(self) -> float:
        """The label, where it is a number. Raises TypeError for another one."""
        if not isinstance(self.label, float | int):
            raise TypeError(f"The label is {self.label!r:.60}, which is no number.")
        return self.label

    @property
    def label_probabilities(self) -> Mapping[str, float]:
        """The probability of each answer, by its label; empty where answers have none."""
        return self.scores

    def as_json(self) -> dict[str, object]:
        """Returns the prediction as JSON values, rounded to six digits, the precision of float32."""
        if self.error:
            return {"error": self.error}
        record: dict[str, object] = {"label": round(self.label, 6) if isinstance(self.label, float) else self.label}
        if self.probability is not None:
            record["probability"] = round(self.probability, 6)
        if self.reason:
            record["reason"] = self.reason
        if self.label_set is not None:
            record["label_set"] = list(self.label_set)
        if self.scores:
            record["scores"] = {label: round(score, 6) for label, score in self.scores.items()}
        return record

    def render(self, texts: Sequence[str]) -> RenderedExample:
        """Returns the prediction as a person reads it, with the texts of its example."""
        of_set = "" if self.label_set is None else f"one of: {', '.join(self.label_set) or 'none'}"
        note = "; ".join(filter(None, (self.reason, of_set)))
        return RenderedExample(
            tuple(map(render_plain_text, texts)), "", self.label_text, self.probability, self.scores, note
        )

    @property
    def label_text(self) -> str:
        """The label in words: several labels with commas, and the first numbers of a vector."""
        if isinstance(self.label, float):
            return f"{self.label:z.4g}"
        if isinstance(self.label, list):
            first = ", ".join(f"{value:z.3f}" for value in self.label[:4])
            return f"[{first}{', ...' * (len(self.label) > 4)}] {counted(len(self.label), 'number')}"
        if isinstance(self.label, tuple):
            return ", ".join(map(str, self.label)) or "none"
        return "no label" if self.label is None else str(self.label)


class Answerer(ABC):
    """The part of a task that predicts. Settings such as thresholds are fields of the task."""

    metrics: ClassVar[tuple[str, ...]]
    """The reported metrics. The first one is the main metric; higher is better."""
    input_texts: ClassVar[range] = range(1, 3)
    """The numbers of texts that an input may have."""
    texts_vary: ClassVar[bool] = False
    """Whether an input may have another number of texts than in training: vectors of texts are learned from pairs."""
    too_long: ClassVar[TooLong] = "truncate"
    """The default for long texts."""
    no_windows: ClassVar[str] = ""
    """The message that long texts cannot be read in windows; "" where they can."""
    baselines: ClassVar[tuple[str, ...]] = ()
    """Baselines without a model, rows of evaluation/baselines.py."""
    reads_vectors: ClassVar[bool] = False
    """Whether `encode` keeps the feature vectors of examples."""
    one_label: ClassVar[bool] = False
    """Whether an example has one label, and a prediction the probability of each: labels can then be checked."""
    exclusive: ClassVar[bool] = False
    """Whether a text has one of the labels, whose probabilities add up to one."""
    places: ClassVar[bool] = False
    """Whether examples have places in their texts, which another text would not have."""
    at_once: ClassVar[int | None] = None
    """Rows that are predicted together, where the array of a row is large. None: as many as sort well by length."""
    choices: ClassVar[Mapping[str, ChosenThreshold]] = {}
    """How thresholds were chosen after training, by label."""
    tokens: ClassVar[Any] = None
    """What `tokens_of` returned for the tokenizer of the model."""
    csv_columns: ClassVar[tuple[str, ...]] = ("label", "probability", "scores")
    """The keys of `Prediction.as_json` that are written to csv files; scores: a column for each label."""

    @property
    @abstractmethod
    def output(self) -> str:
        """The name of the array that `decode` reads (models/facts.py): a head's logits, or vectors."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The same where `decode` reads several arrays, joined along their last dimension."""
        return (self.output,)

    def texts_of_inputs(self, trained: int | None) -> int | None:
        """Returns the number of texts of every input, None where it is not known. trained: that of the training."""
        if len(self.input_texts) == 1:
            return self.input_texts[0]
        return trained if trained is not None and trained in self.input_texts else None

    def with_tokenizer(self, tokenizer: Tokenizer) -> Self:
        """Returns the task for a model's tokenizer, with what it needs of it outside of `encode` (`tokens`)."""
        tokens = self.tokens_of(tokenizer)
        if tokens is None:
            return self
        task = copy.copy(self)
        object.__setattr__(task, "tokens", tokens)
        return task

    def tokens_of(self, tokenizer: Tokenizer) -> Any:
        """Returns what the task needs of a tokenizer to learn or to answer; nothing for most tasks."""
        return None

    def check_windows(self, too_long: TooLong) -> None:
        """Raises UsageError for windows if the task does not support them."""
        if too_long == "window" and self.no_windows:
            raise UsageError(f"{self.no_windows}. Choose too_long=truncate or too_long=error, or raise max_length.")

    def encode(
        self, examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int, too_long: TooLong
    ) -> Sequences:
        """Returns the input of the model: one or several sequences per example. It must not read labels."""
        return encode_examples(examples, tokenizer, max_length=max_length, too_long=too_long)

    def with_cells(self, encoded: Sequences, examples: Sequence[Example]) -> Sequences:
        """Returns the sequences of examples with what the task reads of their rows beside the texts."""
        return encoded

    def with_columns(self, logits: Logits, encoded: Sequences) -> Logits:
        """Returns the logits of texts with what other columns of their rows add."""
        return logits

    @abstractmethod
    def decode(self, logits: Logits, encoded: Sequences, examples: Sequence[Example]) -> list[Prediction]:
        """Returns E predictions from the engine's array, (W, L) or (T, L), of all sequences of E >= 1 examples."""

    @abstractmethod
    def scores(self) -> ScoreCounter:
        """Returns an empty counter of true and predicted labels, which computes the task's metrics."""

    def count(self, scores: ScoreCounter, examples: Sequence[Example], predictions: Sequence[Prediction]) -> None:
        """Adds labeled examples and their predictions to what `scores` returned."""
        scores.add([example.label for example in examples], [prediction.label for prediction in predictions])

    def metrics_for(self, examples: Sequence[Example]) -> tuple[str, ...]:
        """Returns the metrics of labeled examples, where they depend on the kind of rows."""
        return self.metrics

    def by_id(self) -> Mapping[str, str]:
        """Returns the files of answers by id: suffix of the file name -> key of `Prediction.as_json`."""
        return {"": self.csv_columns[0]}

    def with_threshold(self, threshold: float, label: str = "") -> Self:
        """Returns the task with another threshold, that of a label. Raises UsageError for a task without thresholds."""
        raise UsageError("The answers of this model have no threshold. Omit threshold.")

    def with_abstain(self, abstain: float) -> Self:
        """Returns the task that gives no answer below a probability. Raises UsageError for a task that cannot."""
        raise UsageError("The answers of this model have no probability to abstain by. Omit abstain.")

    def with_sets_for(self, answers: Iterable[tuple[Example, Prediction]]) -> Self:
        """Returns the task whose prediction sets have the promised coverage. answers: to rows used for nothing else."""
        return self

    def with_choices(self, choices: Mapping[str, ChosenThreshold]) -> Self:
        """Returns the task with what is known about the choice of its thresholds, by label."""
        task = copy.copy(self)
        object.__setattr__(task, "choices", choices)
        return task

    @property
    def calibrates(self) -> bool:
        """Whether `scaling_for` reads the logits."""
        return False

    def scaling_for(self, parts: Iterable[tuple[Sequence[Example], Sequences, Logits]]) -> Scaling:
        """Returns the scaling of the logits that calibrates the probabilities of examples, after training.

        parts: examples, their sequences and their logits (W, L): a stream, computed while it is read.
        """
        return Scaling()

    def with_scaling(self, scaling: Scaling) -> Self:
        """Returns the task with another scaling of the logits."""
        raise UsageError("The probabilities of this task are not calibrated. Omit calibrate.")

    @property
    def tunes(self) -> bool:
        """Whether `tune_on_dev` reads the answers."""
        return False

    def tune_on_dev(self, answers: Iterable[tuple[Example, Prediction]]) -> Self:
        """Returns the same task with settings tuned on dev examples (a threshold), after training.

        answers: a stream, computed while it is read. A task without such settings does not read it.
        """
        return self
