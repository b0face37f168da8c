"""The routes that only Bertie has: rows as `bertie predict` reads them, choices, relations, pairs of sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bertie.apps.serve import schemas
from bertie.apps.serve.call import Answer, Call, are_cut
from bertie.apps.serve.errors import Refusal
from bertie.apps.serve.inputs import Inputs, check_sizes
from bertie.apps.serve.labels import check_text_columns
from bertie.platform import BadRecord, Example, TableFormat

UNLABELLED = TableFormat.of(labelled=False)


async def classify(call: Call, body: schemas.ClassifyBody) -> object:
    """Returns the label and all probabilities of each text."""
    inputs = Inputs.of(body.input, "input")
    examples = inputs.examples()
    check_text_columns(call, inputs, examples)
    answers = await call.predict(examples, inputs.place)
    data = [{"index": index, **answer.as_json()} for index, answer in enumerate(answers)]
    return {"object": "list", "model": call.model.name, "data": data, "usage": {"total_tokens": call.usage.tokens}}


async def answer(call: Call, body: schemas.AnswerBody) -> object:
    """Returns the records that `bertie predict` writes, for any fine-tuned model."""
    inputs = Inputs.of(body.inputs)
    part = call.model.pipeline.for_head(body.head) if body.head is not None else None
    examples = [example_of(call, row, number, inputs.place(number)) for number, row in enumerate(inputs.values)]
    check_text_columns(call, inputs, examples)
    return own_form(call, await call.predict(examples, inputs.place, part))


def example_of(call: Call, row: schemas.InputRow, number: int, place: str) -> Example:
    """Returns the example of a row of a table, or of one or two texts. Raises Refusal or BertieError."""
    if isinstance(row, dict):
        return read_row(call, row, number, place)
    texts = [row] if isinstance(row, str) else row
    if len(texts) not in (1, 2):
        raise Refusal("Validation", f"`{place}` has {len(texts)} texts; one or two were expected.", param=place)
    names = ("text",) if len(texts) == 1 else ("text1", "text2")
    return read_row(call, dict(zip(names, texts, strict=True)), number, place, usual=False)


def read_row(call: Call, row: Mapping[str, object], number: int, place: str, *, usual: bool = True) -> Example:
    """Returns the example of a row. usual: with the columns of the training, and not those of a text alone.

    Raises Refusal or BertieError for an invalid row.
    """
    pipeline = call.model.pipeline
    columns, fields = pipeline.reading(UNLABELLED).columns, TableFormat.flat(row)
    columns = columns if usual else replace(columns, usual_text=())
    example = pipeline.task.example(fields, pipeline.task.columns(tuple(fields), columns, place), number + 1)
    if isinstance(example, BadRecord):
        raise Refusal("Validation", f"{place}: {example.reason}.", param=place)
    return example


def own_form(call: Call, answers: Sequence[Answer]) -> dict[str, object]:
    """Returns answers in Bertie's own form."""
    return {"model": call.model.name, "answers": [one.as_json() for one in answers]}


async def choose(call: Call, body: schemas.ChooseBody) -> object:
    """Returns the most probable choice, and the probability of each."""
    inputs = Inputs.of(body.inputs)
    examples = [Example((one.context, *one.choices), None, number) for number, one in enumerate(inputs.values, 1)]
    check_sizes(inputs, examples)
    return own_form(call, await call.predict(examples, inputs.place))


async def relate(call: Call, body: schemas.RelateBody) -> object:
    """Returns the relation of two names in a text."""
    inputs = Inputs.of(body.inputs)
    examples = [related(call, one, number, inputs.place(number)) for number, one in enumerate(inputs.values)]
    check_sizes(inputs, examples)
    return own_form(call, await call.predict(examples, inputs.place))


def related(call: Call, one: schemas.Related, number: int, place: str) -> Example:
    """Returns the example of two names in a text. Raises Refusal for names outside of it, or that overlap."""
    spans = sorted(((one.subject.start, one.subject.end), (one.object.start, one.object.end)))
    if not (spans[0][0] < spans[0][1] <= spans[1][0] < spans[1][1] <= len(one.text)):
        message = f"{place}: the two names must lie in the text, one after the other."
        raise Refusal("Validation", message, param=place)
    row: dict[str, object] = {"text": one.text}
    for role, name in (("subject_entity", one.subject), ("object_entity", one.object)):
        word = one.text[name.start : name.end]
        row[role] = {"word": word, "type": name.type, "start_idx": name.start, "end_idx": name.end - 1}
    return read_row(call, row, number, place, usual=False)


async def next_sentence(call: Call, body: schemas.NextSentenceBody) -> object:
    """Returns whether the second text follows the first, or whether the two are in order."""
    call.model.pairs.check()
    inputs, own = Inputs.of(body.inputs), call.model.pipeline
    pairs = Inputs([[one.first, one.second] for one in inputs.values], inputs.single, inputs.place)
    examples, pipeline = pairs.examples(), call.pipeline(replace(own, task_or_none=own.embedder))
    encoded = await call.encode(pipeline, examples, pairs.place, lambda: list(own.ids(examples)))
    logits = (await call.ticket.arrays(encoded, ("pair",)))["pair"]
    rows = zip(call.model.pairs.verdicts(logits), encoded.tokens.tolist(), are_cut(pipeline, encoded), strict=True)
    answers = [{**one.as_json(), "tokens": tokens, "truncated": cut} for one, tokens, cut in rows]
    return {"model": call.model.name, "answers": answers}
