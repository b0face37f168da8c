"""The list of commands, and `main`. Importing a file here adds its commands to the app; app.ORDER orders --help."""

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from bertie import console
from bertie.cli import (  # noqa: F401 (imported for what they register)
    attention,
    audit,
    bench,
    bench_neighbor,
    bench_plan,
    bench_search,
    bench_serve,
    bench_text,
    cloze,
    compress,
    convert,
    corpus,
    data,
    debias,
    demo,
    download,
    embed,
    evaluate,
    explain,
    export,
    families,
    fill_mask,
    finetune,
    grow,
    heads,
    index,
    info,
    negatives,
    next_sentence,
    perplexity,
    plan,
    predict,
    pretrain,
    probe,
    reload,
    reproduce,
    runs,
    sample,
    search,
    serve,
    submission,
    tokenizer,
    trace,
    tune,
    vary,
    words,
    write,
)
from bertie.cli.app import app
from bertie.errors import BertieError, Stopped, Terminated
from bertie.threads import spin_briefly


def main() -> None:
    """Runs the command line and exits with the exit code of the command."""
    console.prepare_streams()
    spin_briefly()
    try:
        with _terminable():
            app()
    except SystemExit as end:
        if end.code == 1 and isinstance(end.__context__, BrokenPipeError):  # `bertie --help | head`: rich's way to end
            console.hush()
            sys.exit(0)
        raise
    except Terminated:
        _tell(
            "stopped:",
            "yellow",
            "SIGTERM ended the command. Files that were saved before are intact. Run the same command again.",
        )
        sys.exit(Stopped.exit_code)
    except BertieError as error:
        stopped = isinstance(error, Stopped)
        _tell("stopped:" if stopped else "error:", "yellow" if stopped else "red", str(error))
        sys.exit(error.exit_code)
    except OSError as error:  # a folder that may not be written, a path through a file
        if error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT):
            console.hush()
            _tell("stopped:", "yellow", "The disk is full: standard output could not be written. Free some space.")
            sys.exit(Stopped.exit_code)
        if error.filename is None or console.verbosity.level > 0:
            raise
        _tell("error:", "red", f"{os.fspath(error.filename)}: {error.strerror} (-v shows the traceback).")
        sys.exit(1)


@contextmanager
def _terminable() -> Iterator[None]:
    """Context in which SIGTERM raises Terminated, so that unfinished files are removed. A second one ends the process.

    A training run and a server install handlers of their own. Outside the main thread, there can be none.
    """

    def terminate(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _tell(kind: str, style: str, message: str) -> None:
    with console.unread():
        console.stderr().print(kind, style=style, end=" ")
        console.stderr().print(message)
