"""POST /explain: the words that a prediction rests on, by occlusion, through the queue of the model, for any engine.

The values are those of `bertie explain --methods occlusion`: what a logit loses when a token becomes [MASK].

K versions of the text · S tokens · L labels
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from bertie.apps.explain.words import NO_ANSWER, NO_WORDS, text_words
from bertie.apps.serve import schemas
from bertie.apps.serve.call import Call
from bertie.apps.serve.errors import Refusal
from bertie.apps.serve.inputs import Inputs, single_example
from bertie.apps.serve.labels import check_text_columns
from bertie.platform import Encoding, Sequences, Spans, nearest

EXPLAINED_HEADS = ("sequence", "multilabel", "rank", "regression", "tagging", "span", "mlm")
_MAX_TOKENS = 128  # that are read of an explained text, since each costs a pass over all of them
_NUMBER_BYTES = 4
Chosen = tuple[NDArray[np.float32], str]
"""The logit of each version (K,), and what it is of."""


async def explain(call: Call, body: schemas.ExplainBody) -> object:
    """Returns what the logit of the prediction, or of `label`, loses without each word.

    `start` and `end` of a word are places in `texts`: what the model read, without its markup.
    """
    example, usage = single_example(call.model.pipeline, body.inputs), call.usage
    texts = example.texts
    kind = next(kind for kind in call.model.kinds if kind in EXPLAINED_HEADS)
    if kind != "mlm":
        check_text_columns(call, Inputs([body.inputs], True, "inputs".format), [example])
    check_choice(kind, body)
    call.ticket.take(1)
    usage.characters += sum(map(len, texts))
    length = min(call.model.pipeline.max_length, _MAX_TOKENS)
    encoding = call.model.tokenizer.encode(*texts, max_length=length)
    if kind == "mlm":
        encoding = call.model.pipeline.as_filled(texts, encoding, length)
    usage.truncated += encoding.overflow > 0
    if all(text is None for text in encoding.sequence_ids):
        raise Refusal("Validation", NO_WORDS, param="inputs")
    output = "mlm" if kind == "mlm" else call.model.pipeline.task.output
    versions, hidden = occluded(call, encoding, output)
    if (size := call.model.facts.heads.get(output, 1)) > _MAX_TOKENS:
        call.ticket.take_bytes(len(versions) * size * _NUMBER_BYTES)
    outputs = (await call.ticket.arrays(versions, (output,)))[output]
    numbers, about = CHOOSE[kind](call, body, encoding, texts, outputs.reshape(len(versions), -1, outputs.shape[-1]))
    values = np.zeros(len(encoding))
    values[hidden] = numbers[0] - numbers[2:]
    words = [
        {"text": texts[one.text][one.start : one.end], "input": one.text, "start": one.start, "end": one.end}
        | {"value": float(values[one.tokens].sum())}
        for one in text_words(encoding)
        if one.text is not None
    ]
    common = {"explained": about, "method": "occlusion", "value": float(numbers[0]), "baseline": float(numbers[1])}
    return {
        "model": call.model.name,
        **common,
        "texts": texts,
        "words": words,
        "tokens": len(encoding),
        "truncated": encoding.overflow > 0,
    }


def check_choice(kind: str, body: schemas.ExplainBody) -> None:
    """Raises Refusal for a label or a word where there is none to choose."""
    if body.word is not None and kind != "tagging":
        message = "`word` is the number of a tagged word, and this model has no tags. Omit it."
        raise Refusal("Validation", message, param="word")
    if body.label is not None and kind in ("regression", "span"):
        message = "`label` chooses among labels, and this model has none. Omit it."
        raise Refusal("Validation", message, param="label")


def occluded(call: Call, encoding: Encoding, output: str) -> tuple[Sequences, NDArray[np.int64]]:
    """Returns the text, the text without words, and without each of the tokens whose numbers are the second value.

    Raises Refusal for a masked-LM head and a text without a mask.
    """
    tokenizer, ids = call.model.tokenizer, np.array(encoding.ids, np.int64)
    mask = tokenizer.special_id("mask")
    words = np.array([text is not None for text in encoding.sequence_ids]) & (ids != (-1 if mask is None else mask))
    hidden = np.flatnonzero(words)
    rows = np.stack([np.zeros_like(words), words, *(np.arange(len(ids)) == place for place in hidden)])
    versions = np.where(rows, tokenizer.pad_id if mask is None else mask, ids)
    positions = np.zeros(0, np.int64)
    if call.model.facts.outputs[output] == "position":
        masks = np.flatnonzero(ids == mask)
        if not len(masks):
            token = tokenizer.special_tokens["mask"]
            part = f" in the {len(ids)} tokens that are read" if encoding.overflow else ""
            raise Refusal(
                "Validation", f"The text has no {token}{part}. Write {token} where a token should be predicted."
            )
        positions = np.arange(len(versions)) * len(ids) + masks[0]
    types = np.tile(np.array(encoding.type_ids, np.int64), len(versions))
    return Sequences(versions.ravel(), types, np.full(len(versions), len(ids)), positions), hidden


def label_number(names: Sequence[str], label: str | None, logits: NDArray[np.float32]) -> int:
    """Returns the number of a label, by default of the best one. Raises Refusal for an unknown label."""
    if label is None:
        return int(logits.argmax())
    if label not in names:
        raise Refusal("Validation", f"Unknown label. {nearest(label[:80], names)}", param="label")
    return names.index(label)


def of_label(
    call: Call, body: schemas.ExplainBody, encoding: Encoding, texts: Sequence[str], logits_K1L: NDArray[np.float32]
) -> Chosen:
    """The logit of a label."""
    names = call.model.pipeline.task.labels
    at = 0 if logits_K1L.shape[-1] == 1 else label_number(names, body.label, logits_K1L[0, 0])
    return logits_K1L[:, 0, at], f"label {names[at]}"


def of_tag(
    call: Call, body: schemas.ExplainBody, encoding: Encoding, texts: Sequence[str], logits_KSL: NDArray[np.float32]
) -> Chosen:
    """The logit of a word's tag: of the first word with another tag than O, unless `word` names one."""
    names, words = call.model.pipeline.task.labels, [one for one in text_words(encoding) if one.text is not None]
    outside = names.index("O") if "O" in names else -1
    tagged = [n for n, one in enumerate(words) if int(logits_KSL[0, one.tokens[0]].argmax()) != outside]
    number = (tagged or [0])[0] if body.word is None else body.word - 1
    if number >= len(words):
        raise Refusal("Validation", f"`word` is {body.word}; the text has words 1 to {len(words)}.", param="word")
    one = words[number]
    at = label_number(names, body.label, logits_KSL[0, one.tokens[0]])
    return logits_KSL[:, one.tokens[0], at], f"word {number + 1} ({texts[0][one.start : one.end]}): {names[at]}"


def of_answer(
    call: Call, body: schemas.ExplainBody, encoding: Encoding, texts: Sequence[str], logits_KSL: NDArray[np.float32]
) -> Chosen:
    """The logits of the start and the end of the best answer, added."""
    allowed = np.array([text == len(texts) - 1 for text in encoding.sequence_ids])
    if not allowed.any():
        raise Refusal("Validation", NO_ANSWER, param="inputs")
    starts, ends = (np.where(allowed, logits_KSL[0, :, side], -np.inf) for side in (0, 1))
    task = call.model.pipeline.task
    assert isinstance(task, Spans)
    first, last = task.best(starts, ends)
    answer = texts[-1][encoding.offsets[first][0] : encoding.offsets[last][1]]
    return logits_KSL[:, first, 0] + logits_KSL[:, last, 1], f"answer {answer!r}"


def of_mask(
    call: Call, body: schemas.ExplainBody, encoding: Encoding, texts: Sequence[str], logits_K1V: NDArray[np.float32]
) -> Chosen:
    """The logit of a token at the first mask."""
    tokenizer = call.model.tokenizer
    at = int(logits_K1V[0, 0].argmax())
    if body.label is not None:
        ids = tokenizer.ids([body.label])[0]
        if len(ids) != 1:
            message = f"`label` is {len(ids)} tokens; a masked word is one token."
            raise Refusal("Validation", message, param="label")
        at = ids[0]
        if at == tokenizer.unk_id:
            raise Refusal("Validation", "`label` is not in the vocabulary of the model.", param="label")
    return logits_K1V[:, 0, at], f"masked word {tokenizer.id_to_token(at)!r}"


CHOOSE: dict[str, Callable[[Call, schemas.ExplainBody, Encoding, Sequence[str], NDArray[np.float32]], Chosen]] = {
    **dict.fromkeys(("sequence", "multilabel", "rank", "regression"), of_label),
    "tagging": of_tag,
    "span": of_answer,
    "mlm": of_mask,
}
