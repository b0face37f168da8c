"""POST /generate and /generate_stream: texts that a model generates, whole or as server-sent events.

    worker -> tokens, one message each -> words -> events

An event is one token, in the form of Text Generation Inference. Its text is what the token completes: a word is known
when the next one begins. The last event has the whole text.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import orjson
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from bertie.apps.serve import schemas
from bertie.apps.serve.call import Call
from bertie.apps.serve.errors import Refusal
from bertie.apps.serve.inputs import Inputs
from bertie.platform import TextPipeline


async def generate(call: Call, body: schemas.GenerateBody) -> object:
    """Returns the generated text of each text: [{"generated_text"}]; with `stream`, events."""
    inputs, pipeline = Inputs.of(body.inputs), call.pipeline()
    if body.stream and len(inputs.values) > 1:
        count = len(inputs.values)
        raise Refusal("Validation", f"A stream has one text; the request has {count}.", param="inputs")
    writing = replace(
        pipeline.writing,
        **generation_options(body.parameters, pipeline.writing.max_new_tokens, pipeline.writing.num_beams),
    )
    output, examples = writing.output, inputs.examples()
    encoded = await call.encode(pipeline, examples, inputs.place)
    if not body.stream:
        tokens = (await call.ticket.arrays(encoded, (output,)))[output]
        return [{"generated_text": one.label} for one in pipeline.task.decode(tokens, encoded, examples)]
    tokens_of = asyncio.Queue[int | None]()
    work = asyncio.create_task(call.ticket.arrays(encoded, (output,), tokens_of.put_nowait))
    work.add_done_callback(lambda _: tokens_of.put_nowait(None))
    try:
        first = await tokens_of.get()
        if first is None:
            await work  # raises what is wrong, while a status can still tell it
    except BaseException:
        work.cancel()
        raise
    return Generated(pipeline, writing.max_new_tokens, work, tokens_of, first)


async def generate_stream(call: Call, body: schemas.GenerateBody) -> object:
    """Returns the generated text of one text as server-sent events."""
    return await generate(call, body.model_copy(update={"stream": True}))


def generation_options(body: schemas.Writing, most: int, beams: int) -> dict[str, Any]:
    """Returns the settings of a request. most, beams: tokens and beams of the training, where it names none."""
    options = body.model_dump(exclude={"details"}, exclude_none=True)
    sample = body.do_sample
    if sample is None:
        sample = any(name in options for name in ("temperature", "top_k", "top_p"))
    usual = {"max_new_tokens": min(most, schemas.MOST_WRITTEN), "num_beams": 1 if sample else beams}
    return {**usual, **options, "do_sample": sample}


@dataclass(frozen=True, eq=False)
class Generated:
    """A text that is being generated, of `most` tokens. work: ends after the last one, and the queue then has None."""

    pipeline: TextPipeline
    most: int
    work: "asyncio.Task[Any]"
    tokens: "asyncio.Queue[int | None]"
    first: int | None

    async def events(self) -> AsyncIterator[dict[str, object]]:
        """Yields one record per token; the last one has the whole text, or an error."""
        words, token, text, count = self.pipeline.written_words(), self.first, "", 0
        while token is not None:
            text, following, count = words.add(token), await self.tokens.get(), count + 1
            if following is None:
                break
            yield event(count, token, text)
            token = following
        try:
            await self.work
        except Refusal as error:
            yield error.body("")
            return
        reason = "length" if count == self.most else "eos_token"
        details = {"finish_reason": reason, "generated_tokens": count, "seed": None}
        yield event(count, token, text + words.rest(), generated_text=words.text, details=details)


def event(index: int, token: int | None, text: str, **last: object) -> dict[str, object]:
    """Returns the record of one token; None: there was none. Probabilities are not returned."""
    one = {"id": token, "text": text, "logprob": None, "special": token is None}
    return {"index": index, "token": one, "generated_text": None, "details": None, **last}


class Events(StreamingResponse):
    """Server-sent events. held: what is given back after the last one."""

    media_type = "text/event-stream"

    def __init__(self, generated: Generated, held: ExitStack, headers: Mapping[str, str]) -> None:
        lines = (b"data: " + orjson.dumps(one) + b"\n\n" async for one in generated.events())
        super().__init__(lines, headers={**headers, "cache-control": "no-cache", "x-accel-buffering": "no"})
        self.work, self.held = generated.work, held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI. The guard watches for disconnects and cancels."""
        with self.held:
            try:
                await self.stream_response(send)
            finally:
                self.work.cancel()
