"""A Hugging Face Hub of one process on loopback: repositories in memory, LFS files by their SHA-256."""

import json
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha1, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

LARGE = (".safetensors", ".bin", ".onnx")
TOKEN = "hf_right"


@dataclass
class Hub:
    """repositories: name -> file -> bytes; all at one commit. breaks: file -> bytes after which it is cut off, once."""

    address: str
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    breaks: dict[str, int] = field(default_factory=dict)
    lies: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str, str]] = field(default_factory=list)

    def commit(self, name: str) -> str:
        return sha1(repr(sorted(self.repositories[name].items())).encode()).hexdigest()


@contextmanager
def running() -> Iterator[Hub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.hub = Hub(f"http://127.0.0.1:{server.server_address[1]}")  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server.hub  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def hub(self) -> Hub:
        return self.server.hub  # type: ignore[attr-defined]

    def log_message(self, *_):
        pass

    def answer(self, body: bytes | object, status: int = 200, headers: dict | None = None, length: int | None = None):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": length if length is not None else len(data), **(headers or {})}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def missing(self, code: str = "RepoNotFound", status: int = 404):
        self.answer({"error": code}, status, {"X-Error-Code": code, "X-Error-Message": code})

    def do_GET(self):
        path = urlsplit(self.path).path.strip("/")
        self.hub.requests.append((self.command, path, self.headers.get("Range", "")))
        if path.startswith("api/models/"):
            name, _, revision = path.removeprefix("api/models/").partition("/revision/")
            if name == "gated/model":
                return self.missing("GatedRepo", 403)
            if name not in self.hub.repositories:
                return self.missing()
            if revision not in ("", "main", "v1", self.hub.commit(name)):
                return self.missing("RevisionNotFound")
            files = self.hub.repositories[name]
            self.answer(
                {"id": name, "sha": self.hub.commit(name), "siblings": [sibling(*item) for item in files.items()]}
            )
        elif "/resolve/" in path:
            name, _, rest = path.partition("/resolve/")
            commit, _, file = rest.partition("/")
            data = self.hub.repositories[name].get(file)
            if data is None or commit != self.hub.commit(name):
                return self.missing("EntryNotFound")
            self.send_file(file, data)
        else:
            self.missing("EntryNotFound")

    do_HEAD = do_GET

    def send_file(self, file: str, data: bytes):
        headers = {"X-Repo-Commit": "", "ETag": f'"{digest(file, data)}"', "Accept-Ranges": "bytes"}
        headers["X-Repo-Commit"] = self.path.split("/resolve/")[1].split("/")[0]
        data = self.hub.lies.get(file, data)
        first = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        rest = data[first:]
        status = 206 if self.headers.get("Range") else 200
        if status == 206:
            headers["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
        if self.command == "GET" and file in self.hub.breaks:  # the connection ends in the middle
            self.answer(rest[: self.hub.breaks.pop(file)], status, headers, len(rest))
            self.close_connection = True
            return
        self.answer(rest, status, headers)

    def do_POST(self):
        path = urlsplit(self.path).path.strip("/")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.hub.requests.append((self.command, path, ""))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.answer({"error": "Invalid credentials"}, 401)
        if path == "api/validate-yaml":
            self.answer({"errors": [], "warnings": []})
        elif path == "api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            self.hub.repositories.setdefault(name, {})
            self.answer({"url": f"{self.hub.address}/{name}", "name": name, "id": name})
        elif "/preupload/" in path:
            files = json.loads(body)["files"]
            modes = [
                {"path": f["path"], "uploadMode": "lfs" if f["path"].endswith(LARGE) else "regular"} for f in files
            ]
            self.answer({"files": [{**mode, "shouldIgnore": False} for mode in modes]})
        elif path.endswith("info/lfs/objects/batch"):
            objects = json.loads(body)["objects"]
            upload = lambda oid: {"upload": {"href": f"{self.hub.address}/blobs/{oid}", "header": {}}}  # noqa: E731
            self.answer({"transfer": "basic", "objects": [{**o, "actions": upload(o["oid"])} for o in objects]})
        elif "/commit/" in path:
            name = path.removeprefix("api/models/").partition("/commit/")[0]
            for line in map(json.loads, body.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    self.hub.repositories[name][value["path"]] = b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    self.hub.repositories[name][value["path"]] = self.hub.blobs[value["oid"]]
            address = f"{self.hub.address}/{name}/commit/{self.hub.commit(name)}"
            self.answer({"success": True, "commitUrl": address, "commitOid": self.hub.commit(name)})
        else:
            self.missing("EntryNotFound")

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.hub.requests.append((self.command, self.path, ""))
        self.hub.blobs[sha256(body).hexdigest()] = body
        self.answer(b"", 200, {"ETag": "x"})


def digest(file: str, data: bytes) -> str:
    return sha256(data).hexdigest() if file.endswith(LARGE) else sha1(b"blob %d\0" % len(data) + data).hexdigest()


def sibling(file: str, data: bytes) -> dict:
    known = {"rfilename": file, "size": len(data), "blobId": sha1(data).hexdigest()}
    if file.endswith(LARGE):
        known["lfs"] = {"sha256": sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
    return known
