"""`bertie reload`: new versions of the models of a running server."""

import json
import os
import signal
import time
import urllib.request
from pathlib import Path
from typing import Annotated, Any
from urllib.error import HTTPError, URLError

import typer

from bertie.apps import serve as app
from bertie.apps.serve.commands.serve import API_KEY_VARIABLE, keys_of
from bertie.platform import BertieError, UsageError, console

POLL_S = 0.2
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the server is on this machine


def reload_command(
    url: Annotated[str, typer.Argument(help="Address of the server, on this machine.")] = "http://127.0.0.1:3000",
    key_file: Annotated[
        Path | None,
        typer.Option("--key-file", help=f"File of API keys, one per line. Default: the key in {API_KEY_VARIABLE}."),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=1.0, help="Maximum seconds to wait.")] = 600.0,
) -> None:
    """Load the models of a running server again, and wait for the outcome.

    The server loads each model from its folder and checks it. A model that fails stays as it was, and the command
    exits with status 1. Requests are answered meanwhile.

    \b
    Examples:
      bertie reload
      bertie reload http://127.0.0.1:8080 --key-file keys.txt
    """
    request = info_request(url, key_file)
    until = time.monotonic() + seconds
    before = fetch_server_info(request)
    signal_to(before["process"], url, signal.SIGHUP)
    number = before["reloads"]["number"] + 1
    while True:
        time.sleep(POLL_S)
        reloads = fetch_server_info(request)["reloads"]
        if reloads["number"] > number or (reloads["number"] == number and not reloads["running"]):
            break
        if time.monotonic() > until:
            raise BertieError(f"The models were not loaded after {seconds:.0f} s. The server's log tells what it does.")
    if console.verbosity.json:
        console.emit(reloads["outcomes"])
    for name, outcome in reloads["outcomes"].items():
        console.say(f"{name}: {outcome}")
    failed = [name for name, outcome in reloads["outcomes"].items() if outcome != "done"]
    if failed:
        raise BertieError(f"Not loaded: {', '.join(failed)}. The server continues with the earlier version.")


def info_request(url: str, key_file: Path | None) -> urllib.request.Request:
    """Returns the request for the facts of a server."""
    keys = keys_of(key_file)
    headers = {"Authorization": f"Bearer {keys[0]}"} if keys else {}
    return urllib.request.Request(url.rstrip("/") + "/info", headers=headers)


def fetch_server_info(request: urllib.request.Request) -> dict[str, Any]:
    """Returns the facts of a server. Raises BertieError if it does not answer as one of Bertie."""
    try:
        with DIRECT.open(request, timeout=30) as answer:
            facts = json.load(answer)
    except HTTPError as error:
        hint = " Pass --key-file." if error.code == 401 else ""
        raise BertieError(f"{request.full_url} answered with status {error.code}.{hint}") from None
    except (URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise BertieError(f"No server answered at {request.full_url}: {reason}. Pass its address.") from None
    if not isinstance(facts, dict) or not {"process", "reloads"} <= facts.keys():
        raise BertieError(f"{request.full_url} is not a server of Bertie. Pass the address of one.")
    return facts


def signal_to(process: dict[str, Any] | None, url: str, number: signal.Signals) -> None:
    """Sends a signal to a server's process. Raises UsageError if it is not a process of this machine."""
    if process is None:
        raise UsageError(f"The server at {url} runs on Ray. Send {number.name} to its command.")
    if app.fleet.Process.of(process["pid"]) != app.fleet.Process(**process):
        raise UsageError(f"The server at {url} is not a process of this machine. Run the command where it runs.")
    try:
        os.kill(process["pid"], number)
    except PermissionError:
        raise UsageError("The server belongs to another user. Run the command as that user.") from None
