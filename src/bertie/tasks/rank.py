"""Re-ranking: pairs of a question and a passage, relevant or not. Passages are sorted by score.

A classifier of pairs whose last label means "relevant" (Nogueira and Cho 2019, arXiv:1901.04085). Its metrics are
computed from the rank of the first relevant passage of each question.
"""

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from bertie.errors import DataError
from bertie.io.tables import Example
from bertie.metrics.base import ScoreCounter
from bertie.metrics.ranking import Ranking
from bertie.tasks.answerer import Prediction
from bertie.tasks.sequence import SequenceTask


@dataclass(frozen=True)
class RankTask(SequenceTask):
    """One of two labels for each pair (question, passage). The passages of a question need not be consecutive."""

    reads_columns = False
    honours = SequenceTask.honours - {"weighted_scores", "optimize", "costs", "abstain", "coverage", "tabular"}
    one_label = False  # which passage is relevant depends on the others of its question
    metrics = ("mrr@10", "map")
    baselines = ("first", "overlap")

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.labels) != 2:
            raise DataError(
                f"Ranking needs two labels, relevant and not relevant; the examples have {len(self.labels):,} "
                f"({', '.join(self.labels[:9])})."
            )

    def check(self, train: Sequence[Example], remedy: str = "") -> None:
        """Raises DataError for single texts."""
        if any(len(example.texts) != 2 for example in train):
            raise DataError(
                "Ranking reads pairs of a question and a passage, but the examples have one text. Pass both columns "
                "with --text."
            )

    @classmethod
    def group(cls, example: Example) -> Hashable:
        """The group of an example is its question."""
        return example.texts[0] if example.group is None else example.group

    def notes(self, train: Sequence[Example], dev: Sequence[Example]) -> list[str]:
        """Says which label means "relevant", since its name may say otherwise."""
        other, yes = self.labels
        turned = f"--label-names '{yes}={yes},{other}={other}' reverses this"
        return [f"passages with the label {yes!r} count as relevant ({turned})", *super().notes(train, dev)]

    def scores(self) -> ScoreCounter:
        """Returns a counter of passages by question."""
        return Ranking()

    def count(self, scores: ScoreCounter, examples: Sequence[Example], predictions: Sequence[Prediction]) -> None:
        """Adds for each passage whether it is relevant, and its probability."""
        yes = self.labels[-1]
        truth = [(self.group(example), example.label == yes) for example in examples]
        scores.add(truth, [prediction.scores[yes] for prediction in predictions])

    @classmethod
    def sample(cls, texts: int) -> str:
        """Returns a question and a passage."""
        return json.dumps({"question": "Where is the library?", "sentence": "The library is in the old town hall."})

    def slices(self, example: Example, prediction: Prediction, tokens: int, long: bool) -> dict[str, str]:
        """Returns None, since the passages of a question are scored together."""
        return {}
