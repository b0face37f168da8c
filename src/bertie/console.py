"""Messages and a progress bar.

On a terminal, a rich bar; elsewhere, a plain line every few seconds; nothing under --json or --quiet. Messages go to
stderr and results to stdout, so that output can be piped. NO_COLOR and FORCE_COLOR are respected (by rich).
"""

import io
import json
import logging
import os
import re
import signal
import stat
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from bertie.checksums import content_hashes
from bertie.errors import DataError, in_python, speech
from bertie.files import seal, shown

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.console import RenderableType

_T = TypeVar("_T")
PLAIN_LINE_EVERY_S = 5.0
OF_THE_CALL = {"out", "output", "overwrite", "quiet", "verbose", "json", "json_"}  # change nothing of what is written
BRIEF_S = 1.0  # what takes less leaves no trace


@dataclass
class Verbosity:
    """The amount of messages: -1 quiet (errors only), 0 normal, 1 verbose. `json` reserves stdout for JSON.

    asks: whether a command runs on a terminal, where somebody can answer. answers: to questions of this command.
    progress: whether it is shown.
    """

    level: int = 0
    json: bool = False
    asks: bool = False
    answers: dict[str, str] = field(default_factory=dict)
    progress: bool = True


@contextmanager
def ignore_lost_output() -> Iterator[None]:
    """Context of a message. One that cannot be written, on a full disk or to a reader that has gone, stops nothing."""
    try:
        yield
    except OSError:
        hush(sys.stderr)


LOGGER = logging.getLogger("bertie")  # of messages in Python
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # cursor, commands, direction of text


def harmless(text: str) -> str:
    """Returns a text with its control characters written as codes: names in files of others may contain any."""
    return shown(CONTROL.sub(lambda match: ascii(match[0])[1:-1], text))


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun: "1 word", "2 words"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


PIPE_WIDTH = 1000  # characters of a line in a file or a pipe, so that no cell is cut


def prepare_streams() -> None:
    """Prepares the standard streams for any text; a closed one ("<&-") is replaced by /dev/null.

    Otherwise, the next file that is opened would get its number, and what is printed. Streams other than terminals are
    UTF-8 in any locale; a character that an encoding lacks is written as its code.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:  # the lowest number that is free is taken, so this one
            os.open(os.devnull, os.O_RDONLY if descriptor == 0 else os.O_WRONLY)
        if getattr(sys, name) is None:
            mode = "r" if descriptor == 0 else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8", errors="backslashreplace"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                encoding=None if stream.isatty() and stream.encoding != "ascii" else "utf-8", errors="backslashreplace"
            )


def hush(stream: TextIO | None = None) -> None:
    """Redirects standard output, or a stream, to nothing after its reader has closed it.

    So the last flush raises no error.
    """
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())


def end_signals() -> list[signal.Signals]:
    """Returns the signals that ask a process to end: SIGTERM, and SIGHUP of a closed terminal unless `nohup` ignores
    it."""
    hangup = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGTERM, *([signal.SIGHUP] if hangup else [])]


def leave_terminal() -> None:
    """Redirects output to nothing after the terminal was closed, so that no message raises an error."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(descriptor).st_mode):  # isatty() is false for a closed terminal
                os.dup2(nothing, descriptor)
    os.close(nothing)


_Advance = Callable[..., None]


def _shown(info: dict[str, Any]) -> str:
    return "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in info.items())


def _plain_lines(description: str, total: float | None, done: float, unit: str) -> Iterator[_Advance]:
    started = last = time.monotonic()
    current, shown = done, ""

    def line() -> str:
        elapsed_s = time.monotonic() - started
        form = ",.3g" if total and total < 10 else ",.0f"  # 0.3 of 0.4 MB
        of = f"/{total:{form}}" if total else ""
        left = ""
        if total and current > done:
            left = f", {elapsed_s * max(0.0, total - current) / (current - done):.0f} s left"
        count = f" {current:{form}}{of} {unit} {shown}" if unit or current else ""
        return f"{description}:{count} ({elapsed_s:.0f} s{left})"

    def advance(amount: float = 1, **info: object) -> None:
        nonlocal last, current, shown
        current += amount
        if info:
            shown = _shown(info)
        if time.monotonic() - last >= PLAIN_LINE_EVERY_S:
            last = time.monotonic()
            with ignore_lost_output():
                print(line(), file=sys.stderr, flush=True)

    yield advance
    if time.monotonic() - started >= BRIEF_S:
        with ignore_lost_output():
            print(line(), file=sys.stderr, flush=True)


def _outside() -> int:
    """Returns how many calls above `warn` the caller of the library is."""
    frame, calls = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "bertie":
        frame, calls = frame.f_back, calls + 1
    return calls


class Console:
    """What a program tells its user: results to stdout, messages and progress to stderr."""

    def __init__(self) -> None:
        self.verbosity = Verbosity()
        self._notes: ContextVar[bool] = ContextVar("notes", default=True)
        self.call: tuple[str, Mapping[str, object]] = ("", {})  # the command that runs, and its options
        self._bar: RichConsole | None = None
        self._busy = False
        self._part = ""

    def say(self, message: str, *, level: int = 0, markup: bool = False) -> None:
        """Prints one message to stderr when the user's -v/-q allows it; in Python, the logger "bertie" gets it.

        markup: whether the message is written for rich ("[bold]"); text of users in it must then be escaped.
        """
        if not speech.shell:
            plain = re.sub(r"\[/?[a-z ]*\]", "", message) if markup else message
            LOGGER.log(logging.DEBUG if level else logging.INFO, "%s", in_python(plain))
        elif self.verbosity.level >= level and self._notes.get():
            with ignore_lost_output():
                self.stderr().print(harmless(message), markup=markup)

    def warn(self, message: str) -> None:
        """Prints a warning to stderr, also under --json, but not under --quiet; in Python, it is a warning."""
        if not speech.shell:
            warnings.warn(in_python(message), UserWarning, stacklevel=_outside())
        elif self.verbosity.level >= 0:
            with ignore_lost_output():
                self.stderr().print("warning:", style="yellow", end=" ")
                self.stderr().print(harmless(message))

    def show(self, table: "RenderableType", *, markup: bool = False) -> None:
        """Prints a result to stdout: a line of text, or what rich draws. markup: as in `say`, in cells too."""
        from rich.console import Console as RichConsole
        from rich.segment import Segment, Segments
        from rich.text import Text

        wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
        console = RichConsole(highlight=False, markup=markup, emoji=False, width=wide)
        if isinstance(table, str):
            table = Text.from_markup(table, emoji=False) if markup else Text(table)
        line = isinstance(table, Text)
        options = console.options.update(no_wrap=True, overflow="ignore") if line else console.options
        # what data has of a terminal's commands is no command
        parts = Segments(Segment(harmless(one.text), one.style) for one in console.render(table, options))
        with console.capture() as shown:  # rich itself would end the program with 1 when the reader has gone: `| head`
            console.print(parts, soft_wrap=line, end="")
        print(shown.get(), end="", flush=True)

    def emit(self, value: object) -> None:
        """Prints one JSON value on one line of stdout: the result of a command under --json."""
        print(json.dumps(value, ensure_ascii=False), flush=True)

    @contextmanager
    def progress(
        self, description: str, total: float | None = None, *, done: float = 0, unit: str = ""
    ) -> Iterator[_Advance]:
        """Context that shows progress; yields `advance(amount=1, **info)`.

        `total` None means unknown; `done` is the start of a resumed run; `info` (loss=2.31, rate="22k tok/s") is shown
        next to the bar. Only one bar is shown at a time: nested calls show nothing.
        """
        if self.verbosity.level < 0 or self.verbosity.json or not self.verbosity.progress or self._busy:
            yield lambda amount=1, **info: None
            return
        self._busy = True
        try:
            yield from (self._rich_bar if sys.stderr.isatty() else _plain_lines)(
                f"{description}{self._part}", total, done, unit
            )
        finally:
            self._busy = False

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Context of a part of the work, which progress names: "training fold-2"."""
        self.say(f"[bold]{name}[/]", markup=True)
        before, self._part = self._part, f" {name}"
        try:
            yield
        finally:
            self._part = before

    def track(self, items: Iterable[_T], description: str, *, total: float | None = None) -> Iterator[_T]:
        """Yields items, and shows how many of them there were."""
        with self.progress(description, total, unit="rows") as advance:
            for item in items:
                yield item
                advance()

    @contextmanager
    def working(self, description: str) -> Iterator[None]:
        """Context, or decorator of a function, of a step that cannot tell how far it is: shows that it is at work."""
        done = threading.Event()

        def tick() -> None:
            while not done.wait(1):
                advance(0)

        with self.progress(description) as advance:
            thread = threading.Thread(target=tick, name=description, daemon=True)
            thread.start()
            try:
                yield
            finally:
                done.set()
                thread.join()

    def choose(self, question: str, choices: Sequence[str]) -> str | None:
        """Asks once which choice is meant, by name or number. None: nobody can be asked, or nothing is chosen."""
        if not self.verbosity.asks or self.verbosity.json or self.verbosity.level < 0:
            return None
        if question in self.verbosity.answers:  # of the first of several seeds
            return self.verbosity.answers[question]
        numbered = ", ".join(f"{i} {choice}" for i, choice in enumerate(choices, 1))
        print(f"{question} {numbered}: ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline().strip()
        if answer.isdecimal() and 0 < int(answer[:6]) <= len(choices):
            answer = choices[int(answer) - 1]
        if answer not in choices:
            return None
        self.verbosity.answers[question] = answer
        return answer

    def call_hash(self) -> str:
        """Hash of the command that runs, its settings and what its input files hold; "" for standard input."""
        (command, options), inputs = self.call, dict[str, object]()
        for name, value in options.items():
            paths = value if isinstance(value, list) else [value]
            if Path("-") in paths:
                return ""
            if name not in OF_THE_CALL:
                inputs[name] = [content_hashes(path) if isinstance(path, Path) else path for path in paths]
        return seal({"command": command, **inputs})

    @contextmanager
    def no_failure(self, path: Path) -> Iterator[None]:
        """Context in which a file is written that no run fails for: errors are warnings, a DataError is nothing."""
        try:
            yield
        except DataError:  # there is nothing to show yet
            return
        except Exception as error:  # a chart is not worth a week of training
            self.warn(f"{path} could not be written: {error}")

    @contextmanager
    def without_notes(self) -> Iterator[None]:
        """Context in which `say` says nothing, in this thread. Warnings and progress are shown."""
        token = self._notes.set(False)
        try:
            yield
        finally:
            self._notes.reset(token)

    def stderr(self) -> "RichConsole":
        """Returns the rich console of messages; that of the bar while one is shown, so that lines appear above it."""
        from rich.console import Console as RichConsole

        if self._bar is not None:
            return self._bar
        console = RichConsole(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)
        console.on_broken_pipe = lambda: hush(sys.stderr)  # type: ignore[method-assign]  # rich would end the program
        return console

    def _rich_bar(self, description: str, total: float | None, done: float, unit: str) -> Iterator[_Advance]:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TextColumn(unit, markup=False),
            TextColumn("{task.fields[info]}", style="cyan", markup=False),
            TimeElapsedColumn(),
            TextColumn("<"),
            TimeRemainingColumn(),
        )
        self._bar, started = self.stderr(), time.monotonic()
        try:
            with Progress(*columns, console=self._bar) as bar:
                task = bar.add_task(description, total=total, completed=int(done), info="")

                def advance(amount: float = 1, **info: object) -> None:
                    bar.update(task, advance=amount)
                    if info:
                        bar.update(task, info=_shown(info))

                yield advance
                bar.live.transient = time.monotonic() - started < BRIEF_S
        finally:
            self._bar = None


console = Console()


def progress(shown: bool = True) -> None:
    """Shows the progress of long calls, or hides it, from now on in this process.

    Everything else that a call tells is a warning of Python, or a message of the logger "bertie".

    Example:
        >>> bertie.progress(False)
        >>> bertie.progress(True)
    """
    console.verbosity.progress = shown
