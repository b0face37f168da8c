"""The routes of OpenAI's API."""

import base64
from typing import Any

from bertie.apps.serve import schemas
from bertie.apps.serve.call import Call
from bertie.apps.serve.embedding import compute_vectors, embedding_of
from bertie.apps.serve.inputs import Inputs

MOST_EMBEDDINGS = 2048  # of one request


async def embeddings(call: Call, body: schemas.EmbeddingsBody) -> object:
    """Returns embeddings of length one in OpenAI's form. base64 is little-endian float32."""
    single = isinstance(body.input, str) or bool(body.input and isinstance(body.input[0], int))
    inputs = Inputs([body.input], True, "input".format) if single else Inputs.of(body.input, "input", MOST_EMBEDDINGS)
    rows: Any = await compute_vectors(call, inputs, embedding_of(call, dimensions=body.dimensions))
    if body.encoding_format == "base64":
        rows = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in rows]
    data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)]
    usage = {"prompt_tokens": call.usage.tokens, "total_tokens": call.usage.tokens}
    return {"object": "list", "data": data, "model": call.model.name, "usage": usage}
