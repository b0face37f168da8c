"""The web page: static files of this package, with a policy that only allows its own scripts."""

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from bertie.apps.serve.docs import Address

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_CONTENT_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
FOLDER = files("bertie.apps.serve") / "static"


def page_addresses() -> list[Address]:
    """Returns / and its files."""
    contents = (
        {entry.name: entry.read_bytes() for entry in FOLDER.iterdir() if entry.is_file()} if FOLDER.is_dir() else {}
    )
    headers = {"content-security-policy": _POLICY, "cache-control": "no-cache"}

    async def file(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in contents:
            return Response(status_code=404)
        kind = _CONTENT_TYPES[name[name.rindex(".") :]]
        return Response(contents[name], media_type=f"{kind}; charset=utf-8", headers=headers)

    return [Address("/", file), Address("/page/{name}", file)]
