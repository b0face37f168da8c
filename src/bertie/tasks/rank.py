"""Re-ranking: pairs of a question and a passage that answers it or does not; passages come out in order of their score.

A classifier of pairs whose last label means "answers" (Nogueira and Cho 2019, arXiv:1901.04085); what differs is how it
is measured: by where the first right passage of each question stands.
"""

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from bertie.data.tables import Example
from bertie.errors import DataError
from bertie.metrics.base import Scores
from bertie.metrics.ranking import Ranking
from bertie.tasks.answerer import Prediction
from bertie.tasks.sequence import SequenceTask


@dataclass(frozen=True)
class RankTask(SequenceTask):
    """One of two labels for each pair (question, passage); the passages of a question need not stand together."""

    metrics = ("mrr@10", "map")
    baselines = ("overlap",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.labels) != 2:
            raise DataError(
                f"Ranking needs two labels, relevant and not relevant; the examples have {len(self.labels):,} "
                f"({', '.join(self.labels[:9])})."
            )

    @classmethod
    def group(cls, example: Example) -> Hashable:
        """The question."""
        return example.texts[0] if example.group is None else example.group

    def scores(self) -> Scores:
        """Passages by question."""
        return Ranking()

    def count(self, scores: Scores, examples: Sequence[Example], predictions: Sequence[Prediction]) -> None:
        """By question: whether each passage answers, and its probability of doing so."""
        yes = self.labels[-1]
        truth = [(self.group(example), example.label == yes) for example in examples]
        scores.add(truth, [prediction.scores[yes] for prediction in predictions])

    @classmethod
    def sample(cls, texts: int) -> str:
        """A question and a passage."""
        return json.dumps({"question": "Where is the library?", "sentence": "The library is in the old town hall."})

    def slices(self, example: Example, prediction: Prediction, tokens: int, long: bool) -> dict[str, str]:
        """None: the passages of a question are measured together."""
        return {}
