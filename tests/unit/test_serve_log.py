"""The log: written by a thread, bounded, and never waited for."""

import fcntl
import json
import logging
import os
from contextlib import suppress

import pytest

from bertie.apps.serve import log
from serving import until

pytest.importorskip("starlette")


def read(descriptor: int) -> list[dict]:
    return [json.loads(line) for line in os.read(descriptor, 1 << 20).splitlines()]


def test_lines_arrive_in_order():
    reader, writer = os.pipe()
    lines = log.Log()
    lines.line("early", number=0)
    lines.start(writer)
    for number in range(1, 100):
        lines.line("x", number=number)
    lines.flush(10)
    assert [line["number"] for line in read(reader)] == list(range(100))


@pytest.mark.promise("private-texts")
def test_a_pipe_that_nobody_reads_drops_lines_and_says_how_many(monkeypatch):
    monkeypatch.setattr(log, "MOST_LINES", 100)
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    lines = log.Log()
    lines.start(writer)
    for number in range(1000):
        lines.line("x", number=number, padding="y" * 100)
    assert lines.dropped >= 800
    lines.flush(0.1)  # waits no longer
    os.set_blocking(reader, False)
    found = b""

    def drained() -> bool:
        nonlocal found
        try:
            found += os.read(reader, 1 << 16)
        except BlockingIOError:
            lines.line("later")
        return b"log_dropped" in found and found.endswith(b"\n")

    until(drained, 10)
    told = [json.loads(line) for line in found.splitlines()]
    assert 800 <= sum(line["lines"] for line in told if line["event"] == "log_dropped") <= lines.dropped


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_counted():
    full = os.open("/dev/full", os.O_WRONLY)
    lines = log.Log()
    lines.start(full)
    lines.line("x")
    until(lambda: lines.dropped, 5)


def test_a_pipe_that_does_not_block():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    lines = log.Log()
    lines.start(writer)
    for number in range(100):
        lines.line("x", number=number, padding="y" * 1000)
    found = b""
    while found.count(b"\n") < 100:
        found += os.read(reader, 1 << 16)
    assert [json.loads(line)["number"] for line in found.splitlines()] == list(range(100))


@pytest.mark.promise("private-texts")
def test_messages_of_libraries_come_without_their_text(monkeypatch):
    told = []
    monkeypatch.setattr(log, "log_line", lambda event, **fields: told.append((event, fields)))
    logger = logging.getLogger("some.library")
    handler = log.Records()
    logger.addHandler(handler)
    try:
        try:
            raise KeyError("a text of a client")
        except KeyError:
            logger.exception("it failed for %s", "a text of a client")
    finally:
        logger.removeHandler(handler)
    ((event, fields),) = told
    assert (event, fields["name"], fields["level"], fields["error"]) == ("library", "some.library", "error", "KeyError")
    assert "a text" not in str(told)


def test_what_libraries_write_to_standard_error_is_counted(capfd):
    """A panic of Rust may have a client's text, and its writer would wait where nobody reads."""
    lines = log.Log()
    with lines.instead_of_stderr():
        os.write(2, b"thread 'x' panicked at src/a.rs:6:2:\na client's text\n")
        until(lambda: lines.lines)
        with suppress(BlockingIOError):  # nobody may have time to read
            os.write(2, b"x" * 1_000_000)
    os.write(2, b"afterwards")
    record = json.loads(lines.lines[0])
    assert (record["event"], record["bytes"], record["at"]) == ("stderr", 53, "src/a.rs:6:2")
    assert b"client" not in b"".join(lines.lines)
    assert capfd.readouterr().err == "afterwards"
