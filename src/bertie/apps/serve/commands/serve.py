"""`bertie serve`: models behind HTTP."""

import os
import re
import signal
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from bertie import platform
from bertie.apps import serve as app
from bertie.apps.cli.options import grouped
from bertie.apps.cli.shared import option
from bertie.platform import UsageError, console, nearest

VISIBLE = re.compile(r"[!-~]+")
"""What a header can carry as a key."""
NEEDED = ("starlette", "uvicorn", "httptools", "orjson", "prometheus_client")
API_KEY_VARIABLE = "BERTIE_API_KEY"
_PLACES = ("here", "ray")


@dataclass(frozen=True)
class LimitOptions:
    """Limits of requests."""

    max_concurrent: Annotated[
        int, typer.Option("--max-concurrent", min=1, help="Maximum texts in progress; further requests get status 429.")
    ] = 512
    max_batch_tokens: Annotated[
        int | None,
        typer.Option("--max-batch-tokens", min=1, help="Maximum tokens per batch. Default: depends on the device."),
    ] = None
    max_queued_tokens: Annotated[
        int, typer.Option("--max-queued-tokens", min=1, help="Maximum tokens in progress per model.")
    ] = 65_536
    max_body_bytes: Annotated[int, typer.Option("--max-body-bytes", min=1, help="Maximum bytes per request.")] = (
        2_000_000
    )
    max_held_bytes: Annotated[
        int, typer.Option("--max-held-bytes", min=1, help="Maximum memory in bytes for requests and large responses.")
    ] = 256_000_000
    max_wait_s: Annotated[
        float,
        typer.Option("--max-wait-seconds", min=0.0, help="Maximum seconds before a request's first batch (estimate)."),
    ] = 2.0
    request_s: Annotated[
        float, typer.Option("--request-seconds", min=0.1, help="Time limit per request, in seconds.")
    ] = 60.0
    drain_s: Annotated[
        float, typer.Option("--drain-seconds", min=0.0, help="Seconds to finish requests after SIGTERM.")
    ] = 30.0


@dataclass(frozen=True)
class WatchOptions:
    """What is kept of the models in use."""

    log: Annotated[
        Path | None, typer.Option("--log", help="File to add counts of texts and answers to, for bertie drift.")
    ] = None
    shadow: Annotated[
        str | None,
        typer.Option("--shadow", help="Model that reads the requests to the first one after the answer, to compare."),
    ] = None
    split: Annotated[
        str | None,
        typer.Option("--traffic", help="NEW=0.1: part of the requests to the first model that the model NEW answers."),
    ] = None


@grouped
def serve_command(
    models: Annotated[
        list[str], typer.Argument(help="Folders of models or runs, or exported graphs; NAME=FOLDER gives a name.")
    ],
    limits: LimitOptions,
    watch: WatchOptions,
    index: Annotated[
        list[str] | None,
        typer.Option("--index", help="Folder of an index to search; NAME=FOLDER gives a name; can be repeated."),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 selects a free port.")] = 3000,
    key_file: Annotated[
        Path | None,
        typer.Option("--key-file", help=f"File of API keys, one per line. Default: the key in {API_KEY_VARIABLE}."),
    ] = None,
    no_key: Annotated[bool, typer.Option("--no-key", help="Allow other machines to connect without a key.")] = False,
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", help="Accepted name in the Host header; can be repeated.")
    ] = None,
    too_long: Annotated[
        str | None,
        typer.Option(
            "--too-long", help="Handling of longer texts: truncate, window or error. Default: as in training."
        ),
    ] = None,
    replicas: Annotated[
        int,
        typer.Option("--replicas", min=1, help="Worker processes per model; with --on ray: replicas."),
    ] = 1,
    on: Annotated[str, typer.Option("--on", help="Where models run: here, or ray (a Ray cluster).")] = "here",
    max_replicas: Annotated[
        int | None, typer.Option("--max-replicas", min=1, help="With --on ray: maximum number of replicas under load.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Threads per worker process. Default: all cores.")
    ] = None,
    precision: Annotated[str, option("precision")] = "fp32",
    device: Annotated[str, option("device")] = "auto",
    engine: Annotated[str, option("engine")] = "auto",
    attention: Annotated[
        bool,
        typer.Option(
            "--attention", help="Show what heads attend to, at /attention and on the page. Needs more memory."
        ),
    ] = False,
    no_access_log: Annotated[bool, typer.Option("--no-access-log", help="Do not log a line per request.")] = False,
) -> None:
    """Serve models over HTTP, with a page for the browser.

    Each model runs in its own process. Clients of Text Embeddings Inference, OpenAI's embeddings, Cohere's rerank and
    Hugging Face's pipelines work unchanged. The log goes to standard error as JSON lines, without texts of requests.
    Needs the extra: pip install 'bertie[serve]'.

    \b
    Examples:
      bertie serve runs/reviews/model
      bertie serve sentiment=runs/reviews search=runs/sts --port 8080
      bertie serve models/minilm runs/squad2 --index notes=index
      bertie serve runs/reviews --log traffic.json --shadow runs/reviews-2
      bertie serve runs/reviews --traffic runs/reviews-2=0.1
      bertie serve runs/reviews --host 0.0.0.0 --key-file keys.txt
      bertie serve runs/reviews --on ray --replicas 2 --max-replicas 8
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there are models that can be loaded again
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise UsageError(f"`bertie serve` needs {', '.join(missing)}. Install them: pip install 'bertie[serve]'")

    policies = ("truncate", "window", "error")
    if too_long is not None and too_long not in policies:
        raise UsageError(f"Unknown policy for long texts {too_long!r}. {nearest(too_long, policies)}")
    if on not in _PLACES:
        raise UsageError(f"Unknown place {on!r} for --on. {nearest(on, _PLACES)}")
    if max_replicas is not None and on != "ray":
        raise UsageError("--max-replicas needs --on ray. Omit it, or pass --on ray.")
    platform.ModelFolder(models[0]).check_engine(precision, engine)
    if on == "ray" and (watch.shadow or watch.split):
        raise UsageError("--shadow and --traffic compare models in one server. Omit them, or --on ray.")
    folders, versions = versions_of(models, watch.shadow, watch.split)
    options = app.server.Options(
        folders,
        app.fleet.parse_named_folders(index or [], index=True),
        host=host,
        port=port,
        keys=keys_of(key_file),
        no_key=no_key,
        hosts=tuple(allow_host or ()),
        too_long=too_long,  # type: ignore[arg-type]
        **asdict(limits),
        replicas=replicas,
        log=watch.log,
        versions=versions,
        access_log=not no_access_log and console.verbosity.level >= 0,
        worker=app.remote.WorkerSettings("", precision, device, engine, threads, attention),
    )

    def ready(url: str) -> None:
        if console.verbosity.json:
            console.emit({"url": url, "models": list(options.models)})
        if console.verbosity.level >= 0:
            message = f"Serving {', '.join(options.models)} at {url} (routes: {url}/docs). Ctrl-C stops the server.\n"
            app.log.LOG.text(message.encode())  # which does not wait for a reader, as everything of a server

    if on == "ray":
        raise typer.Exit(app.on_ray.serve_on_ray(options, max_replicas, on_ready=ready))
    raise typer.Exit(app.server.run_server(options, on_ready=ready))


def versions_of(
    models: list[str], shadow: str | None, split: str | None
) -> "tuple[dict[str, Path], app.versions.Versions | None]":
    """Returns the folders of all models by name, and the two versions that are compared, if any.

    A version is the name of one of the models, or a folder that is served too. Raises UsageError and DataError.
    """
    folders = app.fleet.parse_named_folders(models)
    new, share = shadow, 0.0
    if split is not None:
        name, _, number = split.rpartition("=")
        try:
            share = float(number)
        except ValueError:
            name = ""
        if not name or not 0 < share < 1:
            raise UsageError(
                f"--traffic {split} is not NEW=SHARE with a share between 0 and 1. Write --traffic NEW=0.1."
            )
        if shadow not in (None, name):
            raise UsageError(f"--shadow {shadow} and --traffic {name} are two new versions. Compare one at a time.")
        new = name
    if new is None:
        return folders, None
    if new not in folders:
        folders = app.fleet.parse_named_folders([*models, new])
        new = [*folders][-1]
    old = next(iter(folders))
    if old == new:
        raise UsageError(f"{new} is the first model, which the new version is compared with. Name the new one last.")
    return folders, app.versions.Versions(old, new, share, shadow is not None)


def keys_of(path: Path | None) -> tuple[str, ...]:
    """The keys of a file, or of the environment. Raises UsageError for a file without any, or with another form.

    The variable is removed from the environment, which workers and other programs inherit.
    """
    variable = os.environ.pop(API_KEY_VARIABLE, "").strip()
    if path is None:
        if variable and not VISIBLE.fullmatch(variable):
            raise UsageError(
                f"{API_KEY_VARIABLE} is not a key. A key has only letters, digits and signs of ASCII, and no spaces."
            )
        return (variable,) if variable else ()
    try:
        lines = [line.strip(" \t\r") for line in path.read_text(encoding="utf-8-sig").split("\n")]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--key-file {path} cannot be read: {error}.") from None
    if not any(lines):
        raise UsageError(f"--key-file {path} contains no key. Write one key per line.")
    for number, line in enumerate(lines, 1):
        if line and (line.startswith("#") or not VISIBLE.fullmatch(line)):
            raise UsageError(
                f"Line {number} of --key-file {path} is not a key. Write one key per line, of letters, digits and "
                "signs of ASCII without spaces, and no comments."
            )
    return tuple(filter(None, lines))
