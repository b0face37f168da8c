"""Usual servers that Bertie's is compared with: python -m benchmarks.serve_peers PATH FOLDER PORT

One model, one process, one request at a time in a thread of FastAPI's, no batches.
"""

import sys
from typing import Any


def main(path: str, folder: str, port: str) -> None:
    """Serve until the process is ended."""
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    class Body(BaseModel):
        inputs: str

    app = FastAPI()
    answer = pipeline(folder) if path == "/predict" else encoder(folder)

    @app.post(path)
    def predict(body: Body) -> Any:
        return answer(body.inputs)

    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="critical")


def pipeline(folder: str) -> Any:
    """Labels of a text by transformers."""
    import transformers

    found = transformers.pipeline("text-classification", model=folder, top_k=None, truncation=True)
    return lambda text: found(text)


def encoder(folder: str) -> Any:
    """The vector of a text by sentence-transformers."""
    import sentence_transformers

    found = sentence_transformers.SentenceTransformer(folder, device="cpu")
    return lambda text: [found.encode(text, normalize_embeddings=True).tolist()]


if __name__ == "__main__":
    main(*sys.argv[1:])
