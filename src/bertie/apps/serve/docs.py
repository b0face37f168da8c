"""The addresses of the server, and what /openapi.json and /docs say of them, without resources from other machines.

With the package fastapi-offline its copy of Swagger UI is shown; without it, a plain page of our own.
"""

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from bertie.apps.serve.errors import STATUS_CODES, Refusal

JSON = "application/json"
ERRORS = {status: kind for kind, status in STATUS_CODES.items() if kind != "Tokenizer"}
ERROR_SCHEMA = {
    "type": "object",
    "properties": {"error": {}, "error_type": {"type": "string"}},
    "required": ["error"],
}
ASSETS = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'"
)
SWAGGER = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Bertie: routes</title>
<link rel="icon" href="/page/icon.svg">
<link rel="stylesheet" href="/docs/swagger-ui.css"></head><body><div id="ui"></div>
<script src="/docs/swagger-ui-bundle.js"></script><script src="/docs/begin.js"></script></body></html>
"""
_BEGIN = 'SwaggerUIBundle({url: "/openapi.json", dom_id: "#ui", deepLinking: true});\n'


@dataclass(frozen=True)
class Operation:
    """What /docs says of an address.

    errors: statuses other than 200. content: the types of an answer. parameters: each by the place that it has, path or
    query. body: of a request, with an example.
    """

    tag: str
    summary: str
    errors: Iterable[int] = ()
    content: tuple[str, ...] = (JSON,)
    parameters: tuple[tuple[str, str], ...] = ()
    body: type[BaseModel] | None = None
    example: object = None

    def as_json(self, name: str, schema: object = None) -> dict[str, Any]:
        """Returns it in the form of OpenAPI. schema: of the body."""
        answers = {kind: {"schema": {} if kind == JSON else {"type": "string"}} for kind in self.content}
        error = {JSON: {"schema": ERROR_SCHEMA}}
        record: dict[str, object] = {
            "tags": [self.tag],
            "summary": self.summary,
            "operationId": name,
            "responses": {200: {"description": "The answer.", **({"content": answers} if answers else {})}}
            | {status: {"description": ERRORS[status], "content": error} for status in self.errors},
        }
        if self.parameters:
            record["parameters"] = [
                {"name": one, "in": place, "required": place == "path", "schema": {"type": "string"}}
                for place, one in self.parameters
            ]
        if self.body is not None:
            example = {} if self.example is None else {"example": self.example}
            record["requestBody"] = {"required": True, "content": {JSON: {"schema": schema, **example}}}
        return record


class Address(Route):
    """An address with one method. operation: what /docs says of it; None: nothing."""

    def __init__(
        self,
        path: str,
        work: Callable[[Request], Awaitable[Response]],
        operation: Operation | None = None,
        *,
        method: str = "GET",
    ) -> None:
        super().__init__(path, work, methods=[method])
        self.work, self.method, self.operation = work, method.lower(), operation

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Returns whether it is the address of a request. Most are compared, which takes less than a pattern."""
        if not self.param_convertors and scope["path"] != self.path:
            return Match.NONE, {}
        return super().matches(scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI. Raises Refusal for another method, and as its work does: the guard answers all of them."""
        methods = self.methods or ()
        if scope["method"] not in methods:
            allowed = {"Allow": ", ".join(sorted(methods))}
            raise Refusal("Validation", "Another method is expected here.", status=405, headers=allowed)
        response = await self.work(Request(scope, receive))
        await response(scope, receive, send)


def openapi(addresses: Iterable[Address], version: str) -> dict[str, object]:
    """Returns the description of the addresses in the form of OpenAPI."""
    every = [(one.path_format, one.method, one.operation) for one in addresses if one.operation]
    bodies = dict.fromkeys(one.body for _, _, one in every if one.body)
    schemas, definitions = models_json_schema(
        [(body, "validation") for body in bodies], ref_template="#/components/schemas/{model}"
    )
    paths = {}
    for path, method, one in every:
        name = re.sub(r"\W+", "_", path).strip("_") or "pipeline"
        paths[path] = {method: one.as_json(name, one.body and schemas[one.body, "validation"])}
    components = {"schemas": definitions["$defs"]}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Bertie", "version": version},
        "paths": paths,
        "components": components,
    }


def assets() -> Path | None:
    """Returns the folder of Swagger UI's files, if it is installed."""
    spec = find_spec("fastapi_offline")
    folder = Path(spec.origin).parent / "static" if spec and spec.origin else None
    return folder if folder and all((folder / name).is_file() for name in ASSETS) else None


@cache
def content(path: Path) -> bytes:
    """Returns the bytes of a file, so that a slow client holds no descriptor."""
    return path.read_bytes()


def docs_addresses(addresses: Iterable[Address], version: str) -> list[Address]:
    """Returns /docs and its files. addresses: those that are described."""
    folder, headers, described = assets(), {"content-security-policy": _POLICY}, tuple(addresses)

    @cache
    def description() -> bytes:
        return orjson.dumps(openapi(described, version), option=orjson.OPT_NON_STR_KEYS)

    async def schema(request: Request) -> Response:
        return Response(description(), media_type=JSON)

    async def docs(request: Request) -> Response:
        return HTMLResponse(SWAGGER if folder else render_routes_table(orjson.loads(description())), headers=headers)

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name == "begin.js":
            return Response(_BEGIN, media_type="text/javascript")
        if folder is None or name not in ASSETS:
            return Response(status_code=404)
        return Response(content(folder / name), media_type=ASSETS[name])

    return [Address("/openapi.json", schema), Address("/docs", docs), Address("/docs/{name}", file)]


def render_routes_table(schema: dict[str, Any]) -> str:
    """Returns the routes as a table."""
    rows = []
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            example = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example", "")
            cells = (f"{method.upper()} {path}", operation.get("summary", ""), example)
            rows.append("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + "</tr>")
    head = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Bertie: routes</title></head><body>'
    more = '<p>The whole description: <a href="/openapi.json">openapi.json</a>.</p>'
    table = "<table><tr><th>Route</th><th>Answer</th><th>Example of a body</th></tr>" + "".join(rows) + "</table>"
    return f"{head}<h1>Routes</h1>{more}{table}</body></html>"
