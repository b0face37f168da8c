"""`View`: how a task's answers are shown to people, and where they go wrong (infer/findings.py)."""

import json
from typing import ClassVar

from bertie.data.tables import Example
from bertie.tasks.answerer import Prediction
from bertie.tasks.render import RenderedExample, nats, plain, top


class View:
    """What is shown. The defaults suit one label for a text, or for a pair of texts."""

    command: ClassVar[str] = "predict"
    """What a trained model is used with."""

    @classmethod
    def sample(cls, texts: int) -> str:
        """One line of input that shows how a trained model is used, where its examples have so many texts."""
        return "A text." if texts == 1 else json.dumps({"text1": "A first text.", "text2": "A second text."})

    def error_score(self, example: Example, prediction: Prediction) -> float:
        """How wrong an answer is: the worst are shown first; 0 where it could not be better.

        By default its loss in nats. A label that is not the model's shares what the answer left over.
        """
        right, sure = prediction.label == example.label, prediction.probability
        left = 0.0 if sure is None else 1 - sure
        told = (1 - left) if right else left
        return nats(prediction.scores.get(example.label, told) if prediction.scores else told)

    def render(self, example: Example, prediction: Prediction) -> RenderedExample:
        """An answer for people."""
        texts = tuple(map(plain, example.texts))
        scores = top(prediction.scores, example.label)
        return RenderedExample(texts, str(example.label), str(prediction.label), prediction.probability, scores)

    def slices(self, example: Example, prediction: Prediction, tokens: int, long: bool) -> dict[str, str]:
        """What an example is one of, by kind: each slice has the main metric of its own, so that a weak one shows.

        tokens: how many were read; long: whether it did not fit.
        """
        return {"tokens": length_slice(tokens), "too long": "yes" if long else "no", "texts": str(len(example.texts))}

    def scatter_point(self, example: Example, prediction: Prediction) -> tuple[float, float] | None:
        """The true number and the predicted one, where answers are numbers."""
        return None


def length_slice(length: int, first: int = 16) -> str:
    """17 -> "17 to 32": lengths double from slice to slice, the first ends with `first`."""
    high = max(first, 1 << max(0, length - 1).bit_length())
    low = high // 2 + 1 if high > first else 1
    return f"{low} to {high}" if low < high else str(high)
