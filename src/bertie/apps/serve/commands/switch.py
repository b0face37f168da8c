"""`bertie switch`: which of two versions of a model answers."""

import signal
import time
from pathlib import Path
from typing import Annotated

import typer

from bertie.apps.serve.commands.reload import POLL_S, fetch_server_info, info_request, signal_to
from bertie.apps.serve.commands.serve import API_KEY_VARIABLE
from bertie.platform import BertieError, File, UsageError, console


def switch_command(
    model: Annotated[str, typer.Argument(help="Name of the version that shall answer: the old one or the new one.")],
    url: Annotated[str, typer.Argument(help="Address of the server, on this machine.")] = "http://127.0.0.1:3000",
    key_file: Annotated[
        Path | None,
        typer.Option("--key-file", help=f"File of API keys, one per line. Default: the key in {API_KEY_VARIABLE}."),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=1.0, help="Maximum seconds to wait.")] = 10.0,
) -> None:
    """Send all requests of a running server to one of two versions of a model.

    For a server that was started with --shadow or --traffic. Both models stay loaded, so the switch takes no time and
    no request fails. The comparison ends.

    \b
    Examples:
      bertie switch reviews
      bertie switch reviews-2 http://127.0.0.1:8080
    """
    request = info_request(url, key_file)
    facts = fetch_server_info(request)
    if not (versions := facts.get("versions")) or not versions["control"]:
        raise UsageError(f"The server at {url} compares no versions. Start it with --shadow or --traffic.")
    if model not in (versions["old"], versions["new"]):
        raise UsageError(f"{model!r} is neither version of the server: {versions['old']} and {versions['new']}.")
    try:
        with File(versions["control"]).write() as stream:
            stream.write(model.encode())
    except OSError:
        raise UsageError("The server belongs to another user or machine. Run the command where it runs.") from None
    signal_to(facts["process"], url, signal.SIGUSR1)
    until = time.monotonic() + seconds
    while fetch_server_info(request)["versions"]["switches"] == versions["switches"]:
        if time.monotonic() > until:
            raise BertieError("The server did not switch. Its log has the reason.")
        time.sleep(POLL_S)
    console.say(f"{model} answers all requests to {versions['old']}.")
