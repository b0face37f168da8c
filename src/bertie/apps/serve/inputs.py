"""The inputs of a request: how many there are, where each is in the body, and the examples that they make."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bertie.apps.serve.errors import Refusal
from bertie.platform import Example, TextPipeline

MOST_INPUTS = 32  # of one request, as Text Embeddings Inference has it


@dataclass(frozen=True)
class Inputs:
    """The inputs of a request. place: number of an input -> where it is in the body."""

    values: list[Any]
    single: bool
    place: Callable[[int], str]

    @classmethod
    def of(cls, value: Any, name: str = "inputs", most: int = MOST_INPUTS) -> "Inputs":
        """Returns a single input, or a list of them. Raises Refusal for none, and for more than `most`."""
        single = not isinstance(value, list)
        check_count([value] if single else value, most, name)
        return cls([value] if single else value, single, (name if single else name + "[{}]").format)

    def examples(self) -> list[Example]:
        """Returns examples of texts, or of lists of one or two texts. Raises Refusal for others, and for empty ones."""
        examples = list[Example]()
        for number, value in enumerate(self.values):
            texts, place = (value,) if isinstance(value, str) else tuple(value), self.place(number)
            if len(texts) not in (1, 2):
                message = f"`{place}` has {len(texts)} texts; one or two were expected."
                raise Refusal("Validation", message, param=place)
            check_filled(place, *texts)
            examples.append(Example(texts, None, number + 1))
        return examples


def single_example(pipeline: TextPipeline, texts: str | Sequence[str]) -> Example:
    """Returns the example of a text or a list of one or two, without the markup that the model does not read.

    Raises Refusal as `Inputs.examples`.
    """
    if not isinstance(texts, str):
        check_count(texts)
    (example,) = pipeline.without_markup(Inputs([texts], True, "inputs".format).examples())
    return example


def check_count(inputs: Sequence[object], most: int = MOST_INPUTS, name: str = "inputs") -> None:
    """Raises Refusal for no input, and for more than `most`."""
    if not inputs:
        raise Refusal("Empty", f"`{name}` is empty.", param=name)
    if len(inputs) > most:
        raise Refusal("Validation", f"`{name}` has {len(inputs):,} items; at most {most:,} are allowed.", param=name)


def check_filled(place: str, *texts: str) -> None:
    """Raises Refusal for an empty text."""
    if not all(text.strip() for text in texts):
        raise Refusal("Validation", f"{place}: empty text.", param=place)


def check_sizes(inputs: Inputs, examples: Sequence[Example]) -> None:
    """Raises Refusal for an empty text, or a text that is too long."""
    for number, example in enumerate(examples):
        place = inputs.place(number)
        check_filled(place, *example.texts)
        if max(map(len, example.texts)) > Example.MAX_TEXT:
            raise Refusal("TooLarge", f"`{place}` has more than {Example.MAX_TEXT:,} characters.", param=place)
