"""The process of one model: it loads the folder, sends its facts, and runs batches until the server ends.

    python -m bertie.apps.serve.worker DESCRIPTOR '{"model": FOLDER, ...}'

An engine whose batches need one core each runs as many batches at once as it has threads: its lanes.

The server handles interrupts of the terminal. The worker ends when its socket is closed.
"""

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from bertie import platform
from bertie.apps.serve import wire
from bertie.platform import BertieError, Sequences, UsageError

if TYPE_CHECKING:
    from bertie.platform import Engine

OOM_FIRST = 500  # of 1,000: when memory runs out the kernel ends a worker, which is restarted, before the server
Attend = Callable[[Sequences], Mapping[str, object]]


def serve_model(descriptor: str, settings: str) -> None:
    """Serves one model on an inherited socket."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _prefer_to_die()
    with socket.socket(fileno=int(descriptor)) as connection:
        try:
            values = json.loads(settings)
            os.nice(values.pop("nice"))
            attend = attention_of(Path(values["model"])) if values.pop("attention") else None
            engines, sha = load_engines(**values)
        except BaseException as error:  # a panic of Rust is no Exception
            codes = {name: getattr(error, name, getattr(BertieError, name)) for name in ("exit_code", "code")}
            _send(connection, {"error": str(error) or repr(error), **codes}, {})
            return
        lanes = Lanes(engines, connection, attend)
        facts = {name: engine.facts.as_json() for name, engine in engines.items()}
        first = next(iter(facts.values()))
        _send(connection, {"facts": first, "adapters": facts, "sha": sha, "lanes": lanes.count}, {})
        for lane in range(1, lanes.count):
            threading.Thread(target=lanes.run, args=(lane,), daemon=True).start()
        lanes.run(0)


@runtime_checkable
class Threaded(Protocol):
    """An engine that computes a batch on some threads, so that several batches can be computed at once."""

    @property
    def threads(self) -> int:
        """The number of threads."""
        ...

    def with_threads(self, threads: int) -> "Engine":
        """Returns the engine with another number of threads."""
        ...


@runtime_checkable
class Streaming(Protocol):
    """An engine that generates text."""

    def stream(self, ids: Sequences, output: str) -> Iterator[int]:
        """Yields the tokens of one text as they are generated."""
        ...


class Lanes:
    """Batches that are computed at once: each on one thread, or on all threads if there is only one batch.

    count: how many at once; 1 for an engine whose batches use all cores.
    """

    def __init__(
        self, engines: "Mapping[str, Engine]", connection: socket.socket, attend: "Attend | None" = None
    ) -> None:
        engine = next(iter(engines.values()))
        self.count, self.alone, self.beside, self.engines = 1, engine, engine, engines
        if isinstance(engine, Threaded):
            self.count, self.beside = engine.threads, engine.with_threads(1)
        self.connection, self.attend = connection, attend
        self.reading, self.writing = threading.Lock(), threading.Lock()
        self.running = set[int]()

    def run(self, lane: int) -> None:
        """Computes batch after batch, until the server has gone."""
        while True:
            with self.reading:
                message = _receive(self.connection)
            if message is None:
                os._exit(0)
            header, arrays = message
            outputs: Mapping[str, Any] = {}
            reply = {"number": header["number"]}
            self.running.add(lane)
            engine = self.alone if len(self.running) == 1 else self.beside
            if header["adapter"]:
                engine = self.engines[header["adapter"]]
            try:
                ids = wire.read_sequences(arrays)
                attending = self.attend is not None and header["outputs"] == [wire.ATTENTION]
                if header.get("stream"):
                    self._stream(ids, header, engine)
                else:
                    outputs = self.attend(ids) if self.attend and attending else engine.run(ids, header["outputs"])
            except BaseException as error:  # the server tries the batch's requests one by one
                reply["error"] = f"{type(error).__name__}: {error}"[:500]
            self.running.discard(lane)
            with self.writing:
                _send(self.connection, reply, outputs)

    def _stream(self, ids: Sequences, header: Mapping[str, Any], engine: "Engine") -> None:
        """Sends each token of one text as it is generated. Only the torch engine generates."""
        import numpy as np

        assert isinstance(engine, Streaming), "its facts say whether a model generates"
        for token in engine.stream(ids, header["outputs"][0]):
            with self.writing:
                _send(
                    self.connection,
                    {"number": header["number"], "more": True},
                    {wire.GENERATED_TOKEN: np.array([token])},
                )


def attention_of(model: Path) -> "Attend":
    """Returns what computes the attention of one text, in a second copy of the model.

    Raises UsageError for a graph, and for a family without attention.
    """

    if (graph := platform.ModelFolder(model).graph) is not None:
        raise UsageError(f"{graph} does not return its attention. Omit --attention.")
    import numpy as np

    from bertie.apps.explain.attention import attentions, telling

    loaded = platform.ModelFolder(model).load().eval().requires_grad_(False)
    try:
        attentions(loaded, [0, 0], [0, 0])
    except UsageError as error:
        raise UsageError(f"{error} Omit --attention.") from None

    def attend(ids: Sequences) -> Mapping[str, Any]:
        probs = attentions(loaded, ids.input_ids.tolist(), ids.token_type_ids.tolist())
        return {wire.ATTENTION: probs, wire.TELLING: np.array(telling(probs, ids.extra[wire.WORDS]))}

    return attend


def load_engines(
    model: str, precision: str, device: str, engine: str, threads: int | None, adapters: Mapping[str, str]
) -> tuple["Mapping[str, Engine]", str]:
    """Returns the engine of a model folder, or of each adapter by name, and the hash of the weights."""
    options = {"precision": precision, "device": device, "engine": engine}
    if adapters:
        engines = platform.ModelFolder(model).open_adapters(adapters, threads=threads, **options)
        shas = [platform.Traffic.of_model(Path(place)).model for place in (model, *adapters.values())]
        return engines, " ".join(shas)
    runner = platform.ModelFolder(model).open_engine(threads=threads, **options)
    graph = platform.ModelFolder(model).graph
    return {"": runner}, platform.Traffic.of_model(graph or Path(model)).model


def _prefer_to_die() -> None:
    try:
        Path("/proc/self/oom_score_adj").write_text(str(OOM_FIRST))
    except OSError:
        return  # not Linux, or not allowed


def _send(connection: socket.socket, header: Mapping[str, object], arrays: wire.Arrays) -> None:
    try:
        for part in wire.pack_message(header, arrays):
            connection.sendall(part)
    except OSError:  # the server has gone
        os._exit(0)


def _receive(connection: socket.socket) -> tuple[dict[str, Any], dict[str, Any]] | None:
    prefix = _read(connection, wire.PREFIX.size)
    if prefix is None:
        return None
    header_size, size = wire.PREFIX.unpack(prefix)
    text, data = _read(connection, header_size), _read(connection, size)
    return None if text is None or data is None else wire.unpack_message(bytes(text), data)


def _read(connection: socket.socket, size: int) -> bytearray | None:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        try:
            count = connection.recv_into(view)
        except OSError:
            return None
        if not count:
            return None
        view = view[count:]
    return data


if __name__ == "__main__":
    serve_model(*sys.argv[1:])
