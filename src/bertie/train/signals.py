"""Graceful stop: the first SIGTERM, SIGHUP or SIGINT stops the run after the step, and a second SIGINT interrupts it at
once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from bertie.console import console, end_signals, leave_terminal


class StopRequest:
    """The signal that requested a stop, or None."""

    name: str | None = None


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Context that records SIGTERM, SIGHUP and SIGINT. Outside the main thread, signals cannot be recorded."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        if request.name is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        request.name = signal.Signals(number).name
        if number == signal.SIGHUP:
            leave_terminal()
        console.say(
            "Stopping with a checkpoint after this step. Press Ctrl-C again to stop at once, without a checkpoint."
        )

    numbers = (*end_signals(), signal.SIGINT)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
