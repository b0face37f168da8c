"""The models of a server by name: started, checked, replaced by newer ones while requests continue, and closed."""

import asyncio
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertie import Tokenizer
from bertie.apps.serve.admission import Admission
from bertie.apps.serve.batcher import Batcher
from bertie.apps.serve.call import Call
from bertie.apps.serve.errors import ENDS, Refusal
from bertie.apps.serve.golden import check_golden_answer
from bertie.apps.serve.metrics import Metrics
from bertie.apps.serve.remote import Worker, WorkerSettings
from bertie.apps.serve.served import Served
from bertie.apps.serve.versions import Versions
from bertie.apps.serve.watching import Watch
from bertie.platform import BertieError, DataError, Example, ModelFolder, Prediction, Sequences, Traffic, nearest

if TYPE_CHECKING:
    from bertie.apps.serve.served_index import ServedIndex

SHADOW_NICE = 19  # of a version that answers nobody


@dataclass(frozen=True)
class Process:
    """The process of a server. started: its start in ticks of the kernel, which tells it from others; "" if unknown."""

    pid: int
    started: str

    @classmethod
    def this(cls) -> "Process":
        """Returns the running process."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> "Process":
        """Returns the process of an id on this machine."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            return cls(pid, "")
        return cls(pid, fields[19])


@dataclass
class Reloads:
    """The reloads of a server. number: how often one began; outcomes: of the last that ended, by model."""

    number: int = 0
    running: bool = False
    queued: bool = False
    outcomes: dict[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class Fleet:
    """The models of a server. paths: path by name. replicas: number of workers per model, made by `worker`.

    watch: what is kept of their traffic. versions: two of them that are compared.
    index_paths: folders of indexes, by name. process: that of the server, which SIGHUP tells to load the models again.
    """

    paths: Mapping[str, Path]
    settings: WorkerSettings
    admission: Admission
    metrics: Metrics
    max_batch_tokens: int | None = None
    replicas: int = 1
    log: Any = None
    index_paths: Mapping[str, Path] = field(default_factory=dict)
    worker: Callable[[WorkerSettings], Worker] = Worker
    watch: Watch = field(default_factory=Watch)
    versions: Versions | None = None
    models: dict[str, Served] = field(default_factory=dict)
    indexes: dict[str, "ServedIndex"] = field(default_factory=dict)
    draining: bool = False
    process: Process | None = None
    reloads: Reloads = field(default_factory=Reloads)
    _closing: set["asyncio.Task[None]"] = field(default_factory=set)
    _reloading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def start(self) -> None:
        """Loads every model. Raises BertieError for a model that cannot be served, after stopping the others."""
        async with self._reloading:
            indexes = await asyncio.to_thread(self._open_indexes)
            units = await asyncio.to_thread(self._units)
            loaded = await asyncio.gather(*(self.load(base, unit) for base, unit in units), return_exceptions=True)
            models = {name: one for unit in loaded if isinstance(unit, dict) for name, one in unit.items()}
            self.models = {name: models[name] for name in self.paths if name in models}
            for one in loaded:
                if isinstance(one, BaseException):
                    await self.kill()
                    raise one
            try:
                self._check_versions(self.models)
            except BertieError:
                await self.kill()
                raise
            for model in self.models.values():
                self.watch.add(model)
            self.watch.start()
            await asyncio.to_thread(self._link, indexes)

    def _units(self) -> list[tuple[Path | None, dict[str, Path]]]:
        """Returns what is loaded together: models alone, and several adapters with their base."""
        bases = {name: ModelFolder(path).adapter_base for name, path in self.paths.items()}
        together: dict[Path, dict[str, Path]] = {}
        for name, base in bases.items():
            if base is not None:
                together.setdefault(base.resolve(), {})[name] = self.paths[name]
        several = [(base, unit) for base, unit in together.items() if len(unit) > 1]
        taken = {name for _, unit in several for name in unit}
        return [*((None, {name: path}) for name, path in self.paths.items() if name not in taken), *several]

    @property
    def batchers(self) -> set[Batcher]:
        """The queues of the models. Adapters on one base have one."""
        return {model.batcher for model in self.models.values()}

    def _check_versions(self, models: Mapping[str, Served]) -> None:
        """Raises UsageError for two versions that cannot be compared."""
        if self.versions is not None:
            self.versions.check(models[self.versions.old], models[self.versions.new])

    def routed(self, model: Served, request: bytes) -> Served:
        """Returns the version of a model that answers a request: the old one, where the new one's process has ended.

        request: its id.
        """
        version = model if self.versions is None else self.models[self.versions.version_for(model.name, request)]
        return version if version.batcher.ready else model

    def count(self, call: Call, examples: Sequence[Example], encoded: Sequences, answers: Sequence[Prediction]) -> None:
        """Counts texts and answers of a request."""
        self.watch.count(call.model, examples, encoded, answers)
        if self.versions is not None:
            self.versions.count(call, examples, answers, self.watch)

    def switch(self) -> None:
        """Sends all requests to the version that was chosen."""
        if self.versions is not None:
            try:
                self._tell("switched", model=self.versions.switch())
            except (BertieError, OSError) as error:
                self._tell("switch_failed", reason=str(error))

    def _open_indexes(self) -> dict[str, "ServedIndex"]:
        """Returns the open indexes. Raises DataError."""
        if not self.index_paths:
            return {}
        from bertie.apps.serve.served_index import ServedIndex

        return {name: ServedIndex.load(name, path) for name, path in self.index_paths.items()}

    def _link(self, indexes: "dict[str, ServedIndex]") -> None:
        """Finds the models of the indexes' vectors, and takes the indexes into use."""
        for index in indexes.values():
            index.link(self.models)
            if index.content and not index.embedder:
                reason = "the model of its vectors is not served"
                self._tell("index_without_vectors", index=index.name, reason=reason)
        self.indexes = indexes

    async def load(self, base: Path | None, unit: Mapping[str, Path], generation: int = 1) -> dict[str, Served]:
        """Loads one model, or several adapters with their base, in processes of their own, and checks them.

        Raises BertieError.
        """
        name = next(iter(unit))
        model = (await asyncio.to_thread(ModelFolder, unit[name] if base is None else base)).path
        folder = ModelFolder(model.resolve().parent.parent if model.suffix == ".onnx" else model)
        await asyncio.to_thread(lambda: folder.public)
        if generation > 1:  # the old model goes on if this one is damaged
            damage = await asyncio.to_thread(folder.damage)
            if damage:
                raise DataError(f"{damage[0]} The files in {folder.path} are not those that its checksums.json lists.")
        settings = replace(self.settings, model=str(model))
        if base is not None:
            settings = replace(settings, adapters={one: str(path) for one, path in unit.items()})
        if self.versions is not None and self.versions.shadow and name == self.versions.new:
            settings = replace(settings, nice=SHADOW_NICE)
        workers = [self.worker(settings) for _ in range(self.replicas)]
        try:
            facts = [await worker.start() for worker in workers]
            for one in unit:
                self.admission.add(one)

            def report(adapter: str, tokens: int, sequences: int, seconds: float, full: bool) -> None:
                if full:
                    for one in unit:
                        self.admission.rates[one].add(tokens, seconds / sum(worker.lanes for worker in workers))
                self.metrics.batch_size.observe(sequences)
                self.metrics.batch_tokens.observe(tokens)
                self.metrics.counts.add("bertie_tokens_total", adapter or name, amount=tokens)

            most = self.max_batch_tokens or batch_tokens(facts[0].device)
            batcher = Batcher(workers, max_tokens=most, report=report)
        except BaseException:
            await asyncio.gather(*(worker.stop() for worker in workers))
            raise
        batcher.on_restart = lambda why: self._restarted(name, why)
        tokenizers: dict[Path, Tokenizer] = {}
        if base is None:
            served = {name: Served(name, folder.path, batcher, workers[0].sha, generation)}
        else:
            shas = {one: (await asyncio.to_thread(Traffic.of_model, path)).model for one, path in unit.items()}
            served = {
                one: Served(one, path, batcher, shas[one], generation, base=base, tokenizers=tokenizers)
                for one, path in unit.items()
            }
        try:
            for adapted in served.values():
                await self._check(adapted)
        except BaseException:
            await batcher.kill()
            raise
        return served

    async def _check(self, served: Served) -> None:
        """Reads the files of a model, and checks its answers. Raises BertieError."""
        # so that requests continue while files are read and the fast encoder is made
        await asyncio.to_thread(lambda: served.tokenizer.flat_ids(()))
        if self.index_paths and served.base is None:  # now, as a failed reload keeps the model and not its files
            await asyncio.to_thread(lambda: served.content)
        served.facts.training_facts.check_reads_texts("bertie serve")
        await check_golden_answer(served)

    def _restarted(self, name: str, why: str) -> None:
        self.metrics.counts.add("bertie_worker_restarts_total", name)
        self._tell("worker_restart", model=name, reason=why)

    def _tell(self, event: str, **fields: object) -> None:
        if self.log is not None:
            self.log(event, **fields)

    @property
    def ready(self) -> bool:
        """Whether every model can answer and the server is not stopping. One that only reads along is not needed."""
        along = self.versions.reading_along if self.versions is not None else ""
        needed = [model for name, model in self.models.items() if name != along]
        return bool(needed) and not self.draining and all(model.batcher.ready for model in needed)

    @property
    def busy(self) -> bool:
        """Whether any model has requests in progress."""
        return any(one.busy for one in self.batchers)

    def choose(self, name: str | None, kinds: tuple[str, ...], path: str) -> Served:
        """Returns the named model, or the first suitable one. Raises Refusal."""
        if name and name in self.models:
            model = self.models[name]
            if not model.suits(kinds):
                can = ", ".join(model.kinds)
                message = f"Model {name!r} does not answer {path}: it answers for {can}."
                raise Refusal("Backend", message, param="model", code="wrong-model")
            return model
        own, slash, rest = (name or "").rpartition("/")
        if slash and own in self.models:  # in an address: /models/NAME/ROUTE
            where = f'Send the request to /{rest[:80]} with the key "model": {json.dumps(own)}, or to /models/{own}.'
            raise Refusal("NotFound", f"The address of a model has no routes below it. {where}")
        if name and len(self.models) > (1 if self.versions is None else 2):
            message = f"There is no such model. {nearest(name[:80], self.models)}"
            raise Refusal("NotFound", message, param="model", code="unknown-name")
        # One model alone answers whatever name clients of other servers were set up with.
        for kind in kinds or (None,):
            for model in self.models.values():
                if kind is None or model.suits([kind]):
                    return model
        message = f"No model of this server answers {path}; that needs one for {', '.join(kinds)}."
        raise Refusal("Backend", message, code="wrong-model")

    async def reload(self) -> dict[str, str]:
        """Loads every model from its folder again. One that fails its check does not replace the old one.

        However many reloads are wanted while another one runs, one follows it. Returns the outcomes by model.
        """
        if self.reloads.queued:
            return {}
        if self._reloading.locked():
            self._tell("reload_queued")
        self.reloads.queued = True
        async with self._reloading:
            self.reloads.queued, self.reloads.running = False, True
            self.reloads.number += 1
            self._tell("reload_started", number=self.reloads.number)
            outcomes = {}
            for base, unit in await asyncio.to_thread(self._units):
                outcome = await self._replace(base, unit)
                for name in unit:
                    outcomes[name] = outcome
                    self.metrics.counts.add("bertie_reloads_total", name, outcome.partition(":")[0])
            try:
                await asyncio.to_thread(lambda: self._link(self._open_indexes()))
            except (BertieError, OSError) as error:
                outcomes["--index"] = f"failed: {error}"
                self._tell("reload_failed", reason=str(error))
            self.reloads.running, self.reloads.outcomes = False, outcomes
        return outcomes

    async def _replace(self, base: Path | None, unit: Mapping[str, Path]) -> str:
        """Loads a model, or adapters with their base, again. Returns the outcome."""
        old = [self.models[name] for name in unit]
        try:
            new = await self.load(base, unit, old[0].generation + 1)
            try:
                self._check_versions({**self.models, **new})
            except BertieError:
                await next(iter(new.values())).batcher.kill()
                raise
        except ENDS:
            raise
        except BaseException as error:
            message = error.message if isinstance(error, Refusal) else str(error)
            self._tell("reload_failed", model=", ".join(unit), reason=message)
            return f"failed: {message}"
        for name, model in new.items():
            self.models[name] = model
            self.watch.add(model)
            self._tell("reloaded", model=name, sha=model.sha, generation=model.generation)
        task = asyncio.create_task(self._retire(old))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return "done"

    async def _retire(self, old: Sequence[Served]) -> None:
        """Waits for the requests of replaced models, then closes their queues that no other model has."""
        while any(model.calls for model in old):
            await asyncio.sleep(0.05)
        await asyncio.gather(*(batcher.close() for batcher in {model.batcher for model in old} - self.batchers))

    async def kill(self) -> None:
        """Ends every process, after what was counted is saved."""
        await self.watch.close()
        if self.versions is not None:
            self.versions.close()
        await asyncio.gather(*(batcher.kill() for batcher in self.batchers))


def batch_tokens(device: str) -> int:
    """Returns the tokens per batch. On a CPU, larger batches are not faster, so batches are small."""
    return 2_048 if device == "cpu" else 16_384


def parse_named_folders(arguments: list[str], *, index: bool = False) -> dict[str, Path]:
    """Returns the folders of NAME=FOLDER or FOLDER, of indexes or of models, which may be names instead of folders.

    Raises DataError for a missing folder or a repeated name.
    """
    folders: dict[str, Path] = {}
    for argument in arguments:
        name, equals, rest = argument.partition("=")
        path = Path(argument)
        if equals and not path.exists():
            path = Path(rest)
            if not name:
                raise DataError(f"{argument} has no name before the equals sign. Write NAME=FOLDER, or only FOLDER.")
            if name in folders:
                raise DataError(f"Two folders are called {name!r}. Give each its own name: NAME=FOLDER.")
        else:
            name = model_name(path, folders)
        if not index:
            ModelFolder(path).check_exists()
        elif not path.exists():
            raise DataError(f"{path} does not exist. Pass the folder of an index.")
        folders[name] = path
    return folders


def model_name(path: Path, taken: Collection[str]) -> str:
    """Returns a model's name: that of its folder or run, with a number if it is taken."""
    folder = path.resolve()
    usual = folder.parent.name if folder.name in ("model", "best") and folder.parent.name else folder.name
    name, number = usual, 2
    while name in taken:
        name, number = f"{usual}-{number}", number + 1
    return name
