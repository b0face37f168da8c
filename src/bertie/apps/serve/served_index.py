"""`ServedIndex`, an index of documents beside the models of a server."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bertie.apps.search.searcher import Found, Searcher
from bertie.apps.search.store import DATABASE, Store
from bertie.apps.serve import schemas
from bertie.apps.serve.served import Served
from bertie.platform import Predictor


@dataclass(eq=False)
class ServedIndex:
    """An index under its name.

    content: hash of the model of its vectors, if it has any; embedder: the name under which this model is served.
    """

    name: str
    folder: Path
    counts: Mapping[str, int]
    content: str | None
    embedder: str | None = None
    own: threading.local = field(default_factory=threading.local)

    @classmethod
    def load(cls, name: str, folder: Path) -> "ServedIndex":
        """Raises DataError for a folder that is no index."""
        store = Store(folder)
        try:
            stored = store.get("embedder")
            counts = {table: store.count(table) for table in ("documents", "passages")}
            return cls(name, folder, counts, stored["content"] if stored else None)
        finally:
            store.close()

    def link(self, models: Mapping[str, Served]) -> None:
        """Find the model of its vectors among those that are served."""
        same = (name for name, model in models.items() if self.content == model.content)
        self.embedder = next(same, None) if self.content else None

    def searcher(self) -> Searcher:
        """Returns the open index of this thread. Each thread needs its own; a replaced index is opened again."""
        file = (self.folder / DATABASE).stat().st_ino
        if getattr(self.own, "file", None) != file:
            if searcher := getattr(self.own, "searcher", None):
                searcher.close()
            self.own.searcher, self.own.file = Searcher(self.folder), file
        open_now: Searcher = self.own.searcher
        return open_now

    def search(self, body: schemas.SearchBody, stages: Sequence[Predictor | None]) -> Found:
        """The passages. stages: the models of vectors, of re-ranking and of answers."""
        searcher = self.searcher()
        searcher.embedder, searcher.ranker, searcher.reader = stages
        return searcher.search(body.query, body.top)
