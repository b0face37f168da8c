"""Errors for clients: a status, a kind and one sentence."""

from asyncio import CancelledError
from dataclasses import dataclass, field
from typing import Any

from bertie.platform import BertieError

STATUS = {
    "Empty": 400,
    "Unauthorized": 401,
    "NotFound": 404,
    "TooLarge": 413,
    "UnsupportedMedia": 415,
    "Validation": 422,
    "Tokenizer": 422,
    "Backend": 424,
    "Overloaded": 429,
    "Unhealthy": 503,
}
"""By the names that Text Embeddings Inference uses, where it has one."""
ENDS = (CancelledError, KeyboardInterrupt, SystemExit)
"""What ends a request or the server. Any other exception is an error, also a panic of Rust, which is no Exception."""
DEFECT = "The server failed to answer this request."


@dataclass
class Refusal(Exception):
    """An error instead of an answer. kind: a key of STATUS; status: overrides the usual one; param: the field."""

    kind: str
    message: str
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    param: str | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        self.status = self.status or STATUS[self.kind]

    def body(self, path: str) -> dict[str, Any]:
        """The JSON of the answer: nested under /v1, as OpenAI's clients expect it."""
        if path.startswith("/v1/"):
            kind = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}.get(self.status)
            usual = "server_error" if self.status >= 500 else "invalid_request_error"
            return {"error": {"message": self.message, "type": kind or usual, "param": self.param, "code": self.kind}}
        return {"error": self.message, "error_type": self.kind}


def invalid(error: BertieError) -> Refusal:
    """Returns an error of the library for a client, who has no options of a command."""
    return Refusal("Validation", error.message)
