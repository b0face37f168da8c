"""POST /attention: what the tokens of a text attend to in one head, with `--attention`.

The engines that answer requests do not return attention. With the option, each worker holds its model a second time, in
torch, and computes one text at a time.
"""

from typing import Any

import numpy as np

from bertie.apps.serve import schemas
from bertie.apps.serve.call import Call
from bertie.apps.serve.errors import Refusal
from bertie.apps.serve.inputs import single_example
from bertie.apps.serve.remote import BatchFailed, WorkerDied
from bertie.apps.serve.routes import ANY, OWN, TEXT_EXAMPLE, Route
from bertie.apps.serve.wire import ATTENTION, TELLING, WORDS
from bertie.platform import Sequences

_MAX_TOKENS = 64  # whose attention is returned: the answer has a number for each pair


async def attention(call: Call, body: schemas.AttentionBody) -> Any:
    """Returns the attention of one head: weights[i][j] is what token i pays to token j."""
    texts, usage = single_example(call.model.pipeline, body.inputs).texts, call.usage
    if body.layer is None and "head" in body.model_fields_set:
        raise Refusal("Validation", "`head` needs `layer`. Pass both, or omit both.", param="head")
    call.ticket.take(1)
    usage.characters += sum(map(len, texts))
    encoding = call.model.tokenizer.encode(*texts, max_length=min(call.model.pipeline.max_length, _MAX_TOKENS))
    words = np.array([text is not None for text in encoding.sequence_ids])
    if not words.any():
        raise Refusal("Validation", "The text has no words.", param="inputs")
    usage.truncated += encoding.overflow > 0
    usage.tokens += len(encoding)
    arrays = (np.array(encoding.ids, np.int64), np.array(encoding.type_ids, np.int64), np.array([len(encoding)]))
    worker = next((one for one in call.model.batcher.workers if one.alive), None)
    if worker is None:
        raise Refusal("Unhealthy", "The model is starting. Try again later.")
    try:
        admission = call.ticket.admission
        with admission.hold(admission.tokens[call.model.name], len(encoding), call.model.name):
            outputs = await worker.run(Sequences(*arrays, extra={WORDS: words}), (ATTENTION,))
    except (BatchFailed, WorkerDied) as error:
        raise Refusal("Backend", str(error) or "The process of the model ended.") from None
    layers, heads = outputs[ATTENTION].shape[:2]
    layer, head = (outputs[TELLING] + 1).tolist() if body.layer is None else (body.layer, body.head)
    if layer > layers or head > heads:
        raise Refusal("Validation", f"There is no head {layer}.{head}; the model has {layers} layers of {heads} heads.")
    tokens = [
        {"text": token, "input": text, "start": start, "end": end}
        for token, text, (start, end) in zip(encoding.tokens, encoding.sequence_ids, encoding.offsets, strict=True)
    ]
    sizes = {"layers": layers, "heads": heads, "layer": layer, "head": head}
    weights = np.round(outputs[ATTENTION][layer - 1, head - 1].astype(np.float64), 5)
    cut = encoding.overflow > 0
    return {"model": call.model.name, **sizes, "texts": texts, "tokens": tokens, "weights": weights, "truncated": cut}


ROUTE = Route("/attention", ANY, schemas.AttentionBody, attention, OWN, TEXT_EXAMPLE)
