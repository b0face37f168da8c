"""Generated text in pieces, as it is generated: for `bertie write` and its Python function."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from bertie.errors import DataError, UsageError, nearest
from bertie.infer.pipeline import TextCount
from bertie.infer.predict import Predictor
from bertie.io.tables import Example
from bertie.models.generation import GenerationConfig
from bertie.tasks.capabilities import Generates
from bertie.text.tokenizer import Tokenizer

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
        raise UsageError(f"There is no option {unknown!r} of generation. {nearest(unknown, known)}")
    found = Predictor(model, max_length=max_length)
    task = found.pipeline.task_or_none
    if not isinstance(task, Generates):
        raise UsageError(
            "This model generates no text. `bertie write` needs a model with a next-token head, such as GPT-2 or T5."
        )
    return found, replace(task.writing, **options)


def pieces(
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
    words, was_training = Words(predictor.tokenizer), model.training
    model.eval()
    try:
        for token in stream(model, ids, writing, generator=generator):
            if ready := words.add(token):
                yield ready
    finally:
        model.train(was_training)
    yield words.rest()


@dataclass
class Words:
    """The text of tokens that come one after another. shown: what has been returned of it."""

    tokenizer: Tokenizer
    tokens: list[int] = field(default_factory=list)
    shown: str = ""

    @property
    def text(self) -> str:
        """The text of all tokens so far."""
        return self.tokenizer.decode(self.tokens)

    def add(self, token: int) -> str:
        """Returns what the token completes: "" within a word, which may continue or end with punctuation."""
        self.tokens.append(token)
        found = self.text
        return self._new(found[: found.rfind(" ") + 1].rstrip())

    def rest(self) -> str:
        """Returns the end of the text, after the last token."""
        return self._new(self.text)

    def _new(self, ready: str) -> str:
        if not ready.startswith(self.shown):
            return ""
        found, self.shown = ready[len(self.shown) :], ready
        return found
