"""The web page: static files of this package, with a policy that only allows its own scripts."""

from importlib.resources import files

from fastapi import FastAPI
from fastapi.responses import Response

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
FOLDER = files("bertie.apps.serve") / "static"


def add_page(app: FastAPI) -> None:
    """Adds / and its files."""
    found = {entry.name: entry.read_bytes() for entry in FOLDER.iterdir() if entry.is_file()} if FOLDER.is_dir() else {}
    headers = {"content-security-policy": POLICY, "cache-control": "no-cache"}

    def response(name: str) -> Response:
        if name not in found:
            return Response(status_code=404)
        kind = KINDS[name[name.rindex(".") :]]
        return Response(found[name], media_type=f"{kind}; charset=utf-8", headers=headers)

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return response("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        return response(name)
