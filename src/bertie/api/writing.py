"""`Writer`: generates texts with settings that are checked once."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bertie.errors import NoRows, UsageError
from bertie.infer.pipeline import TextCount
from bertie.infer.predict import Predictor
from bertie.infer.texts import WrittenWords
from bertie.io.tables import Example
from bertie.models.generation import GenerationConfig

if TYPE_CHECKING:
    from bertie.models.model import TorchModel


@dataclass(frozen=True)
class Writer:
    """Generates texts. `notes` tells how many of the texts so far were too long.

    Attributes:
        module: The model in torch.
        predictor: Reads texts.
        writing: The settings.
        seed: Seed of random draws.
        count: Counts the texts.
    """

    module: "TorchModel"
    predictor: Predictor
    writing: GenerationConfig
    seed: int
    count: TextCount

    @classmethod
    def of(
        cls,
        module: "TorchModel",
        *,
        max_new_tokens: int | None = None,
        beams: int | None = None,
        length_penalty: float | None = None,
        sample: bool = False,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        max_length: int | None = None,
    ) -> "Writer":
        """Returns the writer of a model. Raises UsageError for options that have no effect."""
        if sample and (beams or 1) > 1:
            raise UsageError("`sample` and `beams` exclude each other: one text is drawn per line. Omit one of them.")
        draws = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        if not sample and (names := [name for name, value in draws.items() if value is not None]):
            raise UsageError(f"`{names[0]}` has no effect without `sample`. Pass `sample=True` too.")
        options = {"max_new_tokens": max_new_tokens, "num_beams": beams, "length_penalty": length_penalty, **draws}
        options = {name: value for name, value in options.items() if value is not None}
        if sample:
            options = {"num_beams": 1, **options, "do_sample": True}
        predictor = Predictor(module, max_length=max_length)
        writing = replace(predictor.pipeline.writing, **options)  # type: ignore[arg-type]  # values by the fields' names
        if length_penalty is not None and writing.num_beams == 1:
            raise UsageError("`length_penalty` has no effect without beams. Pass `beams=4` too.")
        return cls(module, predictor, writing, seed, TextCount(predictor.too_long, predictor.max_length))

    @property
    def notes(self) -> list[str]:
        """What a user should know of the texts, in sentences without a period."""
        return self.count.notes

    def __call__(self, text: str) -> Iterator[str]:
        """Yields the generated text, word by word. Raises DataError for an empty text."""
        import torch

        if not text.strip():
            raise NoRows("The text is empty.")

        from bertie.infer.generate import stream

        model, predictor = self.module, self.predictor
        encoded = predictor.encode([Example((text,))])
        self.count.add(encoded, predictor.tokenizer)
        if predictor.too_long == "error" and len(encoded.too_long):
            raise UsageError(f"The text has more than {predictor.max_length:,} tokens. Pass a shorter text.")
        ids = torch.from_numpy(encoded.input_ids).long().to(model.device)
        generator = torch.Generator(model.device).manual_seed(self.seed)
        words, was_training = WrittenWords(predictor.tokenizer), model.training
        model.eval()
        try:
            for token in stream(model, ids, self.writing, generator=generator):
                if ready := words.add(token):
                    yield ready
        finally:
            model.train(was_training)
        yield words.rest()
