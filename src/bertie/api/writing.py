"""`Writer`: generates texts with settings that are checked once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bertie.errors import NoRows, UsageError
from bertie.infer.pipeline import TextCount
from bertie.infer.predict import Predictor
from bertie.infer.texts import WrittenWords
from bertie.io.tables import Example
from bertie.models.generation import GenerationConfig
from bertie.text.sequences import Sequences

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
        values = {"max_new_tokens": max_new_tokens, "num_beams": beams, "length_penalty": length_penalty, **draws}
        options: dict[str, float | None] = {"num_beams": 1, "do_sample": True} if sample else {}
        options |= {name: value for name, value in values.items() if value is not None}
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
        from bertie.infer.torch_engine import TorchEngine

        words, ids = WrittenWords(self.predictor.tokenizer), self._encode([text])
        tokens = TorchEngine(self.module).stream(ids, self.writing.output, seed=self.seed)
        yield from filter(None, map(words.add, tokens))
        yield words.rest()

    def write(self, texts: Sequence[str]) -> list[str]:
        """Returns the generated text of each text, in batches unless tokens are drawn. Raises DataError as a call."""
        if self.writing.do_sample or not texts:  # each text has the same draws, whatever the others are
            return ["".join(self(text)) for text in texts]
        rows = self.predictor.run(self._encode(texts), [self.writing.output])[self.writing.output]
        return [self.predictor.tokenizer.decode(row[row >= 0].astype(int).tolist()) for row in rows]

    def _encode(self, texts: Sequence[str]) -> Sequences:
        if not all(text.strip() for text in texts):
            raise NoRows("The text is empty.")
        encoded = self.predictor.encode([Example((text,)) for text in texts])
        self.count.add(encoded, self.predictor.tokenizer)
        if self.predictor.too_long == "error" and len(encoded.too_long):
            raise UsageError(f"The text has more than {self.predictor.max_length:,} tokens. Pass a shorter text.")
        return encoded
