"""The application: one router over the routes of the table, probes, metrics, the page; and the log."""

from collections.abc import Callable, MutableMapping
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from time import perf_counter
from urllib.parse import quote

import orjson
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Router

from bertie.apps.serve import attending
from bertie.apps.serve.call import Call, TextReading
from bertie.apps.serve.docs import ERRORS, Address, Operation, docs_addresses
from bertie.apps.serve.errors import Refusal, read_body
from bertie.apps.serve.fleet import Fleet
from bertie.apps.serve.generating import Events, Generated
from bertie.apps.serve.guard import Guard, Limits, Receive, RequestFacts, Send, defect
from bertie.apps.serve.inputs import MOST_INPUTS
from bertie.apps.serve.log import LOG
from bertie.apps.serve.page import page_addresses
from bertie.apps.serve.routes import BY_PATH, OPENAI, PIPELINES, ROUTES, TEI, Route, pipeline_of
from bertie.apps.serve.schemas import AnyBody, Body
from bertie.apps.serve.served import LongTexts, Served
from bertie.apps.serve.ticket import Ticket
from bertie.platform import nearest

PROBE_TAG = "Probes"
SERVER_VERSION = version("bertie")


class Json(Response):
    """JSON by orjson, which writes NumPy arrays directly."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Returns the bytes."""
        return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)


class Application:
    """The routes of the models."""

    def __init__(
        self,
        fleet: Fleet,
        limits: Limits,
        *,
        too_long: LongTexts | None = None,
        log: Callable[..., None] | None = None,
    ) -> None:
        self.fleet, self.limits, self.too_long, self.log = fleet, limits, too_long, log
        rows = [*ROUTES]
        if fleet.index_paths:
            from bertie.apps.serve.searching import search_route

            rows.append(search_route(fleet, log))
        rows += [attending.ROUTE] if fleet.settings.attention else []
        own = [Address(row.path, partial(self.answer, row), row.operation, method="POST") for row in rows]
        own += [*self._pipelines(), *self._probes()]
        self.router = Router([*own, *docs_addresses(own, SERVER_VERSION), *page_addresses()], default=missing)
        self.asgi = Guard(self.router, limits, fleet.admission, lambda: fleet.draining, self._finished, defect)

    async def __call__(self, scope: MutableMapping[str, object], receive: Receive, send: Send) -> None:
        """ASGI."""
        await self.asgi(scope, receive, send)

    # The table ---------------------------------------------------------------------------------------------------

    def _pipelines(self) -> list[Address]:
        """POST / and POST /models/NAME: the pipeline of the model's own task. A name may have slashes."""
        operation = Operation(PIPELINES, "The pipeline of the model's own task.", ERRORS, body=AnyBody)
        paths = ("/models/{name:path}/pipeline/{task}", "/models/{name:path}")
        every = [Address(path, self.pipeline, method="POST") for path in paths]
        return [Address("/", self.pipeline, operation, method="POST"), *every]

    async def pipeline(self, request: Request) -> Response:
        """Answers with the pipeline of the model's own task, or of the task in the address. Raises Refusal."""
        name, task = request.path_params.get("name"), request.path_params.get("task")
        facts: RequestFacts = request.state.seen
        facts.route = "/models" if name else "/"
        body = read_body(BODY, await request.body())
        if name and body.model not in (None, name):
            message = "The address and the key `model` name two models. Omit `model`."
            raise Refusal("Validation", message, param="model")
        model = self.fleet.choose(name or body.model, (), "/")
        if task is not None and task not in PIPELINE_OF:
            raise Refusal("NotFound", f"There is no such pipeline. {nearest(task[:80], PIPELINE_OF)}")
        row = BY_PATH[PIPELINE_OF[task]] if task else pipeline_of(model)
        return await self.answer(row, request, self.fleet.choose(model.name, row.kinds, row.path))

    async def answer(self, row: Route, request: Request, model: Served | None = None) -> Response:
        """Answers a request of the table. Raises Refusal or BertieError."""
        facts: RequestFacts = request.state.seen
        if model is None:
            facts.route = row.path
        self.fleet.metrics.counts.add("te_request_count", facts.route)
        body = read_body(row.adapter, await request.body())
        model = model or self.fleet.choose(getattr(body, "model", None), row.kinds, row.path)
        model = self.fleet.routed(model, facts.id)
        facts.model = model.name
        with Ticket(model, self.fleet.admission) as ticket:
            facts.ticket = ticket
            answer = await row.work(Call(ticket, TextReading.of(body, self.too_long), self.fleet.count), body)
            if isinstance(answer, Generated):
                return Events(answer, ticket.held.pop_all(), make_fact_headers(ticket))
            return Json(answer, headers=figures_of(facts, ticket))

    # Probes and facts ----------------------------------------------------------------------------------------------

    def _probes(self) -> list[Address]:
        ready = Operation(PROBE_TAG, "200 while every model can answer.", [503])
        return [
            Address("/healthz", self._healthz, Operation(PROBE_TAG, "200 while the process answers.")),
            Address("/readyz", self._readyz, ready),
            Address("/health", self._health, Operation(PROBE_TAG, "As /readyz, without a body.", [503], ())),
            Address(
                "/info",
                self._info,
                Operation(TEI, "The models and the limits.", [404], parameters=(("query", "model"),)),
            ),
            Address("/traffic", self._traffic, Operation(PROBE_TAG, "Texts and answers since the start, as counts.")),
            Address("/metrics", self._metrics, Operation(PROBE_TAG, "Prometheus metrics.", content=("text/plain",))),
            Address("/v1/models", self._models, Operation(OPENAI, "The models by name.")),
            Address(
                "/v1/models/{name:path}",
                self._model,
                Operation(OPENAI, "One model.", [404], parameters=(("path", "name"),)),
            ),
        ]

    async def _healthz(self, request: Request) -> Response:
        return Json({"status": "ok"})

    async def _readyz(self, request: Request) -> Response:
        fleet = self.fleet
        states = {name: one.batcher.state for name, one in fleet.models.items()}
        state = {"status": "draining" if fleet.draining else "ok" if fleet.ready else "not ready", "models": states}
        return Json(state, status_code=200 if fleet.ready else 503)

    async def _health(self, request: Request) -> Response:
        if self.fleet.ready:
            return Response()
        return Json(Refusal("Unhealthy", "unhealthy").body("/health"), status_code=503)  # no failed request

    async def _info(self, request: Request) -> Response:
        return Json(self.info(self._known(request.query_params.get("model"))))

    async def _traffic(self, request: Request) -> Response:
        versions = self.fleet.versions
        return Json({"models": self.fleet.watch.info(), "versions": versions and versions.as_json()})

    async def _metrics(self, request: Request) -> Response:
        self._gauges()
        return Response(self.fleet.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _models(self, request: Request) -> Response:
        return Json({"object": "list", "data": [openai_model(name) for name in self.fleet.models]})

    async def _model(self, request: Request) -> Response:
        return Json(openai_model(str(self._known(request.path_params["name"]))))

    def _known(self, name: str | None) -> str | None:
        """Returns the name of a model. Raises Refusal for an unknown one."""
        if name is not None and name not in self.fleet.models:
            raise Refusal("NotFound", "There is no such model.")
        return name

    def info(self, name: str | None = None) -> dict[str, object]:
        """Returns the facts of the first or the named model, and the limits of the server."""
        fleet = self.fleet
        models = {key: one.info(self.too_long) for key, one in fleet.models.items()}
        name = name or next(iter(models))
        own = models[name]
        return {
            **own,
            "max_concurrent_requests": fleet.admission.texts.most,
            "max_batch_tokens": fleet.models[name].batcher.max_tokens,
            "max_queued_tokens": fleet.admission.max_tokens,
            "max_client_batch_size": MOST_INPUTS,
            "max_body_bytes": self.limits.max_body_bytes,
            "auto_truncate": own["too_long"] != "error",
            "version": SERVER_VERSION,
            "process": asdict(fleet.process) if fleet.process else None,
            "reloads": asdict(fleet.reloads),
            "versions": fleet.versions and fleet.versions.as_json(),
            "attention": fleet.settings.attention,
            "models": models,
            "indexes": {key: {**one.counts, "vectors_of": one.embedder} for key, one in fleet.indexes.items()},
        }

    def _gauges(self) -> None:
        metrics, admission = self.fleet.metrics, self.fleet.admission
        metrics.queue_size.set(sum(one.size for one in self.fleet.batchers))
        metrics.inflight_tokens.set(sum(budget.used for budget in admission.tokens.values()))
        metrics.inflight_texts.set(admission.texts.used)
        metrics.inflight_bytes.set(admission.content.used)
        metrics.ready.set(float(self.fleet.ready))
        metrics.log_dropped.set(LOG.dropped)

    # Afterwards ----------------------------------------------------------------------------------------------------

    def _finished(self, facts: RequestFacts) -> None:
        """Counts and logs a request, without its texts."""
        metrics, seconds = self.fleet.metrics, perf_counter() - facts.started
        metrics.counts.add("bertie_requests_total", facts.route, str(facts.status))
        if facts.error:
            metrics.counts.add("te_request_failure", facts.error)
            if facts.status in (413, 429):
                metrics.counts.add("bertie_rejected_total", facts.reason or "deadline")
        if facts.ticket is not None and facts.status == 200:
            usage = facts.ticket.usage
            metrics.counts.add("te_request_success", facts.route)
            metrics.duration.observe(seconds)
            metrics.tokenization.observe(usage.tokenization_s)
            metrics.queue.observe(usage.queue_s)
            metrics.inference.observe(usage.inference_s)
            metrics.length.observe(usage.tokens)
            if usage.truncated:
                metrics.counts.add("bertie_truncated_total", facts.model, amount=usage.truncated)
        if self.log is not None:
            self.log("request", **logged(facts, seconds))

    def malformed(self, reason: str) -> None:
        """Counts and logs a request that the protocol refused."""
        self.fleet.metrics.counts.add("bertie_requests_total", "other", "400")
        if self.log is not None:
            self.log("malformed", reason=reason)


BODY = TypeAdapter(Body)
PIPELINE_OF = {
    "feature-extraction": "/embed",
    "fill-mask": "/fill_mask",
    "question-answering": "/qa",
    "sentence-similarity": "/similarity",
    "text-classification": "/text_classification",
    "text2text-generation": "/generate",
    "token-classification": "/ner",
}
"""Tasks in the addresses of Hugging Face's API."""


def openai_model(name: str) -> dict[str, object]:
    """Returns a model in OpenAI's form."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "bertie"}


async def missing(scope: MutableMapping[str, object], receive: Receive, send: Send) -> None:
    """ASGI. Raises Refusal for an address that there is not."""
    raise Refusal("NotFound", "There is nothing here; /docs lists the routes.")


def figures_of(facts: RequestFacts, ticket: Ticket) -> dict[str, str]:
    """Returns the headers of an answer: what it took, and its model."""
    usage = ticket.usage
    return {
        "x-compute-type": ticket.model.facts.device.partition(":")[0],
        "x-compute-time": ms(usage.tokenization_s + usage.inference_s),
        "x-compute-characters": str(usage.characters),
        "x-compute-tokens": str(usage.tokens),
        "x-total-time": ms(perf_counter() - facts.started),
        "x-tokenization-time": ms(usage.tokenization_s),
        "x-queue-time": ms(usage.queue_s),
        "x-inference-time": ms(usage.inference_s),
        **make_fact_headers(ticket),
    }


def make_fact_headers(ticket: Ticket) -> dict[str, str]:
    """Returns the headers about a model and its reading; other characters than ASCII are quoted."""
    return {"x-bertie-model": quote(ticket.model.name), "x-bertie-truncated": str(ticket.usage.truncated)}


def ms(seconds: float) -> str:
    """Returns the milliseconds in a header."""
    return str(round(seconds * 1000))


def logged(facts: RequestFacts, seconds: float) -> dict[str, object]:
    """Returns the log record of a request."""
    fields = {"id": facts.id.decode(), "route": facts.route, "status": facts.status, "ms": round(seconds * 1000, 1)}
    if facts.trace:
        fields["trace_id"] = facts.trace
    if facts.error:
        fields |= {"error": facts.error, "reason": facts.reason}
    if facts.ticket is not None:
        usage = facts.ticket.usage
        fields |= {"model": facts.model, "texts": usage.texts, "tokens": usage.tokens, "truncated": usage.truncated}
        fields |= {"queue_ms": round(usage.queue_s * 1000, 1), "inference_ms": round(usage.inference_s * 1000, 1)}
    return fields
