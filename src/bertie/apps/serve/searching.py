"""`/search`: indexes of documents beside the models. The stages of a search run in the models' own processes."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from bertie.apps.search.searcher import Found, Searcher
from bertie.apps.search.store import DATABASE, Store
from bertie.apps.serve import schemas
from bertie.apps.serve.errors import Refusal
from bertie.apps.serve.handlers import check_filled
from bertie.apps.serve.served import Call, Served
from bertie.platform import Example, Facts, Predictor, Sequences, TextPipeline, nearest

POOL = ThreadPoolExecutor(2, "bertie-search")
RANKERS, READERS = ("rank", "choice", "regression"), ("span",)
Choose = Callable[[str, tuple[str, ...], str], Served]
"""Returns the model of a name that answers for one of some kinds. Raises Refusal."""
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
        same = (name for name, model in models.items() if self.content == model.content)
        self.embedder = next(same, None) if self.content else None

    def searcher(self) -> Searcher:
        """Returns the open index of this thread. Each thread needs its own; a replaced index is opened again."""
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

    def run(self, ids: Sequences, outputs: Sequence[str]) -> Mapping[str, NDArray[Any]]:
        """`Engine.run` in the model's process. Raises Refusal or Refused, as `Call.arrays`."""
        return asyncio.run_coroutine_threadsafe(self.call.arrays(ids, outputs), self.loop).result(STAGE_S)


@dataclass(frozen=True)
class Counted(TextPipeline):
    """A pipeline that counts the truncated texts of a request."""

    call: Call

    def encode(self, examples: Sequence[Example]) -> Sequences:
        """Returns the token ids of examples."""
        encoded = super().encode(examples)
        self.call.cut_by(encoded, self.too_long)
        return encoded


async def search(
    models: Mapping[str, Served],
    indexes: Mapping[str, ServedIndex],
    choose: Choose,
    call: Call,
    body: schemas.SearchBody,
) -> Any:
    """The passages that answer a question best, with snippets, and the answer where a model finds one."""
    name = next(iter(indexes)) if body.index is None else body.index
    if name not in indexes:
        raise Refusal("NotFound", f"There is no such index. {nearest(name[:80], indexes)}", param="index")
    check_filled("query", body.query)
    call.take(1)
    index = indexes[name]
    chosen = [
        models[index.embedder] if index.embedder else None,
        stage(models, choose, body.rerank, RANKERS, lambda model: model.kinds[0] == "rank" or model.scores_pairs),
        stage(models, choose, body.answer, READERS, lambda model: model.kinds[0] in READERS),
    ]
    calls = [Call(model, call.admission) if model else None for model in chosen]
    stages = [predictor(one) if one else None for one in calls]
    if calls[0] and stages[0]:
        stages[0] = stages[0].replace(task_or_none=calls[0].model.embedder, too_long="truncate")
    for one in filter(None, calls):
        call.held.enter_context(one.held)
        one.use()
    found = await asyncio.get_running_loop().run_in_executor(POOL, index.search, body, stages)
    call.characters = len(body.query)
    for one in filter(None, calls):
        call.tokens += one.tokens
        call.truncated += one.truncated
        call.queue_s += one.queue_s
        call.inference_s += one.inference_s
    return {"index": name, **found.as_json(), "truncated": call.truncated}


def predictor(call: Call) -> Predictor:
    """A model's predictor, whose batches go through its queue."""
    return Predictor(Queued(call, asyncio.get_running_loop()), pipeline=Counted(**vars(call.model.pipeline), call=call))


def stage(
    models: Mapping[str, Served],
    choose: Choose,
    asked: bool | str,
    kinds: tuple[str, ...],
    suits: Callable[[Served], bool],
) -> Served | None:
    """The model of a stage: the one named, else the first that suits; None where none is wanted."""
    if isinstance(asked, str):
        return choose(asked, kinds, "/search")
    return next(filter(suits, models.values()), None) if asked else None
