"""The log: lines of JSON on standard error, written by a thread.

A log that nobody reads must not stop the server. Lines wait in a bounded queue; when it is full, or a line cannot be
written, it is dropped and counted, and the next line that is written says how many.
"""

import logging
import os
import re
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import orjson

MOST_LINES = 10_000
PANIC = re.compile(rb"panicked at (\S+?):?\s")
PAUSE_S = 0.02  # between writes, so that the event loop is not interrupted for each line


class Log:
    """A queue of lines and the thread that writes them. dropped: lines that were lost since the start."""

    def __init__(self) -> None:
        self.lines: deque[bytes] = deque()
        self.dropped = self._told = 0
        self._arrived = threading.Event()
        self._descriptor, self._writing = -1, False

    def start(self, descriptor: int = 2) -> None:
        """Starts the thread, which writes to a copy of a file descriptor. Lines wait until then."""
        if self._descriptor < 0:
            self._descriptor = os.dup(descriptor)
            threading.Thread(target=self._run, name="bertie-log", daemon=True).start()

    def line(self, event: str, **fields: object) -> None:
        """Queues one line of JSON. Never waits."""
        self.text(line_of(event, **fields))

    def text(self, data: bytes) -> None:
        """Queues what others say. Never waits."""
        if len(self.lines) >= MOST_LINES:
            self.dropped += 1
            return
        self.lines.append(data)
        self._arrived.set()

    @contextmanager
    def instead_of_stderr(self) -> Iterator[None]:
        """Context in which what libraries write to standard error is counted: it may be a client's text, and must not
        wait for a reader."""
        if sys.__stderr__ is None:  # closed: its number may be that of a socket
            yield
            return
        own, (reader, writer) = os.dup(2), os.pipe()
        os.set_blocking(writer, False)
        os.dup2(writer, 2)
        os.close(writer)
        threading.Thread(target=self._count, args=(reader,), name="bertie-stderr", daemon=True).start()
        try:
            yield
        finally:
            os.dup2(own, 2)
            os.close(own)

    def _count(self, reader: int) -> None:
        while data := os.read(reader, 1 << 16):
            panic = PANIC.search(data)
            self.line("stderr", bytes=len(data), at=panic[1].decode(errors="replace") if panic else "")
        os.close(reader)

    def flush(self, seconds: float) -> None:
        """Waits until the lines are written, for a limited time."""
        until = time.monotonic() + seconds
        while self._descriptor >= 0 and (self.lines or self._writing) and time.monotonic() < until:
            time.sleep(PAUSE_S)

    def _run(self) -> None:
        while self._arrived.wait():
            self._writing = True
            self._arrived.clear()
            lines = [self.lines.popleft() for _ in range(len(self.lines))]
            lost = self.dropped - self._told
            note = line_of("log_dropped", lines=lost) if lost else b""
            if self._write(b"".join([*lines, note])):
                self._told += lost
            else:
                self.dropped += len(lines)
            self._writing = False
            time.sleep(PAUSE_S)

    def _write(self, data: bytes) -> bool:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._descriptor, view) :]
            except BlockingIOError:  # a pipe that whoever started the server made so
                select.select((), (self._descriptor,), ())
            except OSError:  # the reader has gone, or the disk is full
                return False
        return True


def line_of(event: str, **fields: object) -> bytes:
    """Returns a line of JSON."""
    record = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "event": event, **fields}
    return orjson.dumps(record, default=str, option=orjson.OPT_APPEND_NEWLINE)


class Records(logging.Handler):
    """Messages of libraries, without their text, which may be a client's."""

    def emit(self, record: logging.LogRecord) -> None:
        """Queues a line."""
        error = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
        where = f"{record.module}:{record.lineno}"
        log_line("library", name=record.name, level=record.levelname.lower(), error=error, at=where)


LOG = Log()
log_line = LOG.line
