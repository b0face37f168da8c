"""Qdrant as the engine of an index: vectors, and words as sparse vectors with BM25's weights.

    a passage      {term: tf (k1 + 1) / (tf + k1 (1 - b + b length / mean length))}
    a question     {term: times}, times the idf that the server keeps

The mean length is that of the first publication. A term is the number that xxh32 gives it. `url` is the address of a
server of version 1.16 or later, or a folder: then the client itself is the engine, in this process alone.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import xxhash

from bertie.apps.search.engine import Float, RankedPassages
from bertie.apps.search.remote import MEAN, RemoteIndex, RemotePassage
from bertie.platform import UsageError

K1, B = 1.2, 0.75
WORDS, NEAR = "words", "vector"
_MAX_POINTS = 10_000  # points in one answer


class Qdrant(RemoteIndex):
    """A collection of a Qdrant server, e.g. url="http://localhost:6333", or of a local folder."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, url)
        try:
            import qdrant_client
        except ImportError:
            raise UsageError('Qdrant needs the package qdrant-client. Run: pip install "bertie[qdrant]"') from None
        from qdrant_client.http.exceptions import ApiException

        self.failures = (ApiException, RuntimeError, ValueError, OSError)
        self.models = qdrant_client.models
        self.local = "://" not in url
        self._open = qdrant_client.QdrantClient

    @cached_property
    def client(self) -> Any:
        """The client, which makes a local folder."""
        if self.local:
            return self.called(self._open, path=self.url)
        return self.called(self._open, url=self.url, timeout=60, check_compatibility=False)

    def matches(self, terms: Sequence[str], top: int) -> RankedPassages:
        """Returns the best passages with any of the terms, by BM25 with k1 1.2 and b 0.75."""
        weights = Counter(map(_number, terms))
        query = self.models.SparseVector(indices=[*weights], values=[*map(float, weights.values())])
        return self._best(query, WORDS, top) if weights else []

    def nearest(self, vector: Float, top: int) -> RankedPassages:
        """Returns the passages with the nearest vectors. (H,)"""
        return self._best(vector.tolist(), NEAR, top)

    def _best(self, query: object, using: str, top: int) -> RankedPassages:
        query_options = {"query": query, "using": using, "limit": top, "with_payload": False}
        reply = self.called(self.client.query_points, self.name, **query_options)
        return [(int(point.id), float(point.score)) for point in reply.points]

    def close(self) -> None:
        """Ends the connection."""
        self.client.close()

    def settings(self) -> dict[str, Any] | None:
        """Returns the settings of the collection; None where there is no such collection."""
        if self.local and not Path(self.url).is_dir():
            return None
        if not self.called(self.client.collection_exists, self.name):
            return None
        metadata: dict[str, Any] = self.called(self.client.get_collection, self.name).config.metadata or {}
        return metadata

    def store_settings(self, settings: dict[str, object]) -> None:
        """Replaces the settings."""
        self.called(self.client.update_collection, self.name, metadata=settings)

    def create(self, settings: dict[str, object], width: int | None) -> None:
        """Makes an empty collection. width: of its vectors, None without."""
        models = self.models
        near = {NEAR: models.VectorParams(size=width, distance=models.Distance.DOT)} if width else {}
        words = {WORDS: models.SparseVectorParams(modifier=models.Modifier.IDF)}
        kinds = {"vectors_config": near, "sparse_vectors_config": words}
        self.called(self.client.create_collection, self.name, metadata=settings, **kinds)
        if not self.local:  # the local engine has no indexes of fields
            for field, kind in (("name", "keyword"), ("hash", "keyword"), ("document", "integer")):
                self.called(self.client.create_payload_index, self.name, field, kind)

    def delete(self) -> None:
        """Deletes the collection."""
        self.called(self.client.delete_collection, self.name)

    def ids(self) -> set[int]:
        """Returns the passages that the collection has."""
        return {int(point.id) for point in self._all(None, payload=False)}

    def fields(self, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Returns the payload of passages."""
        points = self.called(self.client.retrieve, self.name, [*ids]) if ids else ()
        return {int(point.id): point.payload for point in points}

    def rows(self, field: str, value: Any) -> list[dict[str, Any]]:
        """Returns the payloads with this value of a field."""
        models = self.models
        condition = models.FieldCondition(key=field, match=models.MatchValue(value=value))
        return [point.payload for point in self._all(models.Filter(must=[condition]), payload=True)]

    def _all(self, condition: object, *, payload: bool) -> list[Any]:
        result, after = list[object](), None
        while True:
            request = {"scroll_filter": condition, "limit": _MAX_POINTS, "offset": after, "with_payload": payload}
            points, after = self.called(self.client.scroll, self.name, **request)
            result += points
            if after is None:
                return result

    def add(self, rows: Sequence[RemotePassage]) -> None:
        """Adds passages."""
        points = [
            self.models.PointStruct(id=row.passage.id, payload=row.payload(), vector=self._vectors(row)) for row in rows
        ]
        self.called(self.client.upsert, self.name, points, wait=True)

    def _vectors(self, row: RemotePassage) -> dict[str, object]:
        mean = float(self.get(MEAN) or 1)
        norm = K1 * (1 - B + B * len(row.terms) / mean)
        weights = {term: times * (K1 + 1) / (times + norm) for term, times in Counter(map(_number, row.terms)).items()}
        words = {WORDS: self.models.SparseVector(indices=[*weights], values=[*weights.values()])}
        return words if row.vector is None else {**words, NEAR: row.vector.tolist()}

    def remove(self, ids: Sequence[int]) -> None:
        """Removes passages."""
        self.called(self.client.delete, self.name, self.models.PointIdsList(points=[*ids]), wait=True)

    def settle(self) -> None:
        """Nothing to wait for: each request waits."""


def _number(term: str) -> int:
    return xxhash.xxh32_intdigest(term.encode())
