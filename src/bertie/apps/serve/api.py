"""The function `bertie.serve`: a server in its own processes, for notebooks, scripts and tests."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from bertie import Model
from bertie.platform import BertieError, UsageError, checked_arguments

AnyModel = Model | str | Path
STOP_S = 30.0  # until a server that was asked to stop is ended


class Server:
    """A running server. `url` is its address; `close` stops it, and so does the end of a `with` block.

    Attributes:
        url: The address: routes are at URL/docs, and a page for people at URL.
        models: The names of the models.
    """

    def __init__(
        self, process: "subprocess.Popen[str]", url: str, models: tuple[str, ...], files: "TemporaryDirectory[str]"
    ) -> None:
        self.url, self.models = url, models
        self._process, self._files = process, files

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "running" if self._process.poll() is None else "stopped"
        return f"Server({self.url!r}, models={', '.join(self.models)}, {state})"

    def _repr_html_(self) -> str:
        return f'<a href="{self.url}">{self.url}</a> ({", ".join(self.models)})'

    def close(self) -> None:
        """Stops the server. Requests that it has begun are answered first."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._files.cleanup()


@checked_arguments
def serve(
    models: AnyModel | Mapping[str, AnyModel],
    *,
    index: Mapping[str, str | Path] | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    device: str = "auto",
    precision: str = "fp32",
    engine: str = "auto",
    threads: int | None = None,
    log: str | Path | None = None,
    shadow: str | Path | None = None,
    traffic: Mapping[str, float] | None = None,
) -> Server:
    """Starts a server of models over HTTP, with a page for the browser, and returns when it answers.

    Args:
        models: A model, or models by the names that requests use. A model without a folder is saved to a temporary one.
        index: Folders of indexes to search, by name.
        host: Address to listen on. For another one than this machine's own, use `bertie serve` with a key.
        port: Port. 0: a free one.
        device: cpu, cuda, cuda:1, mps or auto.
        precision: fp32, bf16 or auto.
        engine: On a CPU native, torch or auto.
        threads: Threads of each model. Default: all cores.
        log: File to add counts of texts and answers to, without any text, for `drift`.
        shadow: Name or folder of a model that reads the requests to the first one after the answer, to compare.
        traffic: Part of the requests to the first model that another model answers, by its name or folder.

    Returns:
        The server, in processes of its own.

    Raises:
        UsageError: No model is given, or a name of an option is unknown.
        BertieError: The server cannot start; the message is that of `bertie serve`.

    Example:
        >>> import json, urllib.request
        >>> with bertie.serve({"reviews": "runs/reviews"}) as server:
        ...     body = json.dumps({"inputs": "the soup was cold"}).encode()
        ...     request = urllib.request.Request(f"{server.url}/predict", body, {"Content-Type": "application/json"})
        ...     answer = json.load(urllib.request.urlopen(request))
        >>> answer[0]["label"]
        'bad'
    """
    by_name = models if isinstance(models, Mapping) else {"model": models}
    if not by_name:
        raise UsageError("`models` is empty. Pass a model, or models by name.")
    files = TemporaryDirectory(prefix="bertie-serve-")
    try:
        places = [f"{name}={_folder(model, Path(files.name) / name)}" for name, model in by_name.items()]
        options = [
            "--host",
            host,
            "--port",
            str(port),
            "--device",
            device,
            "--precision",
            precision,
            "--engine",
            engine,
        ]
        options += [] if threads is None else ["--threads", str(threads)]
        options += [f"--index={name}={folder}" for name, folder in (index or {}).items()]
        options += [] if log is None else ["--log", str(log)]
        options += [] if shadow is None else ["--shadow", str(shadow)]
        options += [f"--traffic={name}={share}" for name, share in (traffic or {}).items()]
        messages = Path(files.name) / "log"
        with messages.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "bertie", "serve", *places, *options, "--json"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            process.wait()
            log = messages.read_text(encoding="utf-8", errors="replace").strip()
            raise BertieError(f"The server ended before it answered. {log.rpartition(chr(10))[2]}".strip())
        ready = json.loads(line)
        if "error" in ready:
            process.wait()
            raise BertieError(ready["error"], code=ready["code"])
        return Server(process, ready["url"], tuple(ready["models"]), files)
    except BaseException:
        files.cleanup()
        raise


def _folder(model: AnyModel, temporary: Path) -> Path:
    """Returns the folder or the name of a model. One without a folder is saved."""
    if not isinstance(model, Model):
        return Path(model)
    return model.folder.resolve() if model.folder is not None else model.save(temporary)
