"""The application: the routes of the table, probes, metrics, the page, and the log."""

import sqlite3
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import asdict
from importlib.metadata import version
from time import perf_counter
from typing import Any
from urllib.parse import quote

import orjson
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, from_json
from starlette.exceptions import HTTPException

from bertie.apps.serve import attending
from bertie.apps.serve.admission import Refused
from bertie.apps.serve.docs import add_docs
from bertie.apps.serve.errors import DEFECT, STATUS, Refusal, invalid
from bertie.apps.serve.fleet import Fleet
from bertie.apps.serve.generating import Events, Generated
from bertie.apps.serve.guard import Guard, Limits, Receive, Seen, Send, defect
from bertie.apps.serve.handlers import MOST_INPUTS
from bertie.apps.serve.log import LOG
from bertie.apps.serve.page import add_page
from bertie.apps.serve.routes import ANY, BY_PATH, OWN, PIPELINE, ROUTES, Route
from bertie.apps.serve.schemas import AnyBody, Body, SearchBody
from bertie.apps.serve.served import Call, Served, refused
from bertie.platform import BertieError, DataError, TooLong, nearest

ERRORS = {status: kind for kind, status in STATUS.items() if kind != "Tokenizer"}
POLICIES: dict[bool | None, TooLong | None] = {None: None, True: "truncate", False: "error"}
"""What a body's `truncate` says of long texts."""
Told = dict[str, object]


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
        too_long: TooLong | None = None,
        log: Callable[..., None] | None = None,
    ) -> None:
        self.fleet, self.limits, self.too_long, self.log = fleet, limits, too_long, log
        self.app = FastAPI(title="Bertie", version=version("bertie"), openapi_url=None)
        more = [self._search()] if fleet.index_paths else []
        more += [attending.ROUTE] if fleet.settings.attention else []
        self.rows = {route.path: route for route in (*ROUTES, *more)}
        for route in self.rows.values():
            self._add(route, route.path)
        self._add_any()
        self._add_probes()
        add_docs(self.app)
        add_page(self.app)
        self.app.add_exception_handler(HTTPException, self._missing)
        self.app.add_exception_handler(Exception, self._failed)
        self.asgi = Guard(self._dispatch, limits, fleet.admission, lambda: fleet.draining, self._finished, defect)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """ASGI."""
        await self.asgi(scope, receive, send)

    async def _dispatch(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Routes of the table are called directly: FastAPI's layers take longer than a small model."""
        if scope["type"] == "http" and scope["method"] == "HEAD":  # as GET; the protocol leaves the body out
            scope = {**scope, "method": "GET"}
        row = self.rows.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if row is None:
            await self.app(scope, receive, send)
            return
        response = await self.answer(row, Request(scope, receive), row.path)
        await response(scope, receive, send)

    # The table ---------------------------------------------------------------------------------------------------

    def _search(self) -> Route:
        """The row of the indexes."""
        from bertie.apps.serve import searching

        async def work(call: Call, body: SearchBody) -> Any:
            fleet = self.fleet
            try:
                return await searching.search(fleet.models, fleet.indexes, fleet.choose, call, body)
            except (DataError, OSError, sqlite3.Error) as error:
                if self.log is not None:
                    self.log("index_failed", index=body.index or next(iter(fleet.indexes)), reason=str(error))
                raise Refusal("Backend", "The index cannot be read.") from None

        work.__doc__ = searching.search.__doc__
        return Route("/search", ANY, SearchBody, work, OWN, {"query": "Where is the library?"})

    def _add(self, row: Route, path: str) -> None:
        async def endpoint(body: object) -> object:
            return None

        async def work(request: Request) -> Response:
            return await self.answer(row, request, row.path)

        endpoint.__annotations__ = {"body": row.body, "return": object}
        endpoint.__name__ = path.strip("/").replace("/", "_")
        extra = {"requestBody": {"content": {"application/json": {"example": row.example}}}}
        self.app.router.add_api_route(
            path,
            endpoint,
            methods=["POST"],
            tags=[row.tag],
            summary=row.summary,
            responses=responses() | row.responses,
            openapi_extra=extra,
            route_class_override=taking(work),
        )

    def _add_any(self) -> None:
        """POST / and POST /models/NAME: the pipeline of the model's own task. A name may have slashes."""

        async def endpoint(body: AnyBody) -> object:
            return None

        async def work(request: Request) -> Response:
            name, task = request.path_params.get("name"), request.path_params.get("task")
            seen: Seen = request.state.seen
            seen.route = "/models" if name else "/"
            try:
                body = BODY.validate_json(await request.body())
                if name and body.model not in (None, name):
                    message = "The address and the key `model` name two models. Omit `model`."
                    raise Refusal("Validation", message, param="model")
                model = self.fleet.choose(name or body.model, (), "/")
                if task is not None and task not in PIPELINE_OF:
                    raise Refusal("NotFound", f"There is no such pipeline. {nearest(task[:80], PIPELINE_OF)}")
                row = BY_PATH[PIPELINE_OF[task] if task else PIPELINE[model.kinds[0]]]
                model = self.fleet.choose(model.name, row.kinds, row.path)
            except ValidationError as error:
                return refuse(described(error, await request.body()), seen)
            except Refusal as error:
                return refuse(error, seen)
            return await self.answer(row, request, seen.route, model)

        for path in ("/", "/models/{name:path}/pipeline/{task}", "/models/{name:path}"):
            self.app.router.add_api_route(
                path,
                endpoint,
                methods=["POST"],
                tags=["Hugging Face pipelines"],
                summary="The pipeline of the model's own task.",
                operation_id="pipeline",
                responses=responses(),
                route_class_override=taking(work),
                include_in_schema=path == "/",
            )

    async def answer(self, row: Route, request: Request, path: str, model: Served | None = None) -> Response:
        """Answers one request of the table."""
        seen: Seen = request.state.seen
        seen.route = path
        self.fleet.metrics.counts.add("te_request_count", path)
        try:
            content = await request.body()
            body = row.adapter.validate_json(content)
            model = model or self.fleet.choose(getattr(body, "model", None), row.kinds, row.path)
            model = self.fleet.routed(model, seen.id)
            seen.model = model.name
            call = seen.call = Call(model, self.fleet.admission, side=getattr(body, "truncation_direction", "right"))
            call.watch = self.fleet.count
            call.too_long = POLICIES[getattr(body, "truncate", None)] or self.too_long
            with call.held:
                call.use()
                answer = await row.work(call, body)
                if isinstance(answer, Generated):
                    return Events(answer, call.held.pop_all(), facts_of(call))
                return Json(answer, headers=self._figures(seen, call))
        except ValidationError as error:
            return refuse(described(error, content), seen)
        except Refused as error:
            return refuse(refused(error), seen)
        except Refusal as error:
            return refuse(error, seen)
        except BertieError as error:
            return refuse(invalid(error), seen)

    def _figures(self, seen: Seen, call: Call) -> dict[str, str]:
        total = perf_counter() - seen.started
        figures = {
            "x-compute-type": call.model.facts.device.partition(":")[0],
            "x-compute-time": ms(call.tokenization_s + call.inference_s),
            "x-compute-characters": str(call.characters),
            "x-compute-tokens": str(call.tokens),
            "x-total-time": ms(total),
            "x-tokenization-time": ms(call.tokenization_s),
            "x-queue-time": ms(call.queue_s),
            "x-inference-time": ms(call.inference_s),
        }
        return figures | facts_of(call)

    # Probes and facts ----------------------------------------------------------------------------------------------

    def _add_probes(self) -> None:
        get, fleet, told = self.app.get, self.fleet, responses()
        unknown: dict[int | str, Told] = {404: told[404]}
        unready: dict[int | str, Told] = {503: told[503]}

        @get("/healthz", tags=["Probes"], summary="200 while the process answers.")
        async def healthz() -> Told:
            return {"status": "ok"}

        @get("/readyz", tags=["Probes"], summary="200 while every model can answer.", responses=unready)
        async def readyz() -> Response:
            states = {name: one.batcher.state for name, one in fleet.models.items()}
            state = {"status": "draining" if fleet.draining else "ok" if fleet.ready else "not ready", "models": states}
            return Json(state, status_code=200 if fleet.ready else 503)

        @get(
            "/health",
            tags=["Probes"],
            summary="As /readyz, without a body.",
            response_class=Response,
            responses=unready,
        )
        async def health() -> Response:
            if fleet.ready:
                return Response(status_code=200)
            return Json(Refusal("Unhealthy", "unhealthy").body("/health"), status_code=503)

        @get("/info", tags=["Text Embeddings Inference"], summary="The models and the limits.", responses=unknown)
        async def info(model: str | None = None) -> Response:
            if model is not None and model not in fleet.models:
                return Json(Refusal("NotFound", "There is no such model.").body("/info"), status_code=404)
            return Json(self.info(model))

        @get("/traffic", tags=["Probes"], summary="Texts and answers since the start, as counts.")
        async def traffic() -> Response:
            return Json({"models": fleet.watch.info(), "versions": fleet.versions and fleet.versions.as_json()})

        @get("/metrics", tags=["Probes"], summary="Prometheus metrics.", response_class=PlainTextResponse)
        async def metrics() -> Response:
            self._gauges()
            return Response(fleet.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

        @get("/v1/models", tags=["OpenAI"], summary="The models by name.")
        async def models() -> Told:
            data = [{"id": name, "object": "model", "created": 0, "owned_by": "bertie"} for name in fleet.models]
            return {"object": "list", "data": data}

        @get("/v1/models/{name:path}", tags=["OpenAI"], summary="One model.", responses=unknown)
        async def one(name: str) -> Response:
            if name not in fleet.models:
                return Json(Refusal("NotFound", "There is no such model.").body("/v1/models"), status_code=404)
            return Json({"id": name, "object": "model", "created": 0, "owned_by": "bertie"})

    def info(self, name: str | None = None) -> Told:
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
            "version": self.app.version,
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

    def _finished(self, seen: Seen) -> None:
        """Counts and logs a request, without its texts."""
        metrics, call, seconds = self.fleet.metrics, seen.call, perf_counter() - seen.started
        metrics.counts.add("bertie_requests_total", seen.route, str(seen.status))
        if seen.error:
            metrics.counts.add("te_request_failure", seen.error)
            if seen.status in (413, 429):
                metrics.counts.add("bertie_rejected_total", seen.reason or "deadline")
        if call is not None and seen.status == 200:
            metrics.counts.add("te_request_success", seen.route)
            metrics.duration.observe(seconds)
            metrics.tokenization.observe(call.tokenization_s)
            metrics.queue.observe(call.queue_s)
            metrics.inference.observe(call.inference_s)
            metrics.length.observe(call.tokens)
            if call.truncated:
                metrics.counts.add("bertie_truncated_total", call.model.name, amount=call.truncated)
        if self.log is not None:
            self.log("request", **logged(seen, seconds))

    async def _missing(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        kind = ERRORS.get(error.status_code, "Validation")
        said = {404: "There is nothing here; /docs lists the routes.", 405: "Another method is expected here."}
        refusal = Refusal(kind, said.get(error.status_code, str(error.detail)), status=error.status_code)
        refusal.headers = dict(error.headers or {})
        return refuse(refusal, request.state.seen)

    async def _failed(self, request: Request, error: Exception) -> Response:
        """Answers after a defect of the server, which the guard writes to the log."""
        return refuse(Refusal("Backend", DEFECT, status=500), request.state.seen)

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


def taking(work: Callable[[Request], Awaitable[Response]]) -> type[APIRoute]:
    """Returns a route that reads its body itself, in one pass. FastAPI describes it."""

    class Taking(APIRoute):
        def get_route_handler(self) -> Any:
            return work

    return Taking


def responses() -> dict[int | str, dict[str, object]]:
    """Returns the responses of a route other than 200."""
    schema = {"type": "object", "properties": {"error": {}, "error_type": {"type": "string"}}, "required": ["error"]}
    content = {"application/json": {"schema": schema}}
    return {status: {"description": kind, "content": content} for kind, status in STATUS.items() if kind != "Tokenizer"}


def refuse(error: Refusal, seen: Seen) -> Response:
    """Returns an error as a response."""
    seen.error, seen.reason = error.kind, error.reason
    return Json(error.body(seen.path), status_code=error.status, headers=error.headers)


def described(error: ValidationError, content: bytes) -> Refusal:
    """Returns what is wrong with a body, without its content.

    Where a value may have several forms, each has an error: that of the form that fits furthest is told.
    """
    errors = error.errors(include_input=False, include_url=False, include_context=False)
    body = None if errors[0]["type"] == "json_invalid" else from_json(content)
    places = [place_of(one, body) for one in errors]

    def fits(number: int) -> tuple[list[int], bool]:
        indices = [part if isinstance(part, int) else 0 for part in places[number]]
        return indices, not errors[number]["type"].endswith("_type")

    best = max(range(len(errors)), key=fits)
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in places[best]).lstrip(".")
    return Refusal("Validation", f"{where or 'The body'}: {errors[best]['msg']}."[:300], param=where or None)


def place_of(error: ErrorDetails, value: Any) -> list[str | int]:
    """Returns the keys and indices that lead to an error; pydantic's place has the names of types between them."""
    found = list[str | int]()
    for part in error["loc"]:
        if part in value if isinstance(value, dict) else isinstance(value, list) and isinstance(part, int):
            value = value[part]
            found.append(part)
    return [*found, error["loc"][-1]] if error["type"] == "missing" else found


def facts_of(call: Call) -> dict[str, str]:
    """Returns the headers about a model and its reading; other characters than ASCII are quoted."""
    return {"x-bertie-model": quote(call.model.name), "x-bertie-truncated": str(call.truncated)}


def ms(seconds: float) -> str:
    """Returns the milliseconds in a header."""
    return str(round(seconds * 1000))


def logged(seen: Seen, seconds: float) -> Told:
    """Returns the log record of a request."""
    call = seen.call
    fields = {"id": seen.id.decode(), "route": seen.route, "status": seen.status, "ms": round(seconds * 1000, 1)}
    if seen.trace:
        fields["trace_id"] = seen.trace
    if seen.error:
        fields |= {"error": seen.error, "reason": seen.reason}
    if call is not None:
        fields |= {"model": seen.model, "texts": call.texts, "tokens": call.tokens, "truncated": call.truncated}
        fields |= {"queue_ms": round(call.queue_s * 1000, 1), "inference_ms": round(call.inference_s * 1000, 1)}
    return fields
