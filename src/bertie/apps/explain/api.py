"""An explained prediction as JSON values, for `bertie explain --json` and for `Model.explain`."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bertie.apps.explain.attribution import Attribution, Faithfulness, by_word, faithfulness
from bertie.apps.explain.attribution import method as method_named
from bertie.apps.explain.targets import Explained, question_of
from bertie.platform import TorchModel, console


def explain_prediction(
    model: TorchModel, texts: Sequence[str], *, method: str, label: str, word: int | None, max_length: int | None
) -> dict[str, object]:
    """Returns the words that a prediction rests on, and leaves the model as it is. Raises as `question_of`."""
    compute, trained = method_named(method), [one for one in model.parameters() if one.requires_grad]
    was_training = model.training
    model.eval().requires_grad_(False)
    try:
        explained = question_of(model, texts, label=label, word=word, max_length=max_length)
        if explained.cut:
            console.warn(f"The text is too long: {explained.cut:,} tokens are not read.")
        attribution = compute(explained.question)
        return describe_attribution(explained, attribution, faithfulness(explained.question, attribution.values))
    finally:
        model.train(was_training)
        for one in trained:
            one.requires_grad_(True)


def describe_attribution(explained: Explained, attribution: Attribution, faithful: Faithfulness) -> dict[str, Any]:
    """Returns an attribution and its faithfulness as JSON values."""
    encoding, values = explained.question.encoding, attribution.values
    return {
        "explained": explained.about,
        **{key: value for key, value in asdict(attribution).items() if key != "values"},
        "converged": attribution.converged,
        "words": [{"text": text, "value": value} for text, value in by_word(encoding, values, explained.texts)],
        "tokens": [
            {"text": text, "value": value} for text, value in zip(encoding.tokens, values.tolist(), strict=True)
        ],
        "faithfulness": asdict(faithful),
    }
