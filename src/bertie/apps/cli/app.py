"""What every command is made with: the shared options, parameters of many commands, and the printing of results.

A command parses, calls the library and prints. Heavy imports are inside the commands, so that --help is fast.
"""

import inspect
import re
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
from typer.models import OptionInfo

from bertie.apps.cli.parsing import Command
from bertie.platform import BertieError, console


def _quiet(value: bool) -> None:
    if value:
        console.verbosity.level = -1


def _verbose(value: bool) -> None:
    if value:
        console.verbosity.level = 1


def _json(value: bool) -> None:
    if value:
        console.verbosity.json = True


# The options of every command. Their effect is that of the callbacks, so commands do not receive them.
SHARED_OPTIONS = {
    "json_": Annotated[
        bool, typer.Option("--json", callback=_json, help="Write results as JSON to stdout; messages go to stderr.")
    ],
    "quiet": Annotated[bool, typer.Option("-q", "--quiet", callback=_quiet, help="Print only errors and results.")],
    "verbose": Annotated[bool, typer.Option("-v", "--verbose", callback=_verbose, help="Print debug messages too.")],
}


class Commands(typer.Typer):
    """Commands that all have the shared options."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**{"rich_markup_mode": None, "add_completion": False, **attributes})

    def command(self, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        """Decorator: registers a function as a command. The function itself is unchanged."""
        register = super().command(*args, **{"cls": Command, **kwargs})

        def decorate(command: Callable[..., object]) -> Callable[..., object]:
            @wraps(command)
            def run(**values: Any) -> object:
                console.call = (command.__name__, values)
                try:
                    return command(**{name: value for name, value in values.items() if name not in SHARED_OPTIONS})
                except BertieError as error:
                    error.message = in_options(error.message, command)
                    raise

            own = inspect.signature(command).parameters.values()
            keyword = inspect.Parameter.KEYWORD_ONLY
            shared = [
                inspect.Parameter(name, keyword, default=False, annotation=kind)
                for name, kind in SHARED_OPTIONS.items()
            ]
            register(with_parameters(run, [*(one.replace(kind=keyword) for one in own), *shared]))
            return command

        return decorate


def in_options(message: str, command: Callable[..., object]) -> str:
    """Returns a message of the library with the arguments of a command as options: `max_length=64` is --max-length 64.

    An argument has backquotes around it.
    """

    def usual(name: str) -> str:
        return "--" + name.strip("_").replace("_", "-")

    options = {
        name.strip("_"): next(iter(sorted(kind.param_decls or (), key=lambda one: one != "-o")), "") or usual(name)
        for name, one in inspect.signature(command).parameters.items()
        for kind in getattr(one.annotation, "__metadata__", ())
        if isinstance(kind, OptionInfo)
    }

    def option(match: re.Match[str]) -> str:
        name, value = match[1], match[2]
        if name not in options:
            return match[0]
        return options[name] + (f" {value}" if value not in (None, "True") else "")

    return re.sub(r"`(\w+)(?:=([^`]*))?`", option, message)


def with_parameters(run: Callable[..., object], parameters: Sequence[inspect.Parameter]) -> Callable[..., object]:
    """Returns `run` with the parameters that typer will read."""
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    del run.__wrapped__  # type: ignore[attr-defined]  # or typer would read the command's own
    return run


Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace an earlier output of Bertie. Other files are never deleted.")
]
OutputOption = Annotated[Path | None, typer.Option("--output", "-o", help="Run folder to write.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything and print the plan; do not start.")]
TrialOption = Annotated[
    float | None,
    typer.Option(
        "--trial",
        min=0.0,
        help="Seconds of the trial under --dry-run. Default: 30, or a stored trial of the same run. 0: no trial.",
    ),
]
Resume = Annotated[str, typer.Option("--resume", help="auto, never, or the folder of a checkpoint.")]
Overrides = Annotated[list[str] | None, typer.Argument(help="Other settings of the run: key=value ...")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-c", help="YAML file of settings, or the name of a recipe.")
]
