"""Models and servers for the tests of `bertie serve`: toys for every task, workers in this process, a live server."""

import asyncio
import json
import string
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import uvicorn

from bertie.apps.serve.fleet import Fleet
from bertie.apps.serve.remote import BatchFailed, Worker, WorkerSettings
from bertie.apps.serve.server import Options, QuietServer, uvicorn_settings
from bertie.apps.serve.server import build_application as build_server
from bertie.apps.serve.wire import ATTENTION
from bertie.apps.serve.worker import attention_of
from bertie.infer.choose import engine_of
from bertie.infer.engine import Facts
from bertie.infer.traffic import Traffic
from bertie.models import families
from bertie.objectives import build_objective
from bertie.runs.weights import load_model
from bertie.tasks import TASKS, with_task
from bertie.text.sequences import Sequences
from bertie.text.tokenizer import Tokenizer
from bertie.training_facts import TrainingFacts
from toys import TASK_OPTIONS, toy_model, toy_writer

LETTERS = [*string.ascii_lowercase, *("##" + c for c in string.ascii_lowercase)]
LABELS = {
    "few-shot": ("no", "yes"),
    "soft": ("no", "yes"),
    "sequence": ("no", "yes"),
    "multilabel": ("x", "y"),
    "rank": ("0", "1"),
    "relation": ("no_relation", "of"),
}
LABELS |= {"tagging": ("O", "B-X", "I-X"), "parse": ("root", "x"), "regression": ("score",)}
PAIRS = ("rank", "span", "embed")
TASK_NAMES = [name for name, _ in TASKS.items()]
MAX_LENGTH = 48


def make_models(home: Path, tasks: Sequence[str] = TASK_NAMES) -> dict[str, Path]:
    """A model folder of random weights for every task, and a pre-trained one."""
    starts, found = {"text2text": toy_writer(home / "writer")}, {}
    for name in tasks:
        start = starts.get(name) or toy_model(home / "start", LETTERS)
        found[name] = make_model(start, home / name, name, TASK_OPTIONS.get(name, {}), 2 if name in PAIRS else 1)
    start = home / "start"
    model, _ = families.load(start, heads=build_objective({"mlm": {}, "nsp": {}}).heads, seed=0)
    families.save(model, home / "pretrained", tokenizer=Tokenizer.load(start))
    return found | {"pretrained": home / "pretrained"}


def make_model(start: Path, folder: Path, name: str, options: Mapping[str, Any], texts: int | None) -> Path:
    """A model folder of random weights for a task. texts: of its examples; None: of several numbers."""
    task = TASKS[name].make(LABELS.get(name, ()), options)
    tokenizer = Tokenizer.load(start)
    model, _ = families.load(start, heads=task.heads, seed=0)
    model.labels, model.problem_type = task.labels, task.problem_type
    model.training_facts = with_task(TrainingFacts(max_length=MAX_LENGTH, too_long=task.too_long, texts=texts), task)
    families.save(model, folder, tokenizer=tokenizer)
    return folder


class LocalWorker(Worker):
    """A model in this process. delay_s, token_s: what each batch and each generated token takes longer; batches: the
    lengths of those that were run."""

    delay_s = token_s = 0.0

    def __init__(self, settings: WorkerSettings) -> None:
        super().__init__(settings)
        self.batches: list[list[int]] = []

    @property
    def alive(self) -> bool:
        return self.facts is not None

    async def start(self) -> Facts:
        self.engine = engine_of(load_model(self.settings.model))
        self.attend = attention_of(Path(self.settings.model)) if self.settings.attention else None
        self.facts, self.sha = self.engine.facts, Traffic.of_model(Path(self.settings.model)).model
        return self.facts

    async def run(
        self,
        ids: Sequences,
        outputs: Sequence[str],
        on_token: Callable[[int], None] | None = None,
        adapter: str = "",
    ) -> Mapping[str, Any]:
        self.batches.append(ids.lengths.tolist())
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        try:
            if self.attend and tuple(outputs) == (ATTENTION,):
                return await asyncio.to_thread(self.attend, ids)
            if on_token:
                return await asyncio.to_thread(self.stream, ids, outputs, on_token, asyncio.get_running_loop())
            return await asyncio.to_thread(self.engine.run, ids, outputs)
        except Exception as error:
            raise BatchFailed(repr(error)) from None

    def stream(
        self, ids: Sequences, outputs: Sequence[str], on_token: Callable[[int], None], loop: asyncio.AbstractEventLoop
    ) -> Mapping[str, Any]:
        for token in self.engine.stream(ids, *outputs):
            time.sleep(self.token_s)
            loop.call_soon_threadsafe(on_token, token)
        return {}

    async def stop(self) -> int | None:
        return None


class Process:
    """`bertie serve` with these arguments, ready. before: a command that starts it."""

    def __init__(self, log: Path, *arguments: object, before: Sequence[str] = ()) -> None:
        self.log = log
        command = [*before, sys.executable, "-m", "bertie", "serve", *map(str, arguments), "--port", "0", "--json"]
        with log.open("w") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, log.read_text()
        self.url = json.loads(line)["url"]
        self.client = httpx.Client(base_url=self.url, timeout=30)

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait()

    def post(self, path: str, body: object) -> httpx.Response:
        return self.client.post(path, json=body)

    def ready(self) -> int:
        try:
            return httpx.get(self.url + "/readyz", timeout=5).status_code
        except httpx.HTTPError:
            return 0

    def workers(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()


class Load(threading.Thread):
    """Requests one after another until it is stopped; how each ended."""

    def __init__(self, url: str, body: object, path: str = "/embed") -> None:
        super().__init__(daemon=True)
        self.url, self.path, self.body, self.found, self.over = url, path, body, [], False

    def run(self) -> None:
        with httpx.Client(base_url=self.url, timeout=60) as client:
            while not self.over:
                try:
                    self.found.append(client.post(self.path, json=self.body).status_code)
                except httpx.HTTPError as error:
                    self.found.append(type(error).__name__)
                    if isinstance(error, httpx.ConnectError):
                        return

    def stop_when_closed(self) -> list[object]:
        self.join(60)
        return self.found

    def stop(self) -> list[object]:
        self.over = True
        self.join(60)
        return self.found


def until(condition: Callable[[], Any], seconds: float = 40.0) -> Any:
    """Waits until a condition holds. -> its value"""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


class Live:
    """A server in a thread of this process, on a free port of the loopback interface."""

    def __init__(self, options: Options, worker: type[Worker]) -> None:
        self.options, self.worker = options, worker
        self.fleet: Fleet
        self.client = httpx.Client(timeout=30)
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> "Live":
        self._thread.start()
        assert self._ready.wait(60)
        if self._error:
            raise self._error
        return self

    def stop(self) -> None:
        self.client.close()
        self.server.should_exit = True
        self._thread.join(20)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
            self._ready.set()

    async def _serve(self) -> None:
        from bertie.apps.serve.server import bind

        self.loop = asyncio.get_running_loop()
        self.fleet, self.application = build_server(self.options)
        self.fleet.worker = self.worker
        await self.fleet.start()
        listener = bind("127.0.0.1", 0)
        self.port = listener.getsockname()[1]
        self.server = QuietServer(
            uvicorn.Config(self.application, **uvicorn_settings(self.application.fleet.admission.content))
        )
        task = asyncio.create_task(self.server.serve(sockets=[listener]))
        while not self.server.started:
            await asyncio.sleep(0.01)
        self._ready.set()
        await task
        await self.fleet.kill()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return self.client.post(self.url + path, json=body, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.client.get(self.url + path, **options)

    def ok(self, path: str, body: Any) -> Any:
        """-> the JSON of an answer that is 200"""
        response = self.post(path, body)
        assert response.status_code == 200, response.text
        return response.json()


@contextmanager
def live(models: Mapping[str, Path], kind: type[Worker] = LocalWorker, **options: Any) -> Iterator[Live]:
    """A server of these models; options: of `Options`."""
    server = Live(Options(models, access_log=False, **options), kind).start()
    try:
        yield server
    finally:
        server.stop()
