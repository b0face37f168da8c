"""Generated text in pieces, as it is generated: for `bertie write` and its Python function."""

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from bertie.errors import DataError, UnknownName, UsageError, nearest
from bertie.infer.pipeline import TextCount
from bertie.infer.predict import Predictor
from bertie.infer.written import WrittenWords
from bertie.io.tables import Example
from bertie.models.generation import GenerationConfig

if TYPE_CHECKING:
    from bertie.models.model import TorchModel


def writer(
    model: "TorchModel", *, max_length: int | None = None, **options: object
) -> tuple[Predictor, GenerationConfig]:
    """Returns the predictor of a model that generates text, and its settings. options: of `GenerationConfig`.

    Raises UsageError for another model, or an unknown option.
    """
    known = [one.name for one in fields(GenerationConfig)]
    if unknown := next((name for name in options if name not in known), None):
        raise UnknownName(f"There is no option {unknown!r} of generation. {nearest(unknown, known)}")
    predictor = Predictor(model, max_length=max_length)
    return predictor, replace(predictor.pipeline.writing, **options)  # type: ignore[arg-type]  # the names are known


def stream_words(
    model: "TorchModel",
    predictor: Predictor,
    text: str,
    writing: GenerationConfig,
    *,
    seed: int = 0,
    count: TextCount | None = None,
) -> Iterator[str]:
    """Yields the generated text, word by word. text: of one example; the task's template is applied. seed: of draws.
    count: counts the text.

    Raises DataError for an empty text.
    """
    import torch

    if not text.strip():
        raise DataError("The text is empty.")

    from bertie.infer.generate import stream

    encoded = predictor.encode([Example((text,))])
    if count is not None:
        count.add(encoded, predictor.tokenizer)
    if predictor.too_long == "error" and len(encoded.too_long):
        raise UsageError(f"The text has more than {predictor.max_length:,} tokens. Pass a shorter text.")
    ids = torch.from_numpy(encoded.input_ids).long().to(model.device)
    generator = torch.Generator(model.device).manual_seed(seed)
    words, was_training = WrittenWords(predictor.tokenizer), model.training
    model.eval()
    try:
        for token in stream(model, ids, writing, generator=generator):
            if ready := words.add(token):
                yield ready
    finally:
        model.train(was_training)
    yield words.rest()
