"""The settings of text generation, and the name of the array that an engine returns for them. Imports no torch."""

import json
from dataclasses import asdict, dataclass
from math import inf, isfinite

from bertie.errors import UsageError, WrongValue

WRITTEN_PREFIX = "written:"
DECODER = "decoder"  # the head that an encoder-decoder has
LOWEST_TEMPERATURE = 0.001  # below it, the logits divided by it can overflow
_KINDS = {
    "max_new_tokens": int,
    "num_beams": int,
    "temperature": int | float,
    "top_k": int | None,
    "top_p": int | float | None,
    "length_penalty": int | float,
}


@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """The options of generation. Raises UsageError for values out of range."""

    max_new_tokens: int = 20
    num_beams: int = 1
    do_sample: bool = False  # draw from the distribution; with one beam
    temperature: float = 1.0
    top_k: int | None = None  # draw among the k likeliest
    top_p: float | None = None  # draw among the likeliest that together have this probability
    length_penalty: float = 1.0  # a beam's score is the sum of its log-probabilities over its length to this power
    early_stopping: bool = False  # stop at num_beams finished texts, whether or not an open one might beat them

    @property
    def output(self) -> str:
        """The name of the array of generated tokens. See `written_output`."""
        return written_output(self)

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            if not isinstance(value := getattr(self, name), kind):
                expected = "a whole number" if kind in (int, int | None) else "a number"
                raise WrongValue(f"{name} is {value!r}; it must be {expected}.")
        if self.max_new_tokens < 1 or self.num_beams < 1:
            raise UsageError("max_new_tokens and num_beams must be 1 or more.")
        if self.do_sample and self.num_beams > 1:
            raise UsageError("do_sample needs num_beams=1: it draws one text per prompt.")
        if not LOWEST_TEMPERATURE <= self.temperature < inf:
            raise WrongValue(
                f"temperature is {self.temperature}; it must be at least {LOWEST_TEMPERATURE} and finite. For greedy "
                "decoding, pass do_sample=False."
            )
        if not isfinite(self.length_penalty):
            raise WrongValue(f"length_penalty is {self.length_penalty}; it must be finite.")
        if self.top_k is not None and self.top_k < 1:
            raise WrongValue(f"top_k is {self.top_k}; it must be 1 or more.")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise WrongValue(f"top_p is {self.top_p}; it must be above 0 and at most 1.")


def written_output(writing: GenerationConfig) -> str:
    """Returns the name of the array of generated tokens: (B, max_new_tokens), -1 after the end of a text."""
    return WRITTEN_PREFIX + json.dumps(asdict(writing), sort_keys=True)


def writing_of(output: str) -> GenerationConfig | None:
    """Returns the settings in an output that `written_output` names; None for other outputs."""
    return (
        GenerationConfig(**json.loads(output.removeprefix(WRITTEN_PREFIX)))
        if output.startswith(WRITTEN_PREFIX)
        else None
    )
