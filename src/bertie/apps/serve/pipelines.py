"""The routes of Hugging Face's pipelines, in the shapes of `transformers`."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bertie import Tokenizer
from bertie.apps.serve import schemas
from bertie.apps.serve.call import Answer, Call
from bertie.apps.serve.errors import Refusal
from bertie.apps.serve.inputs import Inputs
from bertie.apps.serve.labels import classified
from bertie.platform import BertieError, Masked, Prediction, Sequences

FILLED_BYTES = 500  # of a token for a mask in an answer, besides the text with it
INLINE_FILLED = 100  # tokens for masks that are found sooner than a thread would begin to
TOP_FILLED = 5


async def text_classification(call: Call, body: schemas.PipelineBody) -> object:
    """Returns one list of labels with scores per text, best first."""
    answers = await classified(call, Inputs.of(body.inputs))
    return [labels[: body.parameters.top_k] for labels in answers]


async def token_classification(call: Call, body: schemas.TagBody) -> object:
    """Returns entities: [{"entity_group", "score", "word", "start", "end"}]. Offsets count code points."""
    inputs, options = Inputs.of(body.inputs), body.parameters
    records = word_records if options.aggregation_strategy == "none" else entity_records
    answers = await call.predict(inputs.examples(), inputs.place)
    every = [
        records(answer.prediction, text, options.ignore_labels)
        for answer, text in zip(answers, inputs.values, strict=True)
    ]
    return every[0] if inputs.single else every


def word_records(prediction: Prediction, text: str, ignore: Sequence[str]) -> list[dict[str, object]]:
    """Returns the words of a sentence with their tags."""
    return [
        {"entity": tag, "score": p, "index": number, "word": text[start:end], "start": start, "end": end}
        for number, (tag, p, start, end) in enumerate(prediction.tagged_words)
        if tag not in ignore
    ]


def entity_records(prediction: Prediction, text: str, ignore: Sequence[str]) -> list[dict[str, object]]:
    """Returns the entities of a sentence, with the mean score of their words."""
    records, words = [], prediction.tagged_words
    for kind, start, end in prediction.entities:
        if kind not in ignore and kind != "O":
            sure = [word.probability for word in words if start <= word.start and word.end <= end]
            score = sum(sure) / len(sure)
            records.append({"entity_group": kind, "score": score, "word": text[start:end], "start": start, "end": end})
    return records


async def question_answering(call: Call, body: schemas.QuestionBody) -> object:
    """Returns {"answer", "score", "start", "end"} with the no-answer score; with top_k, a list of spans."""
    inputs = Inputs.of(body.inputs)
    pairs = Inputs([[one.question, one.context] for one in inputs.values], inputs.single, inputs.place)
    answers = await call.predict(pairs.examples(), pairs.place)
    records = [spans(call.model.name, answer, body.parameters.top_k) for answer in answers]
    return records[0] if inputs.single else records


def spans(model: str, one: Answer, top_k: int | None) -> object:
    """Returns the answer to a question. No answer is "" at 0, as in transformers."""
    record = one.as_json()
    best = record.pop("n_best")
    if top_k and top_k > 1:
        return [
            {"answer": span["text"], "score": span["probability"], "start": span["start"], "end": span["end"]}
            for span in best[:top_k]
        ]
    none = not record["answer"]
    score = record["no_answer_probability"] if none else record["probability"]
    shown = {name: record[name] for name in ("no_answer_score", "no_answer_probability", "tokens", "truncated")}
    where = {"start": 0, "end": 0} if none else {"start": record["start"], "end": record["end"]}
    others = [{"answer": span["text"], **{k: span[k] for k in ("start", "end", "probability")}} for span in best]
    return {"answer": record["answer"], "score": score, **where, **shown, "n_best": others, "model": model}


async def fill_mask(call: Call, body: schemas.PipelineBody) -> object:
    """Returns [{"score", "token", "token_str", "sequence"}]; for several masks or texts, lists of those."""
    inputs, ticket = Inputs.of(body.inputs), call.ticket
    inputs.examples()  # raises for an empty text
    tokenizer, top, records = call.model.tokenizer, body.parameters.top_k or TOP_FILLED, list[object]()
    ticket.take(len(inputs.values))
    texts = [read_masked_text(call, text, inputs.place(number)) for number, text in enumerate(inputs.values)]
    ticket.take_bytes(sum(top * len(one.spots) * (len(one.text) + FILLED_BYTES) for one in texts))
    for group in Masked.groups(texts):
        logits = (await ticket.arrays(Sequences.joined([one.ids for one in group]), ("mlm",)))["mlm"]
        ends = np.cumsum([len(one.spots) for one in group])
        for one, rows in zip(group, np.split(logits, ends[:-1]), strict=True):
            work = partial(fillings, tokenizer, one, rows, top)
            records.append(await ticket.in_thread(work, inline=top * len(rows) <= INLINE_FILLED))
    return records[0] if inputs.single else records


def read_masked_text(call: Call, text: str, place: str) -> Masked:
    """Returns a text with masks. Raises Refusal for a text without, and for one that is too long."""
    try:
        return Masked.of(call.model.tokenizer, text, max_length=call.model.pipeline.max_length)
    except BertieError as error:
        raise Refusal("Validation", f"{place}: {error.message}", param=place, code=error.code) from None


def fillings(tokenizer: Tokenizer, one: Masked, logits_NV: NDArray[np.float32], top: int) -> object:
    """Returns the tokens for the mask of a text as transformers does; for several masks, a list for each."""
    masks = [
        [
            {
                "score": token.probability,
                "token": tokenizer.token_to_id(token.token),
                "token_str": token.token,
                "sequence": token.text,
            }
            for token in tokens
        ]
        for tokens in one.proposals(logits_NV, tokenizer, top=top)
    ]
    return masks[0] if len(masks) == 1 else masks
