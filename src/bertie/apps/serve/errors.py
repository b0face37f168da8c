"""Errors for clients: a status, a kind and one sentence."""

from asyncio import CancelledError
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, from_json

from bertie.platform import BertieError

STATUS_CODES = {
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
    """An error instead of an answer. kind: a key of STATUS; status: overrides the usual one; param: the field.

    code: of an error of the library (bertie.errors), or one that means the same to a client.
    """

    kind: str
    message: str
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    param: str | None = None
    reason: str = ""
    code: str = ""

    def __post_init__(self) -> None:
        self.status = self.status or STATUS_CODES[self.kind]

    def __str__(self) -> str:
        return self.message

    def body(self, path: str) -> dict[str, Any]:
        """The JSON of the answer: nested under /v1, as OpenAI's clients expect it."""
        if path.startswith("/v1/"):
            kind = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}.get(self.status)
            usual = "server_error" if self.status >= 500 else "invalid_request_error"
            return {
                "error": {
                    "message": self.message,
                    "type": kind or usual,
                    "param": self.param,
                    "code": self.code or self.kind,
                }
            }
        return {"error": self.message, "error_type": self.kind, **({"code": self.code} if self.code else {})}


class Refused(Refusal):
    """A budget is spent. reason: which one; retry_after_s: when to try again."""

    def __init__(self, reason: str, message: str, retry_after_s: float) -> None:
        headers = {"Retry-After": f"{retry_after_s:.0f}"}
        super().__init__("Overloaded", message, headers=headers, reason=reason)
        self.retry_after_s = retry_after_s


def refusal_of(error: Refusal | BertieError) -> Refusal:
    """Returns an error for a client, who has no options of a command."""
    return error if isinstance(error, Refusal) else Refusal("Validation", error.message, code=error.code)


def read_body(adapter: TypeAdapter[Any], content: bytes) -> Any:
    """Returns a body. Raises Refusal for another form, without its content."""
    try:
        return adapter.validate_json(content)
    except ValidationError as error:
        raise describe_invalid_body(error, content) from None


def describe_invalid_body(error: ValidationError, content: bytes) -> Refusal:
    """Returns what is wrong with a body, without its content.

    Where a value may have several forms, each has an error: that of the form that fits furthest is told.
    """
    errors = error.errors(include_input=False, include_url=False, include_context=False)
    body = None if errors[0]["type"] == "json_invalid" else from_json(content)
    places = [place_of(one, body) for one in errors]

    def fits(number: int) -> tuple[list[int], bool]:
        indices = [part if isinstance(part, int) else 0 for part in places[number]]
        return indices, not errors[number]["type"].endswith("_type")

    best = max(range(len(errors)), key=fits)
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in places[best]).lstrip(".")
    return Refusal("Validation", f"{where or 'The body'}: {errors[best]['msg']}."[:300], param=where or None)


def place_of(error: ErrorDetails, value: Any) -> list[str | int]:
    """Returns the keys and indices that lead to an error; pydantic's place has the names of types between them."""
    parts = list[str | int]()
    for part in error["loc"]:
        if part in value if isinstance(value, dict) else isinstance(value, list) and isinstance(part, int):
            value = value[part]
            parts.append(part)
    return [*parts, error["loc"][-1]] if error["type"] == "missing" else parts
