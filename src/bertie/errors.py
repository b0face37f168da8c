"""Exceptions for user errors. Each message states what happened, what was expected, and what to do next.

Every error that bad input can cause is a `BertieError`. The command line prints its message and exits with its
`exit_code`. When the system refuses a path, the exit code is 1. Any other exception is a defect of Bertie and keeps its
traceback.
"""

import difflib
import functools
import inspect
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class BertieError(Exception):
    """The base class of all user errors. Exit code 1.

    message: what is wrong. hint: the option of a command that helps, which a server leaves out; "" for none.
    """

    exit_code = 1

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint

    def __str__(self) -> str:
        """Both, as the command line prints them."""
        return f"{self.message} {self.hint}".strip()


class UsageError(BertieError):
    """An argument is wrong: an unknown name, key or flag, or a value out of range. Exit code 2."""

    exit_code = 2


class DataError(BertieError):
    """The input data is wrong: a file, an encoding, a label, a damaged shard or checkpoint. Exit code 3."""

    exit_code = 3


class Stopped(BertieError):
    """The run was stopped early (SIGTERM, SIGHUP, a full disk) and can be resumed. Exit code 75."""

    exit_code = 75


class Terminated(BaseException):
    """SIGTERM or SIGHUP ended the command. It is not an Exception, so that no reader takes it for a damaged record."""


MANY = 30  # choices: of more, an error lists only similar names


def nearest(name: object, choices: Iterable[str]) -> str:
    """Returns the end of an error message: the most similar choice to `name` in any case, and the list of choices."""
    names = sorted(choices)

    def similar(most: int, cutoff: float) -> list[str]:
        found = difflib.get_close_matches(
            str(name).casefold(), {one.casefold() for one in names}, n=most, cutoff=cutoff
        )
        return [one for match in found for one in names if one.casefold() == match]

    close = similar(1, 0.5)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    if len(names) > MANY:
        alike = similar(6, 0.4)
        names = [*(alike or names[:6]), f"... ({len(names)} in all)"]
    return f"{hint}Choices: {', '.join(names) if names else '(none)'}."


def hub_hint(name: str | Path) -> str:
    """Returns the end of an error message about an unknown model, if its name may be of the Hugging Face Hub."""
    parts = str(name).split("/")
    named = len(parts) == 2 and not Path(parts[0]).exists() and parts[0].strip(".")
    return f" If it is a model of the Hugging Face Hub, first run: bertie download {name}" if named else ""


def cache_hint(folder: Path) -> str:
    """Returns the end of an error message about a folder in the Hub's cache, where another program left a part."""
    repository = folder.parents[1].name if folder.parent.name == "snapshots" else ""
    name = repository.removeprefix("models--").replace("--", "/", 1)
    return f" To download the rest, run: bertie download {name}@{folder.name}" if name != repository else ""


def model_hint(name: str | Path) -> str:
    """Returns the end of an error message about an unknown model folder: how models are found by name."""
    return hub_hint(name) if "/" in str(name) else " To list the models that have a name, run: bertie download --list"


def arguments(*options: str, **others: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorator: an unknown keyword argument of a function is a UsageError that names the nearest one.

    Args:
        options: Names that `**options` of the function takes.
        others: What another library calls an argument -> our name.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        own = [one.name for one in inspect.signature(function).parameters.values() if one.kind is not one.VAR_KEYWORD]

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            known = {*own, *options} - {"self"}
            if unknown := next((one for one in kwargs if one not in known), None):
                said = f"Did you mean {others[unknown]!r}?" if unknown in others else nearest(unknown, known)
                name = function.__qualname__.removesuffix(".__init__")
                raise UsageError(f"{name}() has no argument {unknown!r}. {said}")
            return function(*args, **kwargs)

        return call

    return decorate


def renamed(**names: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorator: accepts old names of keyword arguments until version 0.3.0, with a DeprecationWarning.

    Args:
        names: Old name -> new name.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            for old in names.keys() & kwargs.keys():
                now = f"`{old}` of {function.__name__}() is now `{names[old]}`."
                warnings.warn(f"{now} The old name stops working in version 0.3.0.", DeprecationWarning, stacklevel=2)
                kwargs[names[old]] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate
