"""`run`: runs a command line, and turns errors into messages and exit codes. `main` runs that of `bertie`."""

import errno
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from bertie.console import console, end_signals, harmless, hush, ignore_lost_output, leave_terminal, prepare_streams
from bertie.errors import BertieError, DataError, Stopped, Terminated, UsageError, speech
from bertie.process import spin_briefly
from bertie.registry import Later


def main() -> None:
    """Runs `bertie`."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # it would read the files of all installed packages
    try:
        run(Later[Callable[[], None]]("bertie.apps.cli.table", "app").found())
    finally:
        gc.freeze()  # the process ends, and Python would search all that it leaves


def run(program: Callable[[], None]) -> None:
    """Runs a command line and exits with the exit code of the command."""
    before, speech.shell = speech.shell, True
    prepare_streams()
    console.verbosity.asks = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
    spin_briefly()
    try:
        _check_folder()
        with _terminable():
            program()
    except SystemExit as end:
        if end.code == 1 and isinstance(end.__context__, BrokenPipeError):  # `bertie --help | head`: rich's way to end
            hush()
            sys.exit(0)
        raise
    except Terminated as end:
        _tell(
            "stopped:",
            "yellow",
            f"{end} ended the command. Files that were saved before are intact. Run the same command again.",
        )
        sys.exit(Stopped.exit_code)
    except BertieError as error:
        stopped = isinstance(error, Stopped)
        _tell("stopped:" if stopped else "error:", "yellow" if stopped else "red", str(error), error.code)
        sys.exit(error.exit_code)
    except OSError as error:  # a folder that may not be written, a path through a file
        if error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT):
            hush()
            _tell("stopped:", "yellow", "The disk is full: standard output could not be written. Free some space.")
            sys.exit(Stopped.exit_code)
        if console.verbosity.level <= 0 and (message := _lack(error)):
            _tell("error:", "red", message)
            sys.exit(1)
        if error.filename is None or console.verbosity.level > 0:
            raise
        _tell("error:", "red", f"{os.fspath(error.filename)}: {error.strerror} (-v shows the traceback).")
        path, by_rights = os.fspath(error.filename), os.access in os.supports_effective_ids
        closed = os.path.isfile(path) and not os.access(path, os.R_OK, effective_ids=by_rights)
        sys.exit(DataError.exit_code if closed else 1)
    except (MemoryError, ImportError, RuntimeError) as error:
        if console.verbosity.level > 0 or not (message := _lack(error)):
            raise
        _tell("error:", "red", message)
        sys.exit(1)
    finally:
        speech.shell = before


def _check_folder() -> None:
    """Raises UsageError where the working directory was removed: libraries end the process over it."""
    try:
        os.getcwd()
    except OSError as error:
        raise UsageError(f"The working directory cannot be used: {error.strerror}. Change to another one.") from None


NO_MEMORY = (
    "allocate memory",
    "failed to map segment",
    "start new thread",
    "out of memory",
)  # torch, the loader, Python


def _lack(error: Exception) -> str:
    """Returns the message about a lack of memory or of file descriptors; "" for another error."""
    number, text = getattr(error, "errno", None), str(error)
    if number in (errno.EMFILE, errno.ENFILE):
        return "Too many files are open. Raise the limit, as with `ulimit -n 4096`, or pass fewer --workers."
    if isinstance(error, MemoryError) or number == errno.ENOMEM or any(part in text for part in NO_MEMORY):
        return (
            "There is not enough memory. Use smaller batches, shorter texts or fewer --workers, or raise the limit of "
            "`ulimit -v` (-v shows the traceback)."
        )
    return ""


@contextmanager
def _terminable() -> Iterator[None]:
    """Context in which SIGTERM and SIGHUP raise Terminated, so that unfinished files are removed.

    A second SIGTERM ends the process. A training run and a server install handlers of their own. Outside the main
    thread, there can be none.
    """

    def terminate(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if number == signal.SIGHUP:
            signal.signal(number, signal.SIG_IGN)  # a shell sends it too, beside the system
            leave_terminal()
        raise Terminated(signal.Signals(number).name)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, terminate) for number in end_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(kind: str, style: str, message: str, code: str = "") -> None:
    """Prints an error, under --json to stdout too, with its code."""
    with ignore_lost_output():
        console.stderr().print(kind, style=style, end=" ")
        console.stderr().print(harmless(message))
    if console.verbosity.json:
        with suppress(OSError):
            console.emit({"error": message, "code": code or (Stopped if kind == "stopped:" else BertieError).code})
