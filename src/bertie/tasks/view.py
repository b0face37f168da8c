"""`View`: how a task's predictions are rendered in reports, and which are the worst (infer/findings.py)."""

import json
from typing import ClassVar

from bertie.io.tables import Example
from bertie.tasks.answerer import Prediction
from bertie.tasks.render import RenderedExample, nats, render_plain_text, top

_NO_ANSWER = "(no answer)"


class View:
    """The part of a task that renders predictions. The defaults suit single-label classification."""

    command: ClassVar[str] = "predict"
    """The command that uses a trained model."""

    @classmethod
    def sample(cls, texts: int) -> str:
        """Returns one line of input that shows how a trained model is used, for one text or a pair."""
        return "A text." if texts == 1 else json.dumps({"text1": "A first text.", "text2": "A second text."})

    def sample_columns(self) -> dict[str, object]:
        """Returns what a row needs beside the texts of `sample`, by column."""
        return {}

    def error_score(self, example: Example, prediction: Prediction) -> float:
        """Returns the error of a prediction: the largest are shown first; 0 for a perfect prediction.

        By default, it is the loss in nats. A label without a probability shares the remaining probability.
        """
        right, sure = prediction.label == example.label, prediction.probability
        left = 0.0 if sure is None else 1 - sure
        missing = (1 - left) if right else left
        return nats(prediction.scores.get(example.label, missing) if prediction.scores else missing)

    def render(self, example: Example, prediction: Prediction) -> RenderedExample:
        """Renders a prediction."""
        texts = tuple(map(render_plain_text, example.texts))
        scores = top(prediction.scores, example.label)
        answer = _NO_ANSWER if prediction.reason else str(prediction.label)
        return RenderedExample(texts, str(example.label), answer, prediction.probability, scores)

    def slices(self, example: Example, prediction: Prediction, tokens: int, long: bool) -> dict[str, str]:
        """Returns the subgroups of an example by kind. The report has the main metric of each subgroup.

        tokens: number of tokens; long: whether the text is too long.
        """
        return {"tokens": length_slice(tokens), "too long": "yes" if long else "no", "texts": str(len(example.texts))}

    def scatter_point(self, example: Example, prediction: Prediction) -> tuple[float, float] | None:
        """Returns the true and the predicted number, for tasks with numbers."""
        return None


def length_slice(length: int, first: int = 16) -> str:
    """17 -> "17 to 32": lengths double from one range to the next, and the first range ends with `first`."""
    high = max(first, 1 << max(0, length - 1).bit_length())
    low = high // 2 + 1 if high > first else 1
    return f"{low} to {high}" if low < high else str(high)
