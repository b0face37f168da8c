"""`bertie serve --on ray`: the same application in replicas on a Ray cluster.

    client -> Ray Serve's proxy -> Front: checks, tries again -> one of the replicas: the application and its models

Ray Serve starts replicas, watches them, adds some under load, and replaces them one after another by a new version.
A request whose replica ended goes to another one: answers do not depend on the replica, and a request changes nothing.
"""

import asyncio
import logging
import os
import queue
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from types import FrameType
from typing import Any

from bertie.apps.serve.admission import Admission, Budget
from bertie.apps.serve.errors import Refusal, Refused
from bertie.apps.serve.guard import SAFE, AsgiMessage, Guard, Receive, Send, defect
from bertie.apps.serve.log import LOG, log_line
from bertie.apps.serve.server import FLUSH_S, Options, bind, build_application, limits_of
from bertie.platform import BertieError, UsageError

FRONT, MODELS = "bertie", "bertie-models"  # applications in Ray Serve; the first stays while the second is replaced
_TRIES = 3  # replicas that a request is sent to
TARGET = 8  # requests in progress per thread of a replica, above which replicas are added
SCALE_S, HEALTH_S = 5.0, 5.0
_MAX_FAILED_STARTS = 2  # of a new version, that fail, until the old one is kept
SURGE = 20  # percent of replicas, at least one, that are added while a new version replaces the old one
ANY_NUMBER, MOST_OPEN = 1 << 62, 4_096  # of texts; of requests in Front
SET_BY_FRONT = {b"x-request-id", *(name for name, _ in SAFE)}

Headers = Sequence[tuple[bytes, bytes]]
Answered = tuple[int, Headers, bytes]
"""Status, headers, body."""


@dataclass(frozen=True)
class ReplicaRequest:
    """A request on its way to a replica."""

    method: str
    path: str
    query: bytes
    headers: Headers
    body: bytes


class Replica:
    """The application without a socket."""

    async def __init__(self, options: Options) -> None:  # type: ignore[misc]  # Ray Serve awaits it
        self.fleet, self.application = build_application(options)
        await self.fleet.start()

    async def __del__(self) -> None:  # Ray Serve awaits it when the replica stops
        await self.fleet.kill()

    async def __call__(self, request: ReplicaRequest) -> Answered:
        """Answers a request."""
        scope: dict[str, Any] = {"type": "http", "http_version": "1.1", "scheme": "http", "root_path": ""}
        scope |= {"client": None, "server": None, "method": request.method, "path": request.path}
        scope |= {"raw_path": request.path.encode(), "query_string": request.query, "headers": list(request.headers)}
        bodies: list[AsgiMessage] = [{"type": "http.request", "body": request.body}]
        messages: list[AsgiMessage] = []

        async def receive() -> AsgiMessage:
            if not bodies:
                await asyncio.Event().wait()  # when the client disconnects, Front cancels this task
            return bodies.pop()

        async def send(message: AsgiMessage) -> None:
            messages.append(message)

        await self.application(scope, receive, send)
        return (
            messages[0]["status"],
            messages[0]["headers"],
            b"".join(message.get("body", b"") for message in messages[1:]),
        )

    async def check_health(self) -> None:
        """Raises RuntimeError while a model is not ready. Ray Serve then replaces the replica."""
        if not self.fleet.ready:
            raise RuntimeError("A model is not ready.")


class Front:
    """An ASGI application that hands requests to replicas. replicas: Ray Serve's handle."""

    def __init__(self, options: Options, replicas: Any) -> None:
        LOG.start()
        self.replicas = replicas
        admission = Admission(Budget("texts", ANY_NUMBER), Budget("bytes", options.max_held_bytes))
        self.guard = Guard(self.forward, limits_of(options), admission, lambda: False, lambda facts: None, defect)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "lifespan":
            while True:
                await send({"type": (await receive())["type"] + ".complete"})
        await self.guard(scope, receive, send)

    async def forward(self, scope: Any, receive: Receive, send: Send) -> None:
        """Sends a checked request to a replica and its answer to the client. Raises Refusal."""
        body = (await receive())["body"] if scope["method"] == "POST" else b""
        headers = [pair for pair in scope["headers"] if pair[0] not in (b"host", b"authorization", b"x-request-id")]
        headers.append((b"x-request-id", scope["state"]["seen"].id))
        request = ReplicaRequest(scope["method"], scope["path"], scope["query_string"], headers, body)
        status, answer_headers, content = await self.answer(request)
        answer_headers = [pair for pair in answer_headers if pair[0] not in SET_BY_FRONT]
        await send({"type": "http.response.start", "status": status, "headers": answer_headers})
        await send({"type": "http.response.body", "body": content})

    async def answer(self, request: ReplicaRequest) -> Answered:
        """Returns the answer of a replica, of another one if the first ended. Raises Refusal."""
        from ray.exceptions import RayActorError
        from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, ReplicaUnavailableError

        for _ in range(_TRIES):
            try:
                answered: Answered = await self.replicas.remote(request)
                return answered
            except BackPressureError:
                raise Refused("replicas", "Every replica is busy. Try again later.", 1.0) from None
            except DeploymentUnavailableError:
                break
            except (RayActorError, ReplicaUnavailableError):
                continue
        raise Refusal("Unhealthy", "No replica could answer. Try again later.", headers={"Retry-After": "5"})


def serve_on_ray(options: Options, most: int | None, *, on_ready: Callable[[str], None] = lambda url: None) -> int:
    """Serves on the Ray cluster at RAY_ADDRESS, or on a local one, until a signal. SIGHUP loads the models again.

    options.replicas: replicas at the beginning; most: under load. Returns the exit status. Raises UsageError without
    Ray, BertieError for a used port or models that cannot be served.
    """
    options.check()
    if find_spec("ray") is None:
        raise UsageError("--on ray needs Ray: pip install 'bertie[ray]'")
    if most is not None and most < options.replicas:
        raise UsageError(f"--max-replicas is {most}, less than --replicas, which is {options.replicas}.")
    LOG.start()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reports its use over the network unless told not to
    import ray
    from ray import serve

    with bind(options.host, options.port) as listener:
        port = listener.getsockname()[1]
    paths = {name: path.resolve() for name, path in options.models.items()}
    options = replace(options, models=paths, indexes={name: path.resolve() for name, path in options.indexes.items()})
    local = {} if os.environ.get("RAY_ADDRESS") else {"address": "local"}
    with starting():
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="error", **local)
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    signals = queue.SimpleQueue[int]()

    def queue_signal(number: int, frame: FrameType | None) -> None:
        if number != signal.SIGHUP or signals.empty():  # one reload for many signals
            signals.put(number)

    try:
        with starting():
            serve.start(proxy_location="EveryNode", http_options={"host": options.host, "port": port})
        deploy(options, most)
        open_front(options)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, queue_signal)
        on_ready(f"http://{options.host}:{port}")
        while signals.get() == signal.SIGHUP:
            log_line("reload_started")
            try:
                deploy(options, most)
            except BertieError as error:
                log_line("reload_failed", reason=str(error))
            else:
                log_line("reloaded")
        return 0
    finally:
        LOG.flush(FLUSH_S)
        for name in (FRONT, MODELS):  # a cluster may have other applications
            serve.delete(name)
        ray.shutdown()


@contextmanager
def starting() -> Iterator[None]:
    """Context in which Ray's errors become one BertieError."""
    from ray.exceptions import RayError

    try:
        yield
    except (ConnectionError, RayError) as error:
        reason = str(error).strip().splitlines()[-1].strip()
        hint = "Check that the cluster at RAY_ADDRESS runs and that its machines are not busy, then try again."
        raise BertieError(f"Ray could not start: {reason} {hint}") from None


def deploy(options: Options, most: int | None) -> None:
    """Starts the replicas, or replaces those that run by new ones. Raises BertieError if they do not start."""
    import ray
    from ray import serve

    threads = options.worker.threads or 1
    own = replace(options, worker=replace(options.worker, threads=threads), replicas=1, host="", hosts=(), keys=())
    scaled = {"min_replicas": options.replicas, "max_replicas": most, "target_ongoing_requests": TARGET * threads}
    size: dict[str, object] = {"num_replicas": options.replicas}
    if most is not None:
        size = {"autoscaling_config": {**scaled, "upscale_delay_s": SCALE_S, "look_back_period_s": 3 * SCALE_S}}
    needed = {"CPU": threads, "GPU": int(options.worker.device.startswith("cuda"))}
    free = ray.available_resources()  # without capacity for one more replica, an update would wait for ever
    has_capacity = all(free.get(name, 0) >= count for name, count in needed.items())
    replicas = serve.deployment(
        Replica,
        name="models",
        max_ongoing_requests=options.max_concurrent,
        max_queued_requests=options.max_concurrent,
        graceful_shutdown_timeout_s=options.drain_s,
        max_surge_percent=SURGE if has_capacity else 0,
        max_constructor_retry_count=_MAX_FAILED_STARTS,
        health_check_period_s=HEALTH_S,
        ray_actor_options={"num_cpus": needed["CPU"], "num_gpus": needed["GPU"]},
        **size,
    )
    try:
        serve.run(replicas.bind(own), name=MODELS, route_prefix=None)
    except RuntimeError as error:
        deployment = serve.status().applications[MODELS].deployments.get("models")
        lines = [line for line in (deployment.message if deployment else str(error)).splitlines() if line.strip()]
        raise BertieError(f"Ray Serve could not start the models: {lines[-1].strip()}") from None


def open_front(options: Options) -> None:
    """Starts Front behind Ray Serve's proxies."""
    from ray import serve

    def make_front() -> Front:
        return Front(options, serve.get_deployment_handle("models", MODELS))

    front = serve.deployment(
        serve.ingress(make_front)(), name="front", max_ongoing_requests=MOST_OPEN, ray_actor_options={"num_cpus": 0}
    )
    serve.run(front.bind(), name=FRONT)
