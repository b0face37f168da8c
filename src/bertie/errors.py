"""Exceptions for user errors. Each message states what happened, what was expected, and what to do next.

Every error that bad input can cause is a `BertieError`. The command line prints its message and exits with its
`exit_code`. When the system refuses to write a path, the exit code is 1. Any other exception is a defect of Bertie and
keeps its traceback.
"""

import difflib
import errno
import functools
import inspect
import io
import numbers
import os
import re
import reprlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import IO, Any, ParamSpec, Self, TypeVar, Union, get_args, get_origin

OS_ERROR = re.compile(r"\(os error (\d+)\)")  # as libraries in Rust end a message, such as safetensors
_P = ParamSpec("_P")
_T = TypeVar("_T")


class BertieError(Exception):
    """The base class of all user errors. Exit code 1.

    message: what is wrong. hint: the option of a command that helps, which a server leaves out; "" for none. code: the
    kind of error, for programs, where it is not that of the class; it stays when the wording changes.
    """

    exit_code = 1
    code = "failed"

    def __init_subclass__(cls, code: str = "") -> None:
        cls.code = code or cls.code

    def __init__(self, message: str = "", *, hint: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint
        self.code = code or self.code

    @classmethod
    def with_code(cls, code: str, message: str) -> "BertieError":
        """Returns an error of the class that has a code."""
        kinds: list[type[BertieError]] = [cls]
        for kind in kinds:
            kinds += kind.__subclasses__()
        return next(kind for kind in kinds if kind.code == code)(message)

    def __str__(self) -> str:
        """Both, with options as the command line has them, or as arguments of Python."""
        return in_python(f"{self.message} {self.hint}".strip())


@dataclass
class Speech:
    """What messages name. shell: options as the command line does, which sets it; otherwise as arguments of Python.

    model_names: the names of models, which bertie.models.names sets.
    """

    shell: bool = False
    model_names: Callable[[], Iterable[str]] = tuple


speech = Speech()
AGAIN = re.compile(r"\b([Tt]he same|[Tt]his) command\b")
COMMAND = re.compile(r"(`?bertie [a-z].*?(?=\. [A-Z]|\.?$|[);]))")  # a command to run stays one
VALUE = r"""(?:[ =]("[^"]*"|'[^']*'|[^\s"'.,:;()]+(?:[.,:=][^\s.,:;()]+)*))?"""
OPTION = re.compile(rf"(?<![\w`./-])(?:--([a-z]+(?:-[a-z]+)*)|-(o|c)\b){VALUE}")
SHORT = {"o": "output", "c": "config"}
_FLAGS = ("overwrite", "keep_best", "few_shot", "excel", "multi", "int8", "unsafe", "no_embed", "dry_run", "force")
_PAIRS = re.compile(r"[^=,]+=[^=,]+(?:,[^=,]+=[^=,]+)*")
NO_VALUES = re.compile(
    r"(?:for|with|too?|works?|and|or|is|are|has|needs|measures|makes|names|takes|exclude|without|in|of|cannot|could|reverses|reads)$"
)


def in_python(message: str) -> str:
    """Returns a message with the options of commands as arguments, outside a shell: --text COLUMN is `text=COLUMN`."""
    if speech.shell:
        return message

    def argument(match: re.Match[str]) -> str:
        name, value = SHORT.get(match[2] or "") or match[1].replace("-", "_"), match[3]
        if name in _FLAGS:
            return f"`{name}=True`" + match[0][len(match[1]) + 2 :]
        if value is None or NO_VALUES.match(value):
            return f"`{name}`" + (f" {value}" if value else "")
        if _PAIRS.fullmatch(value):
            value = str(dict(pair.split("=") for pair in value.split(",")))
        elif name in ("columns", "perturb", "probes") and not value.isupper():
            value = str(value.strip("'\"").split(","))
        elif not (value.isupper() or value[0] in "'\"" or value.replace(".", "", 1).isdigit()):
            value = repr(value)
        return f"`{name}={value}`"

    parts = COMMAND.split(AGAIN.sub(r"\1 call", message))
    options = (part if number % 2 else OPTION.sub(argument, part) for number, part in enumerate(parts))
    return re.sub(r"`(\w+)=([^`]+)` `\1=([^`]+)`", r"`\1=[\2, \3]`", "".join(options))


class Diverged(BertieError, code="diverged"):
    """The loss or a gradient is not finite. The last checkpoint is intact. Exit code 1."""


class UsageError(BertieError, code="usage"):
    """An argument is wrong: an unknown name, key or flag, or a value out of range. Exit code 2."""

    exit_code = 2


class UnknownName(UsageError, code="unknown-name"):
    """There is no option, setting, model, task or part of that name; the message has the names that there are."""


class UnknownLabel(UsageError, code="unknown-label"):
    """There is no label of that name."""


class WrongValue(UsageError, code="wrong-value"):
    """A value has another type, or is out of its range; the message has what was expected."""


class NoPackage(UsageError, code="missing-package"):
    """A package is needed that is not installed; the message has the command that installs it."""


class OutputExists(UsageError, code="output-exists"):
    """A file or folder to write exists. Choose another one, continue what it holds, or pass `overwrite`."""


class OtherSettings(OutputExists, code="other-settings"):
    """What a folder holds was made with other settings or data, so it cannot be continued; the message has them."""


class InUse(UsageError, code="in-use"):
    """Another process writes to a folder. The same call works when that process has ended."""


class WrongModel(UsageError, code="wrong-model"):
    """The model, or the engine that runs it, cannot do this. Another one can; the message says which."""


class NoAccess(UsageError, code="no-access"):
    """The Hugging Face Hub does not let this user do it: a token or a consent is missing."""


class DataError(BertieError, code="data"):
    """Data or a file is wrong, damaged, missing or unreadable: a table, a model, a run, a corpus. Exit code 3."""

    exit_code = 3


class MissingFile(DataError, code="missing-file"):
    """A file or folder does not exist."""


class UnreadableFile(DataError, code="unreadable-file"):
    """The system or a library refuses to read a file."""

    @classmethod
    def of(cls, path: object, error: OSError) -> DataError:
        """Returns the error for what the system says of a file."""
        kind = MissingFile if isinstance(error, FileNotFoundError) else cls
        return kind(f"{path} cannot be read: {error.strerror}.")


class BadFile(DataError, code="damaged-file"):
    """A file has another content than its format or its hash."""


class MissingColumn(DataError, code="missing-column"):
    """A table lacks a column that is read; the message has the columns that there are."""


class NoRows(DataError, code="no-rows"):
    """No row, text or document can be used: there are none, or all were left out; the message has the reasons."""


class TextTooLong(DataError, code="too-long"):
    """A text has more tokens than the model or `max_length` takes. Shorten it, or choose what becomes of such texts."""


class NoNetwork(DataError, code="no-network"):
    """A server could not be reached. The same call works when it can."""


class Stopped(BertieError, code="stopped"):
    """The run was stopped early (SIGTERM, SIGHUP, a full disk) and can be resumed. Exit code 75."""

    exit_code = 75
    by_hand = False  # by Ctrl-C, or by the stop button of a notebook

    @classmethod
    def for_full_disk(cls, error: BaseException, path: Path, needed_bytes: int | None = None) -> "Self | None":
        """Returns the error to raise when `error` means that the disk is full, else None."""
        number = error.errno if isinstance(error, OSError) else None
        message = str(error)
        if code := OS_ERROR.search(message):
            number = int(code[1])
        if message.startswith("IO_"):  # of lxml, which writes workbooks in the temporary folder
            number, path = getattr(errno, message.removeprefix("IO_"), None), Path(tempfile.gettempdir())
        if number == errno.EFBIG:
            return cls(
                f"{path} cannot grow further: a limit of its file system, or of `ulimit -f`. Raise the limit and "
                "run the same command again."
            )
        if number not in (errno.ENOSPC, errno.EDQUOT):
            return None
        need = f" {needed_bytes:,} bytes are needed," if needed_bytes else ""
        free = shutil.disk_usage(next(p for p in [path, *path.parents] if p.exists())).free
        return cls(
            f"The disk is full: {path} could not be written.{need} {free:,} bytes are free. Files that were saved "
            "before are intact. Free some space and run the same command again."
        )


class Terminated(BaseException):
    """SIGTERM or SIGHUP ended the command. It is not an Exception, so that no reader takes it for a damaged record."""


MANY = 30  # choices: of more, an error lists only similar names


def nearest(name: object, choices: Iterable[str]) -> str:
    """Returns the end of an error message: the most similar choice to `name` in any case, and the list of choices."""
    names = sorted(choices)

    def similar(most: int, cutoff: float) -> list[str]:
        matches = difflib.get_close_matches(
            str(name).casefold(), {one.casefold() for one in names}, n=most, cutoff=cutoff
        )
        return [one for match in matches for one in names if one.casefold() == match]

    close = similar(1, 0.5)
    hint = f"Did you mean {close[0]!r}? " if close and close[0] != str(name) else ""
    if len(names) > MANY:
        alike = similar(6, 0.4)
        names = [*(alike or names[:6]), f"... ({len(names)} in all)"]
    return f"{hint}Choices: {', '.join(names) if names else '(none)'}."


def hub_hint(name: str | Path) -> str:
    """Returns the end of an error message about an unknown model, if its name may be of the Hugging Face Hub."""
    parts = str(name).split("/")
    on_hub = len(parts) == 2 and not Path(parts[0]).exists() and parts[0].strip(".")
    return f" If it is a model of the Hugging Face Hub, first run: bertie download {name}" if on_hub else ""


def cache_hint(folder: Path) -> str:
    """Returns the end of an error message about a folder in the Hub's cache, where another program left a part."""
    repository = folder.parents[1].name if folder.parent.name == "snapshots" else ""
    name = repository.removeprefix("models--").replace("--", "/", 1)
    return f" To download the rest, run: bertie download {name}@{folder.name}" if name != repository else ""


def model_hint(name: str | Path, presets: Iterable[str] = ()) -> str:
    """Returns the end of an error message about an unknown model folder: how models are found by name.

    presets: names of models without weights that would do, too.
    """
    if "/" in str(name):
        return hub_hint(name)
    names = [*presets, *speech.model_names()]
    listing = "run: bertie download --list" if speech.shell else "call bertie.list_models()."
    choices = f" {nearest(name, names)}" * bool(names) + f" To list all models that have a name, {listing}"
    return f" It is a model's name, which bertie.load({str(name)!r}) opens." if str(name) in names else choices


def arguments(*options: str, **others: str) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Decorator: an unknown keyword argument of a function is a UsageError that names the nearest one.

    So is a value of another type than the function's annotation, before the function does anything.

    Args:
        options: Names that `**options` of the function takes.
        others: What another library calls an argument -> our name.
    """

    def decorate(function: Callable[_P, _T]) -> Callable[_P, _T]:
        signature = inspect.signature(function)
        hints = {name: one.annotation for name, one in signature.parameters.items() if one.kind is not one.VAR_KEYWORD}

        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            known, name = {*hints, *options} - {"self"}, function.__qualname__.removesuffix(".__init__")
            if unknown := next((one for one in kwargs if one not in known), None):
                said = f"Did you mean {others[unknown]!r}?" if unknown in others else nearest(unknown, known)
                raise UsageError(f"{name}() has no argument {unknown!r}. {said}")
            for one, value in {**dict(zip(hints, args, strict=False)), **kwargs}.items():
                if not _fits(value, hint := hints.get(one, object)):
                    shown = reprlib.repr(value) if type(value).__module__ == "builtins" else f"a {type(value).__name__}"
                    kinds = " or ".join(dict.fromkeys(_words(hint)))
                    parts = [value] if "=" in str(value) else str(value).split(",")
                    other = str(value) if type(value) is int else parts
                    said = f" Pass {other!r}." if type(value) in (int, str) and _fits(other, hint) else ""
                    raise UsageError(f"{name}(): {one} is {shown}; {kinds} was expected.{said}")
            return function(*args, **kwargs)

        return call

    return decorate


KINDS: dict[Any, tuple[Any, str]] = {
    str: (str, "a text"),
    bool: ((bool, int), "True or False"),
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
    Path: (os.PathLike, "a path"),
    Mapping: (Mapping, "a dictionary"),
    Callable: (Callable, "a function"),
    Sequence: (Iterable, "a list"),  # an array of numpy and a column of pandas too
    Iterable: (Iterable, "a list"),
    IO: (io.IOBase, "an open stream"),
}
"""An annotation -> the classes that fit it, and its words in an error."""


def _fits(value: object, hint: object) -> bool:
    """Returns whether a value may be of an annotated type. An annotation in quotes, or of another kind, fits all."""
    if hint in (object, inspect.Parameter.empty):
        return True
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if hint in (None, type(None)):
        return value is None
    kind = get_origin(hint) or hint
    if kind is str and type(value).__name__ in ("device", "dtype"):  # of torch, which have the names that we take
        return True
    if kind not in KINDS:
        return not isinstance(kind, type) or getattr(kind, "_is_protocol", False) or isinstance(value, kind)
    unfit = str if kind is Sequence else bool if kind in (int, float) else bytes  # a text is no list of its letters
    if isinstance(value, (bytes, unfit)):
        return False
    parts = value if isinstance(value, list | tuple) and kind is Sequence and get_args(hint) else ()
    return isinstance(value, KINDS[kind][0]) and all(_fits(part, get_args(hint)[0]) for part in parts)


def _words(hint: Any) -> Iterator[str]:
    """Yields the types of an annotation in words."""
    if get_origin(hint) in (Union, UnionType):
        for one in get_args(hint):
            yield from _words(one)
    elif hint in (None, type(None)):
        yield "None"
    else:
        kind = get_origin(hint) or hint
        yield KINDS[kind][1] if kind in KINDS else f"a {kind.__name__}"
