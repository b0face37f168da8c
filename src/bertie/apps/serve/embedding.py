"""Vectors of texts and of token ids, for every API that has a route for them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bertie import Tokenizer
from bertie.apps.serve.call import Call
from bertie.apps.serve.errors import Refusal
from bertie.apps.serve.inputs import Inputs, check_filled
from bertie.platform import Example, Prediction, Sequences, TextPipeline


def embedding_of(
    call: Call, *, prompt_name: str | None = None, normalize: bool = True, dimensions: int | None = None
) -> TextPipeline:
    """Returns the model's pipeline of vectors with the options of a request. Raises Refusal for unsupported ones."""
    prompt, own = None if prompt_name is None else prompt_of(call, prompt_name), call.model.pipeline
    most = own.embedder.whole_width(own.facts.hidden_size)
    if dimensions is not None and dimensions > most:
        raise Refusal("Validation", f"`dimensions` is {dimensions}; vectors have {most}.", param="dimensions")
    return call.pipeline(own.embedding(prompt=prompt, dimensions=dimensions, unit_length=normalize))


def prompt_of(call: Call, name: str) -> str:
    """Returns the text of a prompt. Raises Refusal for an unknown prompt."""
    if name not in call.model.prompts:
        known = ", ".join(sorted(call.model.prompts)) or "none"
        raise Refusal("Validation", f"Model {call.model.name!r} has no prompt of that name. Known: {known}.")
    return call.model.prompts[name]


async def compute_vectors(call: Call, inputs: Inputs, pipeline: TextPipeline) -> NDArray[np.float32]:
    """Returns a vector for each text or list of token ids. -> (N, width)"""
    encoded = await encode_inputs(call, inputs, pipeline)
    finished = pipeline.embedder.finished(await call.logits(pipeline, encoded))
    if call.watch is not None and call.model.kinds[0] == "embed" and all(isinstance(one, str) for one in inputs.values):
        examples = [Example((str(one),)) for one in inputs.values]
        call.watch(call, examples, encoded, [Prediction([]) for _ in examples])
    return finished


async def encode_inputs(call: Call, inputs: Inputs, pipeline: TextPipeline) -> Sequences:
    """Returns one sequence per text, with the pipeline's prompt, or per list of token ids. Raises Refusal."""
    values, prompt = inputs.values, pipeline.embedder.prompt
    if call.reading.side == "right" and all(isinstance(one, str) for one in values):
        return await call.encode(pipeline, inputs.examples(), inputs.place)
    examples = [Example((one if isinstance(one, str) else "",)) for one in values]

    def segments() -> list[list[Sequence[int]]]:
        places = map(inputs.place, range(len(values)))
        return [[text_ids(pipeline.tokenizer, one, prompt, place)] for one, place in zip(values, places, strict=True)]

    return await call.encode(pipeline, examples, inputs.place, segments)


def text_ids(tokenizer: Tokenizer, text: str | Sequence[int], prompt: str, place: str) -> Sequence[int]:
    """Returns the ids of a text, or the given ids. Raises Refusal for an empty text."""
    if not isinstance(text, str):
        return token_ids(tokenizer, text, place)
    check_filled(place, text)
    return tokenizer.ids([prompt + text])[0]


def token_ids(tokenizer: Tokenizer, ids: Sequence[int], place: str) -> list[int]:
    """Returns ids without special tokens. Raises Refusal for none, and for ids outside the vocabulary."""
    if not ids:
        raise Refusal("Validation", f"`{place}` is an empty list of token ids.", param=place)
    if (most := max(ids)) >= tokenizer.vocab_size:
        message = f"`{place}` has token {most}, and the vocabulary has ids 0 to {tokenizer.vocab_size - 1}."
        raise Refusal("Validation", message, param=place)
    return [i for i in ids if i not in tokenizer.special_ids]
