"""Which attention heads a task needs: their importance, and the metric as they are removed in this order.

    importance   I = mean |dL / dxi| (compression/importance.py), divided by the l2 norm of its layer
    curve        the metric without the k least important heads, and without k heads in random order

The first half of the examples ranks the heads, and the second half measures the metric. Michel et al. 2019.

L layers · N heads
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertie.apps.explain.attention import Floats
from bertie.platform import DataError, Example, ModelInternals, Prediction, Predictor, TorchModel, console

_Head = tuple[int, int]  # layer and head, from 0
RANDOM = 3  # orders


@dataclass(frozen=True)
class Removal:
    """The importance of each head (L, N), and the metric for some numbers of removed heads.

    points: (removed, metric) with the least important heads removed first; random: the same for each random order.
    examples: how many ranked the heads, and how many measured the metric.
    """

    importance: Floats
    metric: str
    points: list[tuple[int, float]]
    random: list[list[tuple[int, float]]]
    examples: tuple[int, int]

    def order(self) -> list[_Head]:
        """Returns the heads, the least important first."""
        return least_important(self.importance)

    def as_json(self) -> dict[str, Any]:
        """Returns the importance of each head in this order, and the points of the curves."""
        norms = by_layer(self.importance)
        return {
            "metric": self.metric,
            "examples": {"ranked": self.examples[0], "measured": self.examples[1]},
            "heads": [
                {
                    "layer": layer + 1,
                    "head": head + 1,
                    "importance": float(self.importance[layer, head]),
                    "of_layer": round(float(norms[layer, head]), 6),
                }
                for layer, head in self.order()
            ],
            "curve": [{"removed": removed, self.metric: score} for removed, score in self.points],
            "random": [[{"removed": removed, self.metric: score} for removed, score in one] for one in self.random],
        }


def by_layer(importance_LN: Floats) -> Floats:
    """Returns the importance divided by the l2 norm of its layer. (L, N) -> (L, N)"""
    shares: Floats = importance_LN / np.maximum(np.linalg.norm(importance_LN, axis=1, keepdims=True), 1e-30)
    return shares


def least_important(importance_LN: Floats) -> list[_Head]:
    """Returns the heads in the order of their importance within their layers, the least important first."""
    order = np.argsort(by_layer(importance_LN).ravel(), kind="stable")
    return [divmod(int(at), importance_LN.shape[1]) for at in order]


def removal(model: TorchModel, examples: Sequence[Example], *, points: int, max_length: int | None = None) -> Removal:
    """Ranks the heads of a fine-tuned model, and measures it as they are removed.

    points: how many numbers of removed heads are measured. Raises UsageError for a model without a task head, or whose
    heads cannot be removed; DataError for fewer than two labeled examples.
    """
    predictor = predictor_of(model, max_length)
    if len(examples) < 2:
        raise DataError("Half of the labeled examples rank the heads, and the others measure the model: pass more.")
    ranking, measured = examples[::2], examples[1::2]
    importance = ModelInternals(model).importance(ranking, max_length=predictor.max_length)
    metric = predictor.metric
    console.say(f"{importance.examples:,} examples rank the heads, and {len(measured):,} measure {metric}.")
    importance_LN = importance.of_heads().numpy()
    steps = sorted({round(share * importance_LN.size) for share in np.linspace(0, 1, points + 1).tolist()})
    score = _measure(predictor, measured)
    whole = score(model, ())

    def curve(order: Sequence[_Head]) -> list[tuple[int, float]]:
        return [(0, whole), *((step, score(model, order[:step])) for step in steps[1:])]

    rng = np.random.default_rng(0)
    order = least_important(importance_LN)
    orders = [[order[at] for at in rng.permutation(len(order))] for _ in range(RANDOM)]
    counts = importance.examples, len(measured)
    return Removal(importance_LN, metric, curve(order), [curve(one) for one in orders], counts)


def predictor_of(model: TorchModel, max_length: int | None = None) -> Predictor:
    """Returns a predictor that runs the model itself, where heads can be removed."""
    return ModelInternals(model).predictor(max_length)


def _measure(predictor: Predictor, examples: Sequence[Example]) -> Callable[[TorchModel, Sequence[_Head]], float]:
    task = predictor.task
    encoded = task.encode(examples, predictor.tokenizer, max_length=predictor.max_length, too_long="truncate")

    def score(model: TorchModel, removed: Sequence[_Head]) -> float:
        with ModelInternals(model).without_heads(removed):
            answers: list[Prediction] = task.decode(predictor.logits(encoded), encoded, examples)
        scores = task.scores()
        task.count(scores, examples, answers)
        return float(scores.compute()[task.metrics[0]])

    return score
