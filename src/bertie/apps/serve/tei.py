"""The routes of Text Embeddings Inference, and reranking, also in Cohere's form."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy.special import expit

from bertie import Tokenizer
from bertie.apps.serve import schemas
from bertie.apps.serve.call import INLINE_CHARACTERS, Answer, Call
from bertie.apps.serve.embedding import compute_vectors, embedding_of, encode_inputs, token_ids
from bertie.apps.serve.errors import Refusal
from bertie.apps.serve.inputs import MOST_INPUTS, Inputs, check_count, check_filled
from bertie.apps.serve.labels import check_text_columns, classified
from bertie.platform import Chooses, Example

MOST_TOKENIZED = 100_000  # characters of one request for tokens, of which each becomes an object
_NUMBER_BYTES = 16  # of a number in an answer: as float32 and as text

# Vectors -------------------------------------------------------------------------------------------------------------


async def embed(call: Call, body: schemas.EmbedBody) -> object:
    """Returns the vector of each text: [[0.1, ...]]."""
    pipeline = embedding_of(call, prompt_name=body.prompt_name, normalize=body.normalize, dimensions=body.dimensions)
    return await compute_vectors(call, Inputs.of(body.inputs), pipeline)


async def embed_all(call: Call, body: schemas.EmbedAllBody) -> object:
    """Returns the vector of each token of each text: [[[0.1, ...]]]."""
    inputs, output = Inputs.of(body.inputs), layer_named(call, body.layer)
    encoded = await encode_inputs(call, inputs, embedding_of(call, prompt_name=body.prompt_name))
    call.ticket.take_bytes(len(encoded.input_ids) * call.model.facts.hidden_size * _NUMBER_BYTES)
    rows = (await call.ticket.arrays(encoded, (output,)))[output]
    return np.split(rows, encoded.starts[1:-1])


def layer_named(call: Call, layer: int) -> str:
    """Returns the name of a layer's output. Raises Refusal for a missing layer."""
    layers = call.model.facts.layers
    if layer in (-1, layers or -1):
        return "last_hidden_state"
    if not layers:
        raise Refusal("Validation", "This model gives the vectors of its last layer only.", param="layer")
    if not -layers - 1 <= layer <= layers:
        raise Refusal("Validation", f"`layer` is {layer}; the model has 0 to {layers}.", param="layer")
    return call.model.facts.layer_output(layer)


async def similarity(call: Call, body: schemas.SimilarityBody) -> object:
    """Returns the cosine of each sentence with the source sentence: [0.1, 0.7]."""
    check_count(body.inputs.sentences, MOST_INPUTS, "sentences")

    def place(number: int) -> str:
        return f"inputs.sentences[{number - 1}]" if number else "inputs.source_sentence"

    inputs = Inputs([body.inputs.source_sentence, *body.inputs.sentences], False, place)
    rows = await compute_vectors(call, inputs, embedding_of(call))
    return rows[1:] @ rows[0]


# Labels --------------------------------------------------------------------------------------------------------------


async def predict(call: Call, body: schemas.PredictBody) -> object:
    """Returns labels with scores, best first: [{"score", "label"}]; for a batch, one such list per input."""
    values: Any = body.inputs
    single = isinstance(values, str) or any(isinstance(one, str) for one in values)  # a text, or a pair
    if isinstance(values, list) and single and len(values) > 1 and call.model.pipeline.texts is None:
        message = f"`inputs` may be one pair or {len(values)} texts, and the folder of model {call.model.name!r} does "
        message += "not say which it was trained on. Send [[TEXT, TEXT]] for a pair, [[TEXT], [TEXT]] for two texts."
        raise Refusal("Validation", message, param="inputs")
    inputs = Inputs([values], True, "inputs".format) if single else Inputs.of(values)
    answers = await classified(call, inputs, raw=body.raw_scores)
    return answers[0] if single else answers


async def rerank(call: Call, body: schemas.RerankBody) -> object:
    """Returns the texts in order, best first; with `documents`, in Cohere's form."""
    cohere = body.documents is not None
    name, values = ("documents", body.documents or []) if cohere else ("texts", body.texts or [])
    check_filled("query", body.query)
    texts = [one if isinstance(one, str) else one.text for one in values]
    odds = await relevance(call, body.query, Inputs.of(texts, name))
    scores = odds if body.raw_scores else expit(np.array(odds, np.float32)).tolist()
    order = sorted(range(len(scores)), key=lambda index: -scores[index])[: body.top_n]
    returned = body.return_text or body.return_documents
    if cohere:
        shown = {index: {"document": {"text": texts[index]}} for index in order if returned}
        results = [{"index": index, "relevance_score": scores[index], **shown.get(index, {})} for index in order]
        usage = {"prompt_tokens": call.usage.tokens, "total_tokens": call.usage.tokens}
        return {"results": results, "model": call.model.name, "usage": usage}
    more = {index: {"text": texts[index]} for index in order if returned}
    return [{"index": index, "score": scores[index], **more.get(index, {})} for index in order]


async def relevance(call: Call, query: str, texts: Inputs) -> list[float]:
    """Returns how well each text answers the query: log odds, or the scores of a model that learned from lists."""
    task = call.model.pipeline.task
    pairs = Inputs([[query, text] for text in texts.values], False, texts.place)
    examples = pairs.examples()
    if not isinstance(task, Chooses):
        check_text_columns(call, pairs, examples)
        return [log_odds(answer) for answer in await call.predict(examples, pairs.place)]
    pipeline, together = call.pipeline(), Example((query, *texts.values))
    name = texts.place(0).partition("[")[0]  # the model reads them together
    encoded = await call.encode(pipeline, [together], name.format)
    (scores,) = task.choice_scores(await call.logits(pipeline, encoded), encoded)
    return [float(score) for score in scores.ravel()]


def log_odds(answer: Answer) -> float:
    """Returns the log odds of "answers the question": the difference of two outputs, or the only output."""
    assert answer.raw is not None
    return float(answer.raw[-1] - answer.raw[0]) if len(answer.raw) > 1 else float(answer.raw[0])


# Tokens --------------------------------------------------------------------------------------------------------------


async def tokenize(call: Call, body: schemas.TokenizeBody) -> object:
    """Returns tokens with their offsets: `start`, `stop` in bytes, `char_start`, `char_stop` in code points."""
    texts = Inputs.of(body.inputs).values
    if (size := sum(map(len, texts))) > MOST_TOKENIZED:
        raise Refusal(
            "TooLarge", f"The texts have {size:,} characters; at most {MOST_TOKENIZED:,} are tokenized at once."
        )
    call.ticket.take(len(texts))
    work = partial(tokens_of, call.model.tokenizer, texts, special=body.add_special_tokens)
    return await call.ticket.in_thread(work, inline=size < INLINE_CHARACTERS)


def tokens_of(tokenizer: Tokenizer, texts: Sequence[str], *, special: bool) -> list[list[dict[str, object]]]:
    """Returns the tokens of each text."""
    every = []
    for text in texts:
        encoding, records = tokenizer.encode(text), []
        places = np.cumsum([0, *(len(character.encode()) for character in text)])
        rows = zip(encoding.ids, encoding.tokens, encoding.offsets, encoding.sequence_ids, strict=True)
        for i, token, (start, stop), of in rows:
            if of is None and not special:
                continue
            where = {"start": int(places[start]), "stop": int(places[stop]), "char_start": start, "char_stop": stop}
            none = dict.fromkeys(where)
            records.append({"id": i, "text": token, "special": of is None, **(none if of is None else where)})
        every.append(records)
    return every


async def decode(call: Call, body: schemas.DecodeBody) -> object:
    """Returns the text of token ids."""
    check_count(body.ids, 1 << 20, "ids")
    single, tokenizer = isinstance(body.ids[0], int), call.model.tokenizer
    lists: list[Any] = [body.ids] if single else list(body.ids)
    for number, ids in enumerate(lists):
        token_ids(tokenizer, ids, "ids" if single else f"ids[{number}]")  # raises for an id that there is not
    return [tokenizer.decode(ids, skip_special_tokens=body.skip_special_tokens) for ids in lists]
