"""`/search`: indexes of documents beside the models. The stages of a search run in the models' own processes."""

import asyncio
import copy
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from bertie import checksums
from bertie.data.ids import Ids
from bertie.errors import nearest
from bertie.files import seal
from bertie.infer.engine import Facts
from bertie.infer.predict import Predictor
from bertie.search.searcher import Found, Searcher
from bertie.search.store import DATABASE, Store
from bertie.serve import schemas
from bertie.serve.errors import Refusal
from bertie.serve.served import Call, Served

if TYPE_CHECKING:
    from bertie.serve.fleet import Fleet

POOL = ThreadPoolExecutor(2, "bertie-search")
RANKERS, READERS = ("rank", "choice", "regression"), ("span",)
STAGE_S = 120.0  # for a model's part of a search; a thread that waits for a server that has ended must end too


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
        same = (name for name, model in models.items() if self.content == content_of(model.folder))
        self.embedder = next(same, None) if self.content else None

    def searcher(self) -> Searcher:
        """The open index of this thread, as SQLite demands; opened again when the folder was made anew."""
        file = (self.folder / DATABASE).stat().st_ino
        if getattr(self.own, "file", None) != file:
            if found := getattr(self.own, "searcher", None):
                found.close()
            self.own.searcher, self.own.file = Searcher(self.folder), file
        open_now: Searcher = self.own.searcher
        return open_now

    def search(self, body: schemas.SearchBody, stages: Sequence[Predictor | None]) -> Found:
        """The passages. stages: the models of vectors, of re-ranking and of answers."""
        searcher = self.searcher()
        searcher.embedder, searcher.ranker, searcher.reader = stages
        return searcher.search(body.query, body.top)


@dataclass
class Queued:
    """An engine whose batches go through the queue of a served model; for threads beside that of the server."""

    call: Call
    loop: asyncio.AbstractEventLoop

    @property
    def facts(self) -> Facts:
        """Those of the model."""
        return self.call.model.facts

    def run(self, ids: Ids, outputs: Sequence[str]) -> Mapping[str, NDArray[Any]]:
        """`Engine.run` in the model's process. Raises Refusal or Refused, as `Call.arrays`."""
        return asyncio.run_coroutine_threadsafe(self.call.arrays(ids, outputs), self.loop).result(STAGE_S)


async def search(fleet: "Fleet", call: Call, body: schemas.SearchBody) -> Any:
    """The passages that answer a question best, with snippets, and the answer where a model finds one."""
    name = next(iter(fleet.indexes)) if body.index is None else body.index
    if name not in fleet.indexes:
        raise Refusal("NotFound", f"There is no such index. {nearest(name[:80], fleet.indexes)}", param="index")
    if not body.query.strip():
        raise Refusal("Validation", "`query` is an empty text.", param="query")
    call.take(1)
    index = fleet.indexes[name]
    chosen = [index.embedder, ranker(fleet, body.rerank), reader(fleet, body.answer)]
    calls = [Call(fleet.models[one], call.admission) if one else None for one in chosen]
    stages = [predictor(one) if one else None for one in calls]
    if calls[0] and stages[0]:
        stages[0].task, stages[0].too_long = calls[0].model.embedder, "truncate"
    found = await asyncio.get_running_loop().run_in_executor(POOL, index.search, body, stages)
    call.characters = len(body.query)
    for one in filter(None, calls):
        call.tokens += one.tokens
        call.queue_s += one.queue_s
        call.inference_s += one.inference_s
    return {"index": name, **found.as_json()}


def predictor(call: Call) -> Predictor:
    """A model's predictor, whose batches go through its queue."""
    found = copy.copy(call.model.predictor)
    found.engine = Queued(call, asyncio.get_running_loop())
    return found


def ranker(fleet: "Fleet", asked: bool | str) -> str | None:
    """The model that ranks again: the one named, else the first that was trained to."""
    if isinstance(asked, str):
        return fleet.choose(asked, RANKERS, "/search").name
    own = (name for name, model in fleet.models.items() if model.kinds[0] == "rank" or model.scores_pairs)
    return next(own, None) if asked else None


def reader(fleet: "Fleet", asked: bool | str) -> str | None:
    """The model that finds the answer: the one named, else the first of its task."""
    if isinstance(asked, str):
        return fleet.choose(asked, READERS, "/search").name
    return next((name for name, model in fleet.models.items() if model.kinds[0] in READERS), None) if asked else None


def content_of(folder: Path) -> str:
    """The hash of a model, as an index stores it."""
    return seal({"files": checksums.content(folder)})
