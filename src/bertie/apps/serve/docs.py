"""/docs and /openapi.json: the routes, without resources from other machines.

With the package fastapi-offline its copy of Swagger UI is shown; without it, a plain page of our own.
"""

from functools import cache
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson
from fastapi import FastAPI
from fastapi.responses import HTMLResponse, Response

ASSETS = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'"
)
SWAGGER = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Bertie: routes</title>
<link rel="icon" href="/page/icon.svg">
<link rel="stylesheet" href="/docs/swagger-ui.css"></head><body><div id="ui"></div>
<script src="/docs/swagger-ui-bundle.js"></script><script src="/docs/begin.js"></script></body></html>
"""
BEGIN = 'SwaggerUIBundle({url: "/openapi.json", dom_id: "#ui", deepLinking: true});\n'


def assets() -> Path | None:
    """Returns the folder of Swagger UI's files, if it is installed."""
    found = find_spec("fastapi_offline")
    folder = Path(found.origin).parent / "static" if found and found.origin else None
    return folder if folder and all((folder / name).is_file() for name in ASSETS) else None


@cache
def content(path: Path) -> bytes:
    """Returns the bytes of a file, so that a slow client holds no descriptor."""
    return path.read_bytes()


def add_docs(app: FastAPI) -> None:
    """Adds /docs and its files."""
    folder, headers = assets(), {"content-security-policy": POLICY}

    @cache
    def schema() -> bytes:
        return orjson.dumps(app.openapi())

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return Response(schema(), media_type="application/json")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(SWAGGER if folder else plain(app.openapi()), headers=headers)

    @app.get("/docs/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        if name == "begin.js":
            return Response(BEGIN, media_type="text/javascript")
        if folder is None or name not in ASSETS:
            return Response(status_code=404)
        return Response(content(folder / name), media_type=ASSETS[name])


def plain(schema: dict[str, Any]) -> str:
    """Returns the routes as a table."""
    rows = []
    for path, methods in schema["paths"].items():
        for method, told in methods.items():
            example = told.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example", "")
            cells = (f"{method.upper()} {path}", told.get("summary", ""), example)
            rows.append("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + "</tr>")
    head = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Bertie: routes</title></head><body>'
    more = '<p>The whole description: <a href="/openapi.json">openapi.json</a>.</p>'
    table = "<table><tr><th>Route</th><th>Answer</th><th>Example of a body</th></tr>" + "".join(rows) + "</table>"
    return f"{head}<h1>Routes</h1>{more}{table}</body></html>"
