"""Turn Ctrl-C, SIGTERM and SIGHUP into one exception, which ends the program without a traceback."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


class Interrupted(BaseException):
    """The process was asked to end.

    Attributes:
        status: What to exit with: 128 and the signal's number, as shells expect.
        hint: What to do next, "" where nothing is left to do.
    """

    hint = ""

    def __init__(self, number: int = signal.SIGINT) -> None:
        """Name the signal in the message."""
        name = signal.Signals(number).name
        super().__init__("Interrupted" if number == signal.SIGINT else f"Stopped by {name}")
        self.status = 128 + int(number)


@contextmanager
def stoppable() -> Iterator[None]:
    """Let signals raise `Interrupted` inside the block; a second one ends the process at once.

    Signals that are ignored, as under nohup, stay so. Outside the main thread, nothing is changed.
    """
    before: dict[int, Any] = {}

    def stop(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise Interrupted(number)

    if threading.current_thread() is threading.main_thread():
        for number in (int(getattr(signal, name)) for name in SIGNALS if hasattr(signal, name)):
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
