"""`Answerer`: from examples to ids, and from a head's logits to an answer. NumPy alone: any engine can stand between.

    examples -> encode -> Encoded -> (an engine) -> logits -> decode -> Prediction -> scores

E examples · W sequences the model reads (an example may have several) · T their tokens · L outputs of the head
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from bertie.data.tables import Example
from bertie.metrics.base import Scores
from bertie.tasks.source import Encoded, TooLong, encode
from bertie.text.tokenizer import Tokenizer

Logits = NDArray[np.float32]


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


class Answerer(ABC):
    """What answers. Settings such as thresholds are fields of the task."""

    metrics: ClassVar[tuple[str, ...]]
    """What is reported, the main one first: of that one more is better."""
    too_long: ClassVar[TooLong] = "truncate"
    """What is done with long texts unless the user says otherwise."""
    baselines: ClassVar[tuple[str, ...]] = ()
    """Answers without a model that a trained one is compared with, rows of evaluate/baselines.py."""
    csv_columns: ClassVar[tuple[str, ...]] = ("label", "probability")
    """Which keys of `Prediction.as_json` are written where predictions go to a csv file."""

    @property
    @abstractmethod
    def output(self) -> str:
        """Which of an engine's arrays `decode` reads (models/facts.py): a head's logits by its name, or vectors."""

    def encode(
        self, examples: Sequence[Example], tokenizer: Tokenizer, *, max_length: int, too_long: TooLong
    ) -> Encoded:
        """What the model reads of examples: one sequence or several for each. Must not look at their labels."""
        return encode(examples, tokenizer, max_length=max_length, too_long=too_long)

    @abstractmethod
    def decode(self, logits: Logits, encoded: Encoded, examples: Sequence[Example]) -> list[Prediction]:
        """The engine's array, (W, L) or (T, L), for all the sequences of E >= 1 examples in order -> E predictions."""

    @abstractmethod
    def scores(self) -> Scores:
        """An empty count of true and predicted labels, which ends in the task's metrics."""

    def count(self, scores: Scores, examples: Sequence[Example], predictions: Sequence[Prediction]) -> None:
        """Count more examples, all with labels, in what `scores` returned."""
        scores.add([example.label for example in examples], [prediction.label for prediction in predictions])

    def by_id(self) -> Mapping[str, str]:
        """Where answers go by their ids: what a file's name ends in -> which key of `Prediction.as_json` it holds."""
        return {"": self.csv_columns[0]}

    def tune_on_dev(self, answers: Iterable[tuple[Example, Prediction]]) -> Self:
        """The same task with the settings that serve dev examples best (a threshold), once the model is trained.

        answers: a stream, made as it is read; a task that has nothing to choose leaves it alone.
        """
        return self
