"""OpenSearch as the engine of an index: BM25 over the same terms, and its nearest neighbors over the same vectors.

    POST /NAME/_search {"query": {"match": {"terms": {"query": "river flow"}}}}
    POST /NAME/_search {"query": {"knn": {"vector": {"vector": [...], "k": 100}}}}

The terms are already cut, so the analyzer splits at white space alone. The requests are as OpenSearch documents them
for version 2.13 and later.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertie.apps.search.engine import Float, RankedPassages
from bertie.apps.search.remote import RemoteIndex, RemotePassage
from bertie.apps.search.store import MAX_TERMS
from bertie.platform import DataError, UsageError

META = "bertie"
_MAX_HITS = 10_000  # hits in one answer: the server's default limit
_KEPT = {"type": "keyword", "index": False, "doc_values": False}  # stored, not searched
_KEYWORD = {"type": "keyword", "ignore_above": 8191}
_KINDS = {
    "id document start line number page": {"type": "integer"},
    "source name hash": _KEYWORD,
    "text title": _KEPT,
    "terms": {"type": "text", "analyzer": "whitespace"},
}
_FIELDS = {name: kind for names, kind in _KINDS.items() for name in names.split()}
_NEIGHBORS = {"name": "hnsw", "engine": "lucene", "space_type": "innerproduct"}


class OpenSearch(RemoteIndex):
    """An index of an OpenSearch server, e.g. url="http://localhost:9200" or "https://user:password@host:9200"."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, url)
        try:
            import opensearchpy
        except ImportError:
            raise UsageError(
                'OpenSearch needs the package opensearch-py. Run: pip install "bertie[opensearch]"'
            ) from None
        self.failures = (opensearchpy.exceptions.OpenSearchException, ValueError)
        self.client: Any = self.called(opensearchpy.OpenSearch, hosts=[url], timeout=60)

    def matches(self, terms: Sequence[str], top: int) -> RankedPassages:
        """Returns the best passages with any of the terms, by BM25 with k1 1.2 and b 0.75."""
        query = " ".join(terms[: 16 * MAX_TERMS])  # the server allows 1,024 clauses
        return self._best({"match": {"terms": {"query": query}}}, top) if query else []

    def nearest(self, vector: Float, top: int) -> RankedPassages:
        """Returns the passages with the nearest vectors, as the server's approximate index finds them. (H,)

        The server's score of a product p is 1 + p, or 1 / (1 - p) below 0.
        """
        hits = self._best({"knn": {"vector": {"vector": vector.tolist(), "k": top}}}, top)
        return [(passage, score - 1 if score >= 1 else 1 - 1 / score) for passage, score in hits]

    def _best(self, query: dict[str, object], top: int) -> RankedPassages:
        body = {"query": query, "size": min(top, _MAX_HITS), "_source": False}
        answer = self.called(self.client.search, index=self.name, body=body)
        return [(int(hit["_id"]), float(hit["_score"])) for hit in answer["hits"]["hits"]]

    def close(self) -> None:
        """Ends the connection."""
        self.client.close()

    def settings(self) -> dict[str, Any] | None:
        """Returns the settings of the index; None where there is no such index."""
        if not self.called(self.client.indices.exists, index=self.name):
            return None
        reply = self.called(self.client.indices.get_mapping, index=self.name)
        meta: dict[str, Any] = next(iter(reply.values()))["mappings"].get("_meta", {}).get(META, {})
        return meta

    def store_settings(self, settings: dict[str, object]) -> None:
        """Replaces the settings, which are kept with the mapping."""
        self.called(self.client.indices.put_mapping, index=self.name, body={"_meta": {META: settings}})

    def create(self, settings: dict[str, object], width: int | None) -> None:
        """Makes an empty index. width: of its vectors, None without."""
        near = {"vector": {"type": "knn_vector", "dimension": width, "method": _NEIGHBORS}} if width else {}
        body = {
            "settings": {
                "index": {"knn": bool(width), "similarity": {"default": {"type": "BM25", "k1": 1.2, "b": 0.75}}}
            },
            "mappings": {
                "_meta": {META: settings},
                "_source": {"excludes": ["terms", "vector"]},
                "dynamic": False,
                "properties": {**_FIELDS, **near},
            },
        }
        self.called(self.client.indices.create, index=self.name, body=body)

    def delete(self) -> None:
        """Deletes the index."""
        self.called(self.client.indices.delete, index=self.name)

    def ids(self) -> set[int]:
        """Returns the passages that the index has, asked for in the order of their numbers."""
        numbers, after = set[int](), -1
        while True:
            body = {
                "query": {"range": {"id": {"gt": after}}},
                "sort": [{"id": "asc"}],
                "size": _MAX_HITS,
                "_source": False,
            }
            hits = self.called(self.client.search, index=self.name, body=body)["hits"]["hits"]
            if not hits:
                return numbers
            after = int(hits[-1]["_id"])
            numbers |= {int(hit["_id"]) for hit in hits}

    def fields(self, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Returns the payload of passages."""
        if not ids:
            return {}
        body = {"ids": [str(i) for i in ids]}
        reply = self.called(self.client.mget, index=self.name, body=body)
        return {int(one["_id"]): one["_source"] for one in reply["docs"] if one.get("found")}

    def rows(self, field: str, value: Any) -> list[dict[str, Any]]:
        """Returns the payloads with this value of a field."""
        body = {"query": {"term": {field: value}}, "size": _MAX_HITS}
        reply = self.called(self.client.search, index=self.name, body=body)
        return [hit["_source"] for hit in reply["hits"]["hits"]]

    def add(self, rows: Sequence[RemotePassage]) -> None:
        """Adds passages."""
        lines: list[dict[str, Any]] = []
        for row in rows:
            vector = {} if row.vector is None else {"vector": row.vector.tolist()}
            lines.append({"index": {"_id": str(row.passage.id)}})
            lines.append({**row.payload(), "terms": " ".join(row.terms), **vector})
        self._bulk(lines)

    def remove(self, ids: Sequence[int]) -> None:
        """Removes passages."""
        self._bulk([{"delete": {"_id": str(i)}} for i in ids])

    def settle(self) -> None:
        """Waits until searches see what was added."""
        self.called(self.client.indices.refresh, index=self.name)

    def _bulk(self, lines: list[dict[str, object]]) -> None:
        reply = self.called(self.client.bulk, index=self.name, body=lines)
        for item in reply["items"] if reply.get("errors") else ():
            (one,) = item.values()
            if "error" in one:
                raise DataError(f"{self.where} refused a passage: {one['error'].get('reason', one['error'])}")
