"""A model at labels it was never trained on.

By entailment where it has such a head, else by the nearest label text; or by a pattern with a mask.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bertie.errors import UsageError
from bertie.infer.predict import Predictor
from bertie.infer.texts import each_text
from bertie.tasks import Task
from bertie.tasks.candidates import HYPOTHESIS, EntailedTask, NearestTask, hypotheses
from bertie.tasks.capabilities import Embeds
from bertie.tasks.pattern import PatternTask
from bertie.training_facts import TooLong

if TYPE_CHECKING:
    from bertie.infer.engine import Engine
    from bertie.models.model import TorchModel
    from bertie.text.tokenizer import Tokenizer


def choose_from(
    model: "TorchModel | Engine",
    candidates: Sequence[str],
    tokenizer: "Tokenizer | None" = None,
    *,
    hypothesis: str | None = None,
    multi: bool = False,
    max_length: int | None = None,
) -> Predictor:
    """Returns a predictor that chooses one of the candidates for a text, or (multi) any number of them.

    hypothesis: a sentence about the text with {} for the label. Default for vectors: only the label. Raises
    UsageError: no candidates, or a model that has neither an entailment head nor vectors.
    """
    labels = tuple(each_text(candidates, "candidates"))
    predictor = Predictor(model, tokenizer, max_length=max_length, too_long="truncate")
    entailed = EntailedTask.of_model(
        predictor.engine.facts, {"labels": labels, "hypothesis": hypothesis or HYPOTHESIS, "multi": multi}
    )
    task: Task | None = predictor.pipeline.task_or_none
    if entailed is not None:
        task = entailed
    elif isinstance(task, Embeds):
        if multi:
            raise UsageError("A model of sentence vectors chooses one label, the nearest. Omit --multi (multi=True).")
        claims = hypotheses(labels, hypothesis or "{}")
        vectors_CH = np.array([answer.label for answer in predictor.predict(claims)], np.float32)
        task = NearestTask.of(task, labels, vectors_CH)
    else:
        known = ", ".join(predictor.engine.facts.labels) or "none"
        raise UsageError(
            "Candidates need an entailment model, whose labels name it (entailment, contradiction ...), or a model of "
            f"sentence vectors. This model has neither; its labels: {known}."
        )
    return predictor.replace(task_or_none=task, texts=1)


def fill_in(
    model: "TorchModel | Engine",
    pattern: str,
    words: Mapping[str, str],
    tokenizer: "Tokenizer | None" = None,
    *,
    max_length: int | None = None,
    too_long: TooLong | None = None,
) -> Predictor:
    """Returns a predictor that chooses the label whose word fits best into a pattern with [MASK].

    Raises UsageError: a model without a masked-LM head, a pattern without a mask, or a word of several tokens.
    """
    predictor = Predictor(model, tokenizer, max_length=max_length, too_long=too_long)
    PatternTask.check_head(PatternTask.head in predictor.engine.facts.heads)
    task = PatternTask.make((), {"pattern": pattern, "words": words}).with_tokenizer(predictor.tokenizer)
    return predictor.replace(task_or_none=task, texts=pattern.count("{}") or None)
