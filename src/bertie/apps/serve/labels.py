"""Labels with scores, for every API that has a route for them."""

from collections.abc import Sequence
from dataclasses import replace

from bertie.apps.serve.call import Answer, Call
from bertie.apps.serve.errors import Refusal
from bertie.apps.serve.inputs import Inputs
from bertie.platform import Example, Prediction

RankedLabels = list[dict[str, object]]


async def classified(call: Call, inputs: Inputs, *, raw: bool = False) -> list[RankedLabels]:
    """Returns the labels of each text or pair of texts, best first."""
    examples = inputs.examples()
    check_text_columns(call, inputs, examples)
    answers = await call.predict(examples, inputs.place)
    return [ranked((raw_scores(call, answer) if raw else answer).prediction) for answer in answers]


def ranked(prediction: Prediction) -> RankedLabels:
    """Returns labels with probabilities, the most probable first; a number is the score of its name.

    Where a threshold decides, the predicted label is the first one.
    """
    scores = prediction.scores or {"score": prediction.number}
    order = sorted(scores.items(), key=lambda one: (one[0] != prediction.label, -one[1]))
    return [{"score": score, "label": label} for label, score in order]


def raw_scores(call: Call, answer: Answer) -> Answer:
    """Returns the same answer with the raw outputs of the head as scores."""
    names = call.model.pipeline.task.labels
    if answer.raw is None or len(answer.raw) != len(names):
        message = f"Model {call.model.name!r} has no raw score for each label. Omit raw_scores."
        raise Refusal("Validation", message, code="wrong-model")
    scores = dict(zip(names, answer.raw.tolist(), strict=True))
    return replace(answer, prediction=Prediction(answer.prediction.label, None, scores))


def check_text_columns(call: Call, inputs: Inputs, examples: Sequence[Example]) -> None:
    """Raises Refusal for pairs if the model was trained on single texts, or the reverse."""
    trained = call.model.pipeline.fixed_texts
    other = {1: 2, 2: 1}.get(trained or 0)
    wrong = [number for number, example in enumerate(examples) if len(example.texts) == other]
    if wrong:
        place, wants = inputs.place(wrong[0]), "pairs of texts; `{}` is a single text."
        if trained == 1:
            wants = "single texts; `{}` is a pair. Send each text as a list of one: [[TEXT], [TEXT]]."
        message = f"Model {call.model.name!r} was trained on {wants.format(place)}"
        raise Refusal("Validation", message, param=place)
