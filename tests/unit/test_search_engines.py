"""Other engines that keep an index: OpenSearch, as a small fake on loopback speaks it, and Qdrant, in its local mode.

The fake answers in the shapes of OpenSearch's documentation, and refuses a request that it does not know.
"""

import json
import math
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertie.apps.search import models
from bertie.apps.search.embedded import Embedded
from bertie.apps.search.engine import STORES, Index
from bertie.apps.search.evaluate import evaluate_stages
from bertie.apps.search.index import IndexConfig, drop_documents, index
from bertie.apps.search.models import Embedder
from bertie.apps.search.questions import SearchQuestion
from bertie.apps.search.remote import RemoteIndex, publish_index
from bertie.apps.search.searcher import Searcher
from bertie.errors import DataError, UsageError

TEXTS = {
    "rivers.txt": "The Nile is a river.\n\nThe Rhine flows through Basel and Cologne.",
    "sea.md": "# The sea\n\nTides rise twice a day. The moon pulls the water of the sea.",
    "lake.txt": "Lake Geneva has water of the Rhone. The river flows through the lake.",
    "세종.txt": "세종대왕은 훈민정음을 만들었다.\n\n한강은 서울을 흐른다.",
}
QUESTIONS = ("a river that flows", "the water of the sea", "한강이 흐르는 서울", "Basel")


def bag(embedder: object, texts: list[str], role: str = "") -> np.ndarray:
    """Vectors without a model: counts of letters."""
    found = np.array(
        [[text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz한강서울"] for text in texts]
    )
    return (found / np.maximum(np.linalg.norm(found, axis=-1, keepdims=True), 1e-9)).astype(np.float32)


LETTERS = Embedder("letters", "1", lambda: None)  # type: ignore[arg-type, return-value]


class Fake:
    """Indexes in memory, and the answers to the requests that Bertie sends."""

    def __init__(self) -> None:
        self.indexes: dict[str, dict[str, Any]] = {}

    def answer(self, method: str, path: str, lines: list[Any]) -> tuple[int, Any]:
        name, _, action = path.strip("/").partition("/")
        body = lines[0] if lines else {}
        if (method, action) == ("PUT", ""):
            assert body["mappings"]["properties"]["terms"] == {"type": "text", "analyzer": "whitespace"}
            assert body["settings"]["index"]["similarity"]["default"] == {"type": "BM25", "k1": 1.2, "b": 0.75}
            self.indexes[name] = {"mappings": body["mappings"], "docs": {}}
            return 200, {"acknowledged": True, "index": name}
        if name not in self.indexes:
            return 404, {"error": {"type": "index_not_found_exception", "reason": "no such index"}, "status": 404}
        own = self.indexes[name]
        match method, action:
            case "HEAD", "":
                return 200, None
            case "DELETE", "":
                del self.indexes[name]
                return 200, {"acknowledged": True}
            case "GET", "_mapping":
                return 200, {name: {"mappings": own["mappings"]}}
            case "PUT", "_mapping":
                own["mappings"].update(body)
                return 200, {"acknowledged": True}
            case "POST", "_refresh":
                return 200, {"_shards": {"failed": 0}}
            case "POST", "_bulk":
                return 200, {"errors": False, "items": [*self._bulk(own["docs"], iter(lines))]}
            case "POST", "_mget":
                found = [
                    {"_id": i, "found": i in own["docs"], "_source": kept(own["docs"].get(i))} for i in body["ids"]
                ]
                return 200, {"docs": found}
            case "POST", "_search":
                ranked = sorted(self._search(own["docs"], **body["query"]), key=lambda one: (-one[1], int(one[0])))
                if "sort" in body:
                    ranked.sort(key=lambda one: int(one[0]))
                hits = [{"_id": i, "_score": score, "_source": kept(own["docs"][i])} for i, score in ranked]
                return 200, {"timed_out": False, "hits": {"hits": hits[: body["size"]]}}
        raise AssertionError((method, path))

    @staticmethod
    def _bulk(docs: dict[str, Any], lines: Iterator[Any]) -> Iterator[Any]:
        for line in lines:
            ((action, about),) = line.items()
            docs[about["_id"]] = next(lines) if action == "index" else docs.pop(about["_id"])
            if action == "delete":
                del docs[about["_id"]]
            yield {action: {"_id": about["_id"], "status": 200}}

    @staticmethod
    def _search(docs: dict[str, Any], **query: Any) -> Iterator[tuple[str, float]]:
        ((kind, about),) = query.items()
        ((field, asked),) = about.items()
        counts = {i: Counter(doc["terms"].split()) for i, doc in docs.items()}
        mean = sum(count.total() for count in counts.values()) / max(1, len(docs))
        for i, doc in docs.items():
            if kind == "match":
                score = 0.0
                for term in asked["query"].split():
                    holds = sum(term in count for count in counts.values())
                    norm = 1.2 * (1 - 0.75 + 0.75 * counts[i].total() / mean)
                    idf = math.log(1 + (len(docs) - holds + 0.5) / (holds + 0.5))
                    score += idf * counts[i][term] / (counts[i][term] + norm)
                if score:
                    yield i, score
            elif kind == "knn":
                product = float(np.dot(doc[field], asked["vector"]))
                yield i, 1 + product if product >= 0 else 1 / (1 - product)
            elif (kind == "term" and doc[field] == asked) or (kind == "range" and doc[field] > asked["gt"]):
                yield i, 1.0


def kept(doc: dict[str, Any] | None) -> dict[str, Any] | None:
    return doc and {name: value for name, value in doc.items() if name not in ("terms", "vector")}


@pytest.fixture
def url() -> Iterator[str]:
    fake = Fake()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
            text = raw.decode()
            lines = (
                [json.loads(line) for line in text.splitlines() if line]
                if "bulk" in self.path
                else [json.loads(text or "{}")]
            )
            status, found = fake.answer(self.command, self.path.partition("?")[0], lines)
            out = b"" if self.command == "HEAD" else json.dumps(found).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(out)))
            self.end_headers()
            self.wfile.write(out)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = respond

        def log_message(self, *given: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(params=["opensearch", "qdrant"])
def engine(request: pytest.FixtureRequest, tmp_path: Path, url: str) -> tuple[str, str]:
    pytest.importorskip({"opensearch": "opensearchpy", "qdrant": "qdrant_client"}[request.param])
    return request.param, url if request.param == "opensearch" else str(tmp_path / "there")


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    for name, text in TEXTS.items():
        (tmp_path / "docs" / name).write_text(text, encoding="utf-8")
    return tmp_path / "docs"


def remote(folder: Path, engine: tuple[str, str]) -> RemoteIndex:
    found = STORES[engine[0]](folder, engine[1])
    assert isinstance(found, RemoteIndex)
    return found


def same(there: Index, folder: Path, question: str) -> None:
    """Compares all that the stages of a search ask for."""
    own, vector = Embedded(folder), bag(None, [question])[0]
    assert dict(there.nearest(vector, 50)) == pytest.approx(dict(own.nearest(vector, 50)), abs=1e-5)
    mine, theirs = (Searcher(one).search(question, 50) for one in (own, there))
    assert {hit.passage.id: (hit.passage, hit.snippet) for hit in theirs.hits} == {
        hit.passage.id: (hit.passage, hit.snippet) for hit in mine.hits
    }
    assert theirs.hits[0].passage == mine.hits[0].passage
    found = Searcher(there, embedder=object()).search(question, vector=vector)  # type: ignore[arg-type]
    assert set(found.rankings) == {"words", "vectors", "fused"}
    own.close()


def test_an_index_on_a_server_finds_what_the_folder_finds(
    docs: Path, tmp_path: Path, engine: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "embed_texts", bag)
    folder = tmp_path / "Notes"
    index([str(docs)], folder, IndexConfig(passage_words=6), embedder=LETTERS)
    there = remote(folder, engine)
    assert there.name == "notes"
    with pytest.raises(DataError, match="There is no index"):
        there.get("config")
    count = Embedded(folder).count("passages")
    assert publish_index(folder, there) == {"published": count, "removed": 0, "passages": count}
    for question in QUESTIONS:
        same(there, folder, question)
    (docs / "sea.md").write_text("Salt and waves of the sea.", encoding="utf-8")
    index([str(docs)], folder, embedder=LETTERS)
    drop_documents([str(docs / "lake.txt")], folder)
    done, left = publish_index(folder, there), Embedded(folder).count("passages")
    assert done["published"] - done["removed"] == left - count
    assert publish_index(folder, there) == {"published": 0, "removed": 0, "passages": left}
    for question in QUESTIONS:
        same(there, folder, question)
    own = Embedded(folder)
    ids = sorted(there.ids())
    assert there.passages_of(1) == own.passages_of(1)
    assert there.documents_by_passage(ids) == own.documents_by_passage(ids)
    text = "Salt and waves of the sea."
    assert there.documents_of(text) == own.documents_of(text) != []
    assert there.documents_named("nothing") == []
    asked = [SearchQuestion("waves", context=text), SearchQuestion("Nile", context=TEXTS["rivers.txt"])]
    assert evaluate_stages(Searcher(there), asked)["stages"]["words"]["mrr@10"] == 1
    there.close()


def test_a_copy_of_another_index_is_not_changed_unasked(docs: Path, tmp_path: Path, engine: tuple[str, str]) -> None:
    folder = tmp_path / "notes"
    index([str(docs / "lake.txt")], folder)
    there = remote(folder, engine)
    publish_index(folder, there)
    index([str(docs / "rivers.txt")], folder, overwrite=True)
    with pytest.raises(UsageError, match="copy of another index"):
        publish_index(folder, there)
    assert Searcher(there).search("Geneva").hits
    publish_index(folder, there, overwrite=True)
    assert not Searcher(there).search("Geneva").hits
    assert Searcher(there).search("Rhine").hits
    there.close()


def test_engines_on_the_command_line(docs: Path, tmp_path: Path, engine: tuple[str, str], bertie: Any) -> None:
    where = ("--store", engine[0], "--url", engine[1])
    code, out, _ = bertie("index", docs, "-o", tmp_path / "notes", *where)
    assert (code, "notes: 4 passages added, 0 removed" in out) == (0, True)
    shutil.rmtree(tmp_path / "notes")
    code, out, _ = bertie("search", "notes", "Geneva", "--json", *where)
    (hit,) = json.loads(out)["hits"]
    assert (hit["text"][slice(*hit["marks"][0])], hit["source"]) == ("Geneva", str(docs / "lake.txt"))
    code, _, err = bertie("search", "others", "Geneva", *where)
    assert (code, "There is no index" in err) == (3, True)
    if engine[0] == "qdrant":
        typo = str(tmp_path / "typo")
        assert bertie("search", "notes", "Geneva", "--store", "qdrant", "--url", typo)[0] == 3
        assert not Path(typo).exists()
    code, _, err = bertie("search", "notes", "Geneva", "--store", engine[0])
    assert (code, "Pass --url" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--store", "elastic", "--url", "http://127.0.0.1:9"), 2, "Unknown store of an index 'elastic'"),
        (("--store", "opensearch", "--url", "http://127.0.0.1:9"), 3, "did not answer"),
        (("--store", "opensearch", "--url", "127.0.0.1:none"), 3, "did not answer"),
        (("--store", "qdrant", "--url", "http://127.0.0.1:9"), 3, "did not answer"),
        (("--url", "http://127.0.0.1:9"), 2, "Pass --store opensearch or --store qdrant"),
    ],
)
def test_a_server_that_does_not_answer(
    docs: Path, tmp_path: Path, bertie: Any, words: tuple[str, ...], code: int, told: str
) -> None:
    pytest.importorskip("opensearchpy")
    pytest.importorskip("qdrant_client")
    for call in (("search", "notes", "Nile"), ("index", docs, "-o", tmp_path / "notes")):
        found = bertie(*call, *words)
        assert (found[0], told in " ".join(found[2].split())) == (code, True), found
    assert not (tmp_path / "notes").exists(), "nothing is made where it cannot be published"
