"""The engines that keep an index: this library's own (SQLite and vectors in a folder), OpenSearch and Qdrant.

The stages of a search ask an `Index`, and do not know which it is. An index on a server is a copy of a folder's: the
passages with their terms, vectors and places.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bertie.apps import modules_of
from bertie.apps.search.store import Passage
from bertie.platform import Registry

Float = NDArray[np.float32]
RankedPassages = list[tuple[int, float]]  # (passage, score), best first


class Index(Protocol):
    """What the stages of a search ask of an index. where: its place, for messages."""

    @property
    def where(self) -> str:
        """The folder or the address of the index."""

    def get(self, name: str) -> Any:
        """Returns a setting: config, embedder, passages; None where there is none."""

    def reading(self) -> AbstractContextManager[None]:
        """Context in which all reads see the same state, where the engine has such a thing."""

    def matches(self, terms: Sequence[str], top: int) -> RankedPassages:
        """Returns the best passages with any of the terms, by BM25."""

    def nearest(self, vector: Float, top: int) -> RankedPassages:
        """Returns the passages whose vectors have the highest products with this one. (H,)"""

    def passages(self, ids: Sequence[int]) -> list[Passage]:
        """Returns passages in the order of their ids; ids without a passage are left out."""

    def passages_of(self, document: int) -> list[Passage]:
        """Returns the passages of a document in order."""

    def documents_by_passage(self, ids: Sequence[int]) -> dict[int, int]:
        """Returns passage -> its document."""

    def documents_named(self, name: str) -> list[int]:
        """Returns the documents of a name."""

    def documents_of(self, text: str) -> list[int]:
        """Returns the documents with this text."""

    def close(self) -> None:
        """Closes the index."""


_modules = modules_of("bertie.apps.search")  # each is imported when it is used
STORES: Registry[Callable[[Path, str], Index]] = Registry(
    "store of an index",
    [
        ("sqlite", lambda folder, spec: _modules("embedded").open_embedded(folder, spec)),
        ("opensearch", lambda folder, spec: _modules("opensearch").OpenSearch(folder, spec)),
        ("qdrant", lambda folder, spec: _modules("qdrant").Qdrant(folder, spec)),
    ],
)
