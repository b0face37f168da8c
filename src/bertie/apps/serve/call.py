"""`Call`, a request to a model.

examples -> encode -> Sequences -> its ticket: admission, batches -> arrays -> decode -> answers
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bertie.apps.serve.errors import Refusal
from bertie.apps.serve.served import LongTexts, Served
from bertie.apps.serve.ticket import RequestUsage, Ticket
from bertie.platform import Example, Prediction, Sequences, TextPipeline

_Place = Callable[[int], str]
Segments = Sequence[Sequence[Sequence[int]]]
"""For each example its one or two texts as token ids."""
OnAnswers = Callable[["Call", Sequence[Example], Sequences, Sequence[Prediction]], None]
POLICIES: dict[bool | None, LongTexts] = {True: "truncate", False: "error"}
"""What a body's `truncate` says of long texts."""
INLINE_CHARACTERS = 2_000  # texts that are cut into tokens sooner than a thread would begin to
INLINE_TOKENS = 2_000  # answers that are decoded sooner
TOKEN_CHARACTERS = 4  # of English, to estimate the tokens of texts that wait for the tokenizer


@dataclass(frozen=True)
class TextReading:
    """How the texts of a request are read. too_long: None: as in training. side: which end of a long text is cut."""

    too_long: LongTexts | None = None
    side: Literal["left", "right"] = "right"

    @classmethod
    def of(cls, body: object, usual: LongTexts | None) -> "TextReading":
        """Returns the reading that a body names. usual: the server's handling of long texts."""
        policy = POLICIES.get(getattr(body, "truncate", None), usual)
        return cls(policy, getattr(body, "truncation_direction", "right"))


@dataclass(frozen=True)
class Answer:
    """One answer with its example. raw: the outputs of the head, averaged over windows."""

    prediction: Prediction
    tokens: int
    truncated: bool
    windows: int
    raw: NDArray[np.float32] | None = None

    def as_json(self) -> dict[str, Any]:
        """Returns the fields of the prediction, and how much of the text was read."""
        more = {"windows": self.windows} if self.windows > 1 else {}
        return {**self.prediction.as_json(), "tokens": self.tokens, "truncated": self.truncated, **more}


@dataclass(eq=False)
class Call:
    """A request to a model. watch: called with the examples that were answered, their ids and their predictions."""

    ticket: Ticket
    reading: TextReading = TextReading()
    watch: OnAnswers | None = None

    @property
    def model(self) -> Served:
        """The model that answers."""
        return self.ticket.model

    @property
    def usage(self) -> RequestUsage:
        """What the request took so far."""
        return self.ticket.usage

    def pipeline(self, pipeline: TextPipeline | None = None) -> TextPipeline:
        """Returns the model's pipeline, or another one of it, with the request's handling of long texts."""
        pipeline = pipeline or self.model.pipeline
        return replace(pipeline, too_long=self.model.policy(self.reading.too_long, pipeline))

    async def predict(
        self, examples: Sequence[Example], place: _Place, own: TextPipeline | None = None
    ) -> list[Answer]:
        """Returns the answers to examples. own: the pipeline of one head. Raises Refusal."""
        pipeline = self.pipeline(own)
        encoded = await self.encode(pipeline, examples, place)
        logits = await self.logits(pipeline, encoded)
        decode = partial(pipeline.task.decode, logits, encoded, examples)
        predictions = await self.ticket.in_thread(decode, inline=len(encoded.input_ids) <= INLINE_TOKENS)
        if self.watch is not None and own is None:
            self.watch(self, examples, encoded, predictions)
        return answers_of(pipeline, encoded, logits, predictions)

    async def encode(
        self,
        pipeline: TextPipeline,
        examples: Sequence[Example],
        place: _Place,
        segments: Callable[[], Segments] | None = None,
    ) -> Sequences:
        """Admits the examples and returns their token ids. segments: makes the ids of their texts. Raises Refusal."""
        lengths, usage = [sum(map(len, example.texts)) for example in examples], self.usage
        self.ticket.take(len(examples))
        usage.characters += sum(lengths)
        work = partial(encode_ids, pipeline, examples, self.reading.side, segments)
        with self.ticket.first_batch(sum(lengths) // TOKEN_CHARACTERS, max(lengths, default=0) // TOKEN_CHARACTERS):
            started = time.perf_counter()
            encoded = await self.ticket.in_thread(work, inline=usage.characters <= INLINE_CHARACTERS)
            usage.tokenization_s += time.perf_counter() - started
        check_fits(pipeline, encoded, place)
        usage.truncated += sum(are_cut(pipeline, encoded))
        return encoded

    async def logits(self, pipeline: TextPipeline, encoded: Sequences) -> NDArray[np.float32]:
        """Returns the arrays that the pipeline decodes, for all sequences in order. Raises Refusal."""
        return pipeline.logits(await self.ticket.arrays(encoded, pipeline.task.outputs), encoded)


def encode_ids(
    pipeline: TextPipeline, examples: Sequence[Example], side: str, segments: Callable[[], Segments] | None
) -> Sequences:
    """Returns the token ids of examples. Raises Refusal where only the end of a text can be cut."""
    if side == "left" and not pipeline.plain:
        raise Refusal("Validation", "truncation_direction left is for texts that are classified or embedded.")
    if segments is not None:
        return pipeline.encode_ids(segments(), keep="end" if side == "left" else "start")
    return pipeline.encode_ends(examples) if side == "left" else pipeline.encode(examples)


def check_fits(pipeline: TextPipeline, encoded: Sequences, place: _Place) -> None:
    """Raises Refusal for a text that is longer than the model reads, where it must not be."""
    if pipeline.too_long != "error":
        return
    if len(encoded.cut):
        where = place(int(encoded.cut[0]))
        message = f"`{where}` has a longer question than the model reads. Shorten it, or pass truncate: true."
        raise Refusal("Validation", message, param=where, code="too-long")
    if len(encoded.too_long):
        where = place(int(encoded.too_long[0]))
        message = f"`{where}` has more than the {pipeline.max_length:,} tokens that the model reads. Send a shorter "
        message += "text, or truncate it with truncate: true."
        raise Refusal("Validation", message, param=where, code="too-long")


def are_cut(pipeline: TextPipeline, encoded: Sequences) -> list[bool]:
    """Returns whether each example is truncated."""
    long = np.zeros(encoded.examples, bool) if pipeline.too_long == "window" else ~encoded.fits
    long[encoded.cut] = True
    cut: list[bool] = long.tolist()
    return cut


def answers_of(
    pipeline: TextPipeline, encoded: Sequences, logits: NDArray[np.float32], predictions: Sequence[Prediction]
) -> list[Answer]:
    """Returns predictions with how much of each text was read."""
    per_sequence = logits.ndim == 2 and len(logits) == len(encoded)
    raw = encoded.mean_of_windows(logits) if per_sequence else [None] * len(predictions)
    whole = encoded.fits | (pipeline.too_long != "window")
    windows = np.where(whole, 1, np.diff(encoded.windows)).tolist()
    parts = zip(predictions, encoded.tokens.tolist(), are_cut(pipeline, encoded), windows, raw, strict=True)
    return [Answer(*part) for part in parts]
