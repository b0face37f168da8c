"""`/search`: indexes of documents beside the models. The stages of a search run in the models' own processes."""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from bertie.apps.serve import schemas
from bertie.apps.serve.call import Call, are_cut
from bertie.apps.serve.errors import Refusal
from bertie.apps.serve.fleet import Fleet
from bertie.apps.serve.inputs import check_filled
from bertie.apps.serve.routes import ANY, OWN, Route
from bertie.apps.serve.served import Served
from bertie.apps.serve.ticket import RequestUsage, Ticket
from bertie.platform import DataError, Example, Facts, Predictor, Sequences, TextPipeline, nearest

_POOL = ThreadPoolExecutor(2, "bertie-search")
RANKERS, READERS = ("rank", "choice", "regression"), ("span",)
STAGE_S = 120.0  # for a model's part of a search; a thread that waits for a server that has ended must end too


@dataclass
class Queued:
    """An engine whose batches go through the queue of a served model; for threads beside that of the server."""

    ticket: Ticket
    loop: asyncio.AbstractEventLoop

    @property
    def facts(self) -> Facts:
        """Those of the model."""
        return self.ticket.model.facts

    def run(self, ids: Sequences, outputs: Sequence[str]) -> Mapping[str, NDArray[Any]]:
        """`Engine.run` in the model's process. Raises Refusal, as `Ticket.arrays`."""
        return asyncio.run_coroutine_threadsafe(self.ticket.arrays(ids, outputs), self.loop).result(STAGE_S)


@dataclass(frozen=True)
class Counted(TextPipeline):
    """A pipeline that counts the truncated texts of a request."""

    usage: RequestUsage

    def encode(self, examples: Sequence[Example]) -> Sequences:
        """Returns the token ids of examples."""
        encoded = super().encode(examples)
        self.usage.truncated += sum(are_cut(self, encoded))
        return encoded


def search_route(fleet: Fleet, log: Callable[..., None] | None) -> Route:
    """Returns the row of the indexes of a server."""

    async def work(call: Call, body: schemas.SearchBody) -> object:
        try:
            return await search(fleet, call, body)
        except (DataError, OSError, sqlite3.Error) as error:
            if log is not None:
                log("index_failed", index=body.index or next(iter(fleet.indexes)), reason=str(error))
            raise Refusal("Backend", "The index cannot be read.") from None

    work.__doc__ = search.__doc__
    return Route("/search", ANY, schemas.SearchBody, work, OWN, {"query": "Where is the library?"})


async def search(fleet: Fleet, call: Call, body: schemas.SearchBody) -> object:
    """The passages that answer a question best, with snippets, and the answer where a model finds one."""
    models, indexes = fleet.models, fleet.indexes
    name = next(iter(indexes)) if body.index is None else body.index
    if name not in indexes:
        raise Refusal("NotFound", f"There is no such index. {nearest(name[:80], indexes)}", param="index")
    check_filled("query", body.query)
    call.ticket.take(1)
    call.usage.characters = len(body.query)
    index = indexes[name]
    stages = [
        make_queue_predictor(call, models[index.embedder] if index.embedder else None),
        make_queue_predictor(
            call, stage(fleet, body.rerank, RANKERS, lambda one: one.kinds[0] == "rank" or one.scores_pairs)
        ),
        make_queue_predictor(call, stage(fleet, body.answer, READERS, lambda one: one.kinds[0] in READERS)),
    ]
    if embedder := stages[0]:
        stages[0] = embedder.replace(task_or_none=embedder.pipeline.embedder, too_long="truncate")
    passages = await asyncio.get_running_loop().run_in_executor(_POOL, index.search, body, stages)
    return {"index": name, **passages.as_json(), "truncated": call.usage.truncated}


def make_queue_predictor(call: Call, model: Served | None) -> Predictor | None:
    """The predictor of a model, whose batches go through its queue until the request ends."""
    if model is None:
        return None
    ticket = call.ticket.held.enter_context(Ticket(model, call.ticket.admission, call.usage))
    pipeline = Counted(**vars(model.pipeline), usage=call.usage)
    return Predictor(Queued(ticket, asyncio.get_running_loop()), pipeline=pipeline)


def stage(fleet: Fleet, choice: bool | str, kinds: tuple[str, ...], suits: Callable[[Served], bool]) -> Served | None:
    """The model of a stage: the one named, else the first that suits; None where none is wanted."""
    if isinstance(choice, str):
        return fleet.choose(choice, kinds, "/search")
    return next(filter(suits, fleet.models.values()), None) if choice else None
