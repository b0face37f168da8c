"""The library's own index in a folder: words in SQLite, and vectors in files.

Vectors are searched exactly, or by a graph of neighbors where the index has one.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertie.apps.search import neighbors
from bertie.apps.search.engine import Float, RankedPassages
from bertie.apps.search.store import Store
from bertie.apps.search.vectors import VectorFile, find_nearest_rows
from bertie.platform import UsageError

_EXTRA_ROWS = 1000  # rows of removed passages that a search looks past at first


class Embedded(Store):
    """An open index of a folder, as the stages of a search need it. Raises DataError for a folder that is none."""

    def __init__(self, folder: Path, *, write: bool = False) -> None:
        super().__init__(folder, write=write)
        self._files: dict[str, VectorFile] = {}
        self._graphs: dict[str, object] = {}
        self.exact = False  # whether every vector is compared, also where there is a graph

    @property
    def where(self) -> str:
        """The folder."""
        return str(self.folder)

    def nearest(self, vector: Float, top: int) -> RankedPassages:
        """Returns the passages whose vectors have the highest products with this one. (H,)"""
        files = self.files()
        gone = max(0, sum(len(file.ids) for file in files) - self.count_of_passages())
        graph = None if self.exact else self.get("neighbors")
        more = min(gone, _EXTRA_ROWS)
        while True:
            if graph is None:
                rows = find_nearest_rows(files, vector[None], top + more)[0]
            else:
                rows = neighbors.find_near_passages(
                    self._graph(graph["file"]), graph["last"], files, vector, top + more
                )
            known = self.known([i for i, _ in rows]) if gone else None
            living = [one for one in rows if known is None or one[0] in known][:top]
            if len(living) == top or more == gone:
                return living
            more = min(gone, 10 * more)

    def files(self) -> list[VectorFile]:
        """Returns the files of vectors that the index lists now."""
        names = [row[0] for row in self.db.execute("SELECT file FROM vectors ORDER BY file")]
        self._files = {name: self._files.get(name) or VectorFile.open(self.folder / name) for name in names}
        return [*self._files.values()]

    def _graph(self, name: str) -> Any:
        if name not in self._graphs:
            self._graphs = {name: neighbors.open_graph(self.folder / name)}
        return self._graphs[name]

    def connect(self, how: neighbors.VectorSearch) -> None:
        """Makes the graph of neighbors, brings it up to date, or forgets it, as part of a change."""
        old, files = self.get("neighbors"), [file for file in self.files() if len(file.ids)]
        rows = sum(len(file.ids) for file in files)
        if not (rows and neighbors.needs_graph(how, rows, old is not None)):
            self.put("neighbors", None)
            return
        last, number = (old["last"], old["number"]) if old else (0, int(self.get("graphs") or 0))
        fresh = sum(len(file.ids) for file in files if file.ids[0] > last)
        if old and fresh <= neighbors.FRESH * rows:
            return
        name = f"neighbors-{number + 1:06}.usearch"
        digest = neighbors.write_graph(self.folder / name, files, self.folder / old["file"] if old else None, last)
        self.put("graphs", number + 1)
        self.put("neighbors", {"file": name, "hash": digest, "last": int(files[-1].ids[-1]), "number": number + 1})

    def width(self) -> int | None:
        """Returns the number of dimensions of the vectors; None where there are none."""
        return next((file.rows.shape[1] for file in self.files()), None)

    def vectors_of(self, ids: Sequence[int]) -> list[Float | None]:
        """Returns the vectors of passages, None for a passage without. (H,)"""
        vectors: dict[int, Float] = {}
        for file in self.files():
            at = np.searchsorted(file.ids, ids).clip(max=len(file.ids) - 1)
            vectors |= {
                i: file.rows[row] * file.scale[row] for i, row in zip(ids, at, strict=True) if file.ids[row] == i
            }
        return [vectors.get(i) for i in ids]


def open_embedded(folder: Path, url: str) -> Embedded:
    """Returns the index of a folder. Raises UsageError for a URL."""
    no_url(url)
    return Embedded(folder)


def no_url(url: str) -> None:
    """Raises UsageError for a URL, which the index of a folder does not have."""
    if url:
        raise UsageError("--url is the address of a search engine. Pass --store opensearch or --store qdrant too.")
