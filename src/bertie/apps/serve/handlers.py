"""The routes: the body of a request -> examples -> the JSON that clients expect."""

import base64
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from bertie import Tokenizer
from bertie.apps.serve import schemas
from bertie.apps.serve.errors import Refusal
from bertie.apps.serve.served import INLINE_CHARACTERS, Answer, Call
from bertie.platform import (
    BadRecord,
    BertieError,
    Chooses,
    EmbedTask,
    Example,
    Masked,
    MaskPrediction,
    Parts,
    Prediction,
    RelationExample,
    Sequences,
    TableFormat,
    TagPrediction,
    TaskPart,
    tag_entities,
)

MOST_INPUTS = 32  # of one request, as Text Embeddings Inference has it
MOST_EMBEDDINGS = 2048  # of one request, as OpenAI has it
MOST_TOKENIZED = 100_000  # characters of one request for tokens, of which each becomes an object
NUMBER_BYTES = 16  # of a number in an answer: as float32 and as text
FILLED_BYTES = 500  # of a token for a mask in an answer, besides the text with it
INLINE_FILLED = 100  # tokens for masks that are found sooner than a thread would begin to
UNLABELLED = TableFormat.of(labelled=False)


def examples_of(
    call: Call, texts: Sequence[Sequence[str]], most: int = MOST_INPUTS, name: str = "inputs"
) -> list[Example]:
    """Returns examples of one or two texts. Raises Refusal for none, for too many, and for empty texts."""
    check_count(texts, most, name)
    for number, parts in enumerate(texts):
        place = call.place(number)
        if len(parts) not in (1, 2):
            raise Refusal("Validation", several(place, parts), param=place)
        check_filled(place, *parts)
    return [Example(tuple(parts), None, number) for number, parts in enumerate(texts, 1)]


def several(place: str, texts: Sequence[str]) -> str:
    """Returns the message for an input of another number of texts than one or two."""
    return f"`{place}` has {len(texts)} texts; one or two were expected."


def single_example(call: Call, inputs: str | Sequence[str]) -> list[Example]:
    """Returns the one example of a text, or of a list of one or two, without the markup that the model does not read.

    Raises Refusal as `examples_of`.
    """
    texts = (inputs,) if isinstance(inputs, str) else tuple(inputs)
    check_count(texts)
    return [*call.model.pipeline.without_markup(examples_of(call, [texts]))]


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


def check_texts(call: Call, examples: Sequence[Example]) -> None:
    """Raises Refusal for pairs if the model was trained on single texts, or the reverse."""
    trained = call.model.pipeline.fixed_texts
    other = {1: 2, 2: 1}.get(trained or 0)
    wrong = [number for number, example in enumerate(examples) if len(example.texts) == other]
    if wrong:
        place, wants = call.place(wrong[0]), "pairs of texts; `{}` is a single text."
        if trained == 1:
            wants = "single texts; `{}` is a pair. Send each text as a list of one: [[TEXT], [TEXT]]."
        message = f"Model {call.model.name!r} was trained on {wants.format(place)}"
        raise Refusal("Validation", message, param=place)


def as_list(call: Call, inputs: Any, name: str = "inputs") -> tuple[list[Any], bool]:
    """Returns the inputs as a list, and whether it was a single input. The call learns where they are in the body."""
    single = not isinstance(inputs, list)
    call.place = (name if single else name + "[{}]").format
    return [inputs] if single else inputs, single


# Vectors -------------------------------------------------------------------------------------------------------------


async def vectors(
    call: Call, inputs: Sequence[object], task: EmbedTask, *, most: int, name: str
) -> NDArray[np.float32]:
    """Returns a vector for each text or list of token ids. -> (N, `task.width`)"""
    encoded = await sequences(call, inputs, task, most=most, name=name)
    finished = task.finished(await call.logits(encoded, task))
    if call.watch is not None and call.model.kinds[0] == "embed" and all(isinstance(one, str) for one in inputs):
        call.watch(call, [Example((str(one),)) for one in inputs], encoded, [Prediction([]) for _ in inputs])
    return finished


async def sequences(call: Call, inputs: Sequence[Any], task: EmbedTask, *, most: int, name: str) -> Sequences:
    """Returns one sequence per text, with the task's prompt, or per list of token ids."""
    check_count(inputs, most, name)
    examples = [Example((one if isinstance(one, str) else "",)) for one in inputs]
    if call.side == "left" or any(isinstance(one, list) for one in inputs):
        numbered = enumerate(inputs)
        encoded = await call.begin(
            examples, task, lambda: [[text_ids(call, one, task.prompt, call.place(n))] for n, one in numbered]
        )
    else:
        encoded = await call.begin(examples_of(call, [(one,) for one in inputs], most, name), task)
    call.cut(encoded, task)
    return encoded


def embedder(
    call: Call, *, prompt_name: str | None = None, normalize: bool = True, dimensions: int | None = None
) -> EmbedTask:
    """Returns the model's embedding task with the options of a request. Raises Refusal for unsupported options."""
    own = call.model.embedder
    prompt = own.prompt if prompt_name is None else prompt_of(call, prompt_name)
    most = own.whole_width(call.model.facts.hidden_size)
    if dimensions is not None and dimensions > most:
        raise Refusal("Validation", f"`dimensions` is {dimensions}; vectors have {most}.", param="dimensions")
    dim = own.truncate_dim if dimensions is None else dimensions
    return replace(own, prompt=prompt, normalize=False, truncate_dim=dim, unit_length=normalize)


def text_ids(call: Call, text: str | Sequence[int], prompt: str, place: str) -> list[int]:
    """Returns the ids of a text, or the given ids. Raises Refusal for an empty text."""
    if not isinstance(text, str):
        return token_ids(call, text, place)
    check_filled(place, text)
    return call.model.tokenizer.ids([prompt + text])[0]


def token_ids(call: Call, ids: Sequence[int], place: str) -> list[int]:
    """Returns ids without special tokens. Raises Refusal for none, and for ids outside the vocabulary."""
    tokenizer = call.model.tokenizer
    if not ids:
        raise Refusal("Validation", f"`{place}` is an empty list of token ids.", param=place)
    if (most := max(ids)) >= tokenizer.vocab_size:
        message = f"`{place}` has token {most}, and the vocabulary has ids 0 to {tokenizer.vocab_size - 1}."
        raise Refusal("Validation", message, param=place)
    return [i for i in ids if i not in tokenizer.special_ids]


def prompt_of(call: Call, name: str) -> str:
    """Returns the text of a prompt. Raises Refusal for an unknown prompt."""
    if name not in call.model.prompts:
        known = ", ".join(sorted(call.model.prompts)) or "none"
        raise Refusal("Validation", f"Model {call.model.name!r} has no prompt of that name. Known: {known}.")
    return call.model.prompts[name]


async def embed(call: Call, body: schemas.EmbedBody) -> Any:
    """Returns the vector of each text: [[0.1, ...]]."""
    inputs, _ = as_list(call, body.inputs)
    task = embedder(call, prompt_name=body.prompt_name, normalize=body.normalize, dimensions=body.dimensions)
    return await vectors(call, inputs, task, most=MOST_INPUTS, name="inputs")


async def embed_all(call: Call, body: schemas.EmbedAllBody) -> object:
    """Returns the vector of each token of each text: [[[0.1, ...]]]."""
    inputs, _ = as_list(call, body.inputs)
    task = embedder(call, prompt_name=body.prompt_name)
    output = layer_named(call, body.layer)
    encoded = await sequences(call, inputs, task, most=MOST_INPUTS, name="inputs")
    call.take_bytes(len(encoded.input_ids) * call.model.facts.hidden_size * NUMBER_BYTES)
    found = (await call.arrays(encoded, (output,)))[output]
    return np.split(found, encoded.starts[1:-1])


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


async def openai_embeddings(call: Call, body: schemas.EmbeddingsBody) -> object:
    """Returns embeddings of length one in OpenAI's form. base64 is little-endian float32."""
    single = isinstance(body.input, str) or bool(body.input and isinstance(body.input[0], int))
    inputs: list[Any] = [body.input] if single else list(body.input)
    call.place = ("input" if single else "input[{}]").format
    task = embedder(call, dimensions=body.dimensions)
    found = await vectors(call, inputs, task, most=MOST_EMBEDDINGS, name="input")
    coded = (
        [base64.b64encode(one.astype("<f4").tobytes()).decode() for one in found]
        if body.encoding_format == "base64"
        else found
    )
    data = [{"object": "embedding", "index": index, "embedding": one} for index, one in enumerate(coded)]
    usage = {"prompt_tokens": call.tokens, "total_tokens": call.tokens}
    return {"object": "list", "data": data, "model": call.model.name, "usage": usage}


async def similarity(call: Call, body: schemas.SimilarityBody) -> Any:
    """Returns the cosine of each sentence with the source sentence: [0.1, 0.7]."""
    texts = [body.inputs.source_sentence, *body.inputs.sentences]
    check_count(body.inputs.sentences, MOST_INPUTS, "sentences")
    call.place = lambda number: f"inputs.sentences[{number - 1}]" if number else "inputs.source_sentence"
    found = await vectors(call, texts, embedder(call), most=MOST_INPUTS + 1, name="sentences")
    return found[1:] @ found[0]


# One label or number for a text or a pair ----------------------------------------------------------------------------


def ranked(prediction: Prediction) -> list[dict[str, object]]:
    """Returns labels with probabilities, the most probable first; a number is the score of its name.

    Where a threshold decides, the predicted label is the first one.
    """
    scores = prediction.scores or {"score": prediction.number}
    order = sorted(scores.items(), key=lambda one: (one[0] != prediction.label, -one[1]))
    return [{"score": score, "label": label} for label, score in order]


def raw_scores(call: Call, answer: Answer) -> Answer:
    """Returns the same answer with the raw outputs of the head as scores."""
    names = call.model.pipeline.task.labels
    if answer.raw is None or len(answer.raw) != len(names):
        raise Refusal("Validation", f"Model {call.model.name!r} has no raw score for each label. Omit raw_scores.")
    return replace(
        answer, prediction=Prediction(answer.prediction.label, None, dict(zip(names, answer.raw.tolist(), strict=True)))
    )


async def classified(call: Call, examples: Sequence[Example], *, raw: bool = False) -> list[list[dict[str, object]]]:
    """Returns the labels of each example, best first."""
    check_texts(call, examples)
    answers = await call.predict(examples)
    return [ranked((raw_scores(call, answer) if raw else answer).prediction) for answer in answers]


async def predict(call: Call, body: schemas.PredictBody) -> Any:
    """Returns labels with scores, best first: [{"score", "label"}]; for a batch, one such list per input."""
    inputs: Any = body.inputs
    single = isinstance(inputs, str) or any(isinstance(one, str) for one in inputs)  # a text, or a pair
    if isinstance(inputs, list) and single and len(inputs) > 1 and call.model.pipeline.texts is None:
        message = f"`inputs` may be one pair or {len(inputs)} texts, and the folder of model {call.model.name!r} does "
        message += "not say which it was trained on. Send [[TEXT, TEXT]] for a pair, [[TEXT], [TEXT]] for two texts."
        raise Refusal("Validation", message, param="inputs")
    batch = [[inputs] if isinstance(inputs, str) else inputs] if single else as_list(call, inputs)[0]
    found = await classified(call, examples_of(call, batch), raw=body.raw_scores)
    return found[0] if single else found


async def text_classification(call: Call, body: schemas.PipelineBody) -> Any:
    """Returns one list of labels with scores per text, best first."""
    inputs, _ = as_list(call, body.inputs)
    found = await classified(call, examples_of(call, [[one] for one in inputs]))
    return [labels[: body.parameters.top_k] for labels in found]


async def classify(call: Call, body: schemas.ClassifyBody) -> Any:
    """Returns the label and all probabilities of each text."""
    inputs, _ = as_list(call, body.input, "input")
    examples = examples_of(call, [[one] if isinstance(one, str) else one for one in inputs], name="input")
    check_texts(call, examples)
    answers = await call.predict(examples)
    data = [{"index": index, **answer.as_json()} for index, answer in enumerate(answers)]
    return {"object": "list", "model": call.model.name, "data": data, "usage": {"total_tokens": call.tokens}}


async def rerank(call: Call, body: schemas.RerankBody) -> Any:
    """Returns the texts in order, best first; with `documents`, in Cohere's form."""
    cohere = body.documents is not None
    name, inputs = ("documents", body.documents or []) if cohere else ("texts", body.texts or [])
    check_filled("query", body.query)
    given = [one if isinstance(one, str) else one.text for one in as_list(call, inputs, name)[0]]
    odds = await relevance(call, examples_of(call, [[body.query, text] for text in given], name=name))
    scores = odds if body.raw_scores else expit(np.array(odds, np.float32)).tolist()
    order = sorted(range(len(scores)), key=lambda index: -scores[index])[: body.top_n]
    returned = body.return_text or body.return_documents
    if cohere:
        shown = {index: {"document": {"text": given[index]}} for index in order if returned}
        results = [{"index": index, "relevance_score": scores[index], **shown.get(index, {})} for index in order]
        usage = {"prompt_tokens": call.tokens, "total_tokens": call.tokens}
        return {"results": results, "model": call.model.name, "usage": usage}
    texts = {index: {"text": given[index]} for index in order if returned}
    return [{"index": index, "score": scores[index], **texts.get(index, {})} for index in order]


async def relevance(call: Call, examples: Sequence[Example]) -> list[float]:
    """Returns how well each text answers the query: log odds, or the scores of a model that learned from lists."""
    task = call.model.pipeline.task
    if not isinstance(task, Chooses):
        check_texts(call, examples)
        return [log_odds(answer) for answer in await call.predict(examples)]
    call.place = call.place(0).partition("[")[0].format  # the model reads them together
    encoded = await call.begin([Example((examples[0].texts[0], *(example.texts[1] for example in examples)))], task)
    call.cut(encoded, task)
    (scores,) = task.choice_scores(await call.logits(encoded, task), encoded)
    return [float(score) for score in scores.ravel()]


def log_odds(answer: Answer) -> float:
    """Returns the log odds of "answers the question": the difference of two outputs, or the only output."""
    assert answer.raw is not None
    return float(answer.raw[-1] - answer.raw[0]) if len(answer.raw) > 1 else float(answer.raw[0])


# Rows as `bertie predict` reads them ---------------------------------------------------------------------------------


async def answer(call: Call, body: schemas.AnswerBody) -> Any:
    """Returns the records that `bertie predict` writes, for any fine-tuned model."""
    inputs, _ = as_list(call, body.inputs)
    check_count(inputs)
    task = call.model.pipeline.task
    if body.head is not None:
        if not isinstance(task, Parts) or body.head not in task.members:
            raise Refusal("Validation", f"Model {call.model.name!r} has no head of that name.", param="head")
        task = task.part(body.head)
    examples = [row_example(call, row, number) for number, row in enumerate(inputs)]
    check_texts(call, examples)
    if isinstance(task, TaskPart) and any(len(example.texts) != task.reads for example in examples):
        raise Refusal("Validation", f"Head {body.head!r}: {task.unread}", param="inputs")
    return told(call, await call.predict(examples, task))


def row_example(call: Call, row: schemas.Row, number: int) -> Example:
    """Returns the example of a row, read as a row of a table. Raises Refusal for an invalid row."""
    task, place, columns = call.model.pipeline.task, call.place(number), call.model.pipeline.reading(UNLABELLED).columns
    if not isinstance(row, dict):
        texts = [row] if isinstance(row, str) else row
        if len(texts) not in (1, 2):
            raise Refusal("Validation", several(place, texts), param=place)
        row = dict(zip(("text",) if len(texts) == 1 else ("text1", "text2"), texts, strict=True))
        columns = replace(columns, usual_text=())
    fields = TableFormat.flat(row)
    found = task.example(fields, task.columns(tuple(fields), columns, place), number + 1)
    if isinstance(found, BadRecord):
        raise Refusal("Validation", f"{place}: {found.reason}.", param=place)
    return found


def told(call: Call, answers: Sequence[Answer]) -> dict[str, Any]:
    """Returns answers in Bertie's own form."""
    return {"model": call.model.name, "answers": [one.as_json() for one in answers]}


async def choose(call: Call, body: schemas.ChooseBody) -> Any:
    """Returns the most probable choice, and the probability of each."""
    inputs, _ = as_list(call, body.inputs)
    check_count(inputs)
    examples = [Example((one.context, *one.choices), None, number) for number, one in enumerate(inputs, 1)]
    check_not_empty(call, examples)
    return told(call, await call.predict(examples))


async def relate(call: Call, body: schemas.RelateBody) -> Any:
    """Returns the relation of two names in a text."""
    inputs, _ = as_list(call, body.inputs)
    check_count(inputs)
    examples = []
    for number, one in enumerate(inputs):
        spans = sorted(((one.subject.start, one.subject.end), (one.object.start, one.object.end)))
        if not (spans[0][0] < spans[0][1] <= spans[1][0] < spans[1][1] <= len(one.text)):
            place = call.place(number)
            message = f"{place}: the two names must lie in the text, one after the other."
            raise Refusal("Validation", message, param=place)
        names = ((name.start, name.end, name.type) for name in (one.subject, one.object))
        examples.append(RelationExample.between(one.text, names, number + 1))
    check_not_empty(call, examples)
    return told(call, await call.predict(examples))


def check_not_empty(call: Call, examples: Sequence[Example]) -> None:
    """Raises Refusal for an empty text, or a text that is too long."""
    for number, example in enumerate(examples):
        place = call.place(number)
        check_filled(place, *example.texts)
        if max(map(len, example.texts)) > Example.MAX_TEXT:
            raise Refusal("TooLarge", f"`{place}` has more than {Example.MAX_TEXT:,} characters.", param=place)


# Pipelines -----------------------------------------------------------------------------------------------------------


async def token_classification(call: Call, body: schemas.TagBody) -> Any:
    """Returns entities: [{"entity_group", "score", "word", "start", "end"}]. Offsets count code points."""
    inputs, single = as_list(call, body.inputs)
    answers = await call.predict(examples_of(call, [[one] for one in inputs]))
    words = body.parameters.aggregation_strategy == "none"
    found = [tagged(answer.prediction, words=words, ignore=body.parameters.ignore_labels) for answer in answers]
    return found[0] if single else found


def tagged(prediction: Prediction, *, words: bool, ignore: Sequence[str]) -> list[dict[str, object]]:
    """Returns the words of a sentence with their tags, or its entities with the mean score of their words."""
    assert isinstance(prediction, TagPrediction)
    sure, spans, text, found = prediction.probabilities, prediction.spans, prediction.text, []
    if words:
        for number, (tag, p, (start, end)) in enumerate(zip(prediction.label, sure, spans, strict=True)):
            if tag not in ignore:
                found.append(
                    {"entity": tag, "score": p, "index": number, "word": text[start:end], "start": start, "end": end}
                )
        return found
    for kind, first, last in tag_entities(prediction.label):
        if kind not in ignore and kind != "O":
            start, end = spans[first][0], spans[last - 1][1]
            score = sum(sure[first:last]) / (last - first)
            found.append({"entity_group": kind, "score": score, "word": text[start:end], "start": start, "end": end})
    return found


async def question_answering(call: Call, body: schemas.QuestionBody) -> Any:
    """Returns {"answer", "score", "start", "end"} with the no-answer score; with top_k, a list of spans."""
    inputs, single = as_list(call, body.inputs)
    examples = examples_of(call, [[one.question, one.context] for one in inputs])
    found = [spans(call, one, body.parameters.top_k) for one in await call.predict(examples)]
    return found[0] if single else found


def spans(call: Call, one: Answer, top_k: int | None) -> Any:
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
    return {"answer": record["answer"], "score": score, **where, **shown, "n_best": others, "model": call.model.name}


async def fill_mask(call: Call, body: schemas.PipelineBody) -> Any:
    """Returns [{"score", "token", "token_str", "sequence"}]; for several masks or texts, lists of those."""
    inputs, single = as_list(call, body.inputs)
    examples_of(call, [[one] for one in inputs])
    tokenizer, top, found = call.model.tokenizer, body.parameters.top_k or 5, []
    call.take(len(inputs))
    texts = [masked_text(call, text, number) for number, text in enumerate(inputs)]
    call.take_bytes(sum(top * len(one.spots) * (len(one.text) + FILLED_BYTES) for one in texts))
    for group in Masked.groups(texts):
        logits = (await call.arrays(Sequences.joined([one.ids for one in group]), ("mlm",)))["mlm"]
        ends = np.cumsum([len(one.spots) for one in group])
        for one, rows in zip(group, np.split(logits, ends[:-1]), strict=True):
            fill = partial(fillings, tokenizer, one, rows, top)
            found.append(await call.in_thread(fill, inline=top * len(rows) <= INLINE_FILLED))
    return found[0] if single else found


def fillings(tokenizer: Tokenizer, one: Masked, logits_NV: NDArray[np.float32], top: int) -> object:
    """Returns the tokens for the mask of a text; for several masks, a list for each."""
    best = one.proposals(logits_NV, tokenizer, top=top)
    masks = [[filled(tokenizer, token) for token in tokens] for tokens in best]
    return masks[0] if len(masks) == 1 else masks


def filled(tokenizer: Tokenizer, one: MaskPrediction) -> dict[str, object]:
    """Returns a token for a mask as transformers' pipeline does."""
    token = tokenizer.token_to_id(one.token)
    return {"score": one.probability, "token": token, "token_str": one.token, "sequence": one.text}


def masked_text(call: Call, text: str, number: int) -> Masked:
    """Returns a text with masks. Raises Refusal for a text without, and for one that is too long."""
    try:
        return Masked.of(call.model.tokenizer, text, max_length=call.model.pipeline.max_length)
    except BertieError as error:
        place = call.place(number)
        raise Refusal("Validation", f"{place}: {error.message}", param=place) from None


async def next_sentence(call: Call, body: schemas.NextSentenceBody) -> Any:
    """Returns whether the second text follows the first, or whether the two are in order."""
    call.model.pairs.check()
    inputs, _ = as_list(call, body.inputs)
    examples = examples_of(call, [[one.first, one.second] for one in inputs])
    encoded = await call.begin(examples, call.model.embedder, lambda: list(call.model.pipeline.ids(examples)))
    cut = call.cut(encoded, call.model.embedder)
    logits = (await call.arrays(encoded, ("pair",)))["pair"]
    found = zip(call.model.pairs.verdicts(logits), encoded.tokens.tolist(), cut, strict=True)
    answers = [{**one.as_json(), "tokens": tokens, "truncated": truncated} for one, tokens, truncated in found]
    return {"model": call.model.name, "answers": answers}


# Tokens --------------------------------------------------------------------------------------------------------------


async def tokenize(call: Call, body: schemas.TokenizeBody) -> Any:
    """Returns tokens with their offsets: `start`, `stop` in bytes, `char_start`, `char_stop` in code points."""
    inputs, _ = as_list(call, body.inputs)
    check_count(inputs)
    if (size := sum(map(len, inputs))) > MOST_TOKENIZED:
        raise Refusal(
            "TooLarge", f"The texts have {size:,} characters; at most {MOST_TOKENIZED:,} are tokenized at once."
        )
    call.take(len(inputs))
    inline = size < INLINE_CHARACTERS
    return await call.in_thread(
        lambda: [tokens_of(call, text, special=body.add_special_tokens) for text in inputs], inline=inline
    )


def tokens_of(call: Call, text: str, *, special: bool) -> list[dict[str, Any]]:
    """Returns the tokens of a text."""
    encoding, found = call.model.tokenizer.encode(text), []
    places = np.cumsum([0, *(len(character.encode()) for character in text)])
    for i, token, (start, stop), of in zip(
        encoding.ids, encoding.tokens, encoding.offsets, encoding.sequence_ids, strict=True
    ):
        if of is None and not special:
            continue
        where = {"start": int(places[start]), "stop": int(places[stop]), "char_start": start, "char_stop": stop}
        none = dict.fromkeys(where)
        found.append({"id": i, "text": token, "special": of is None, **(none if of is None else where)})
    return found


async def decode(call: Call, body: schemas.DecodeBody) -> Any:
    """Returns the text of token ids."""
    check_count(body.ids, 1 << 20, "ids")
    single = isinstance(body.ids[0], int)
    lists: list[Any] = [body.ids] if single else list(body.ids)
    call.place = ("ids" if single else "ids[{}]").format
    for number, ids in enumerate(lists):
        token_ids(call, ids, call.place(number))  # raises for an id that there is not
    decode = call.model.tokenizer.decode
    return [decode(ids, skip_special_tokens=body.skip_special_tokens) for ids in lists]
