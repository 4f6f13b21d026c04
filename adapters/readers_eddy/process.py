"""Read files in a child process with limited time and memory."""

from __future__ import annotations

import dataclasses
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from readers_eddy.content import Content, ReadingLimits, Row, Unreadable
from readers_eddy.formats import read_file

_POLL_SECONDS = 0.05
WORKING_FOLDER = Path(__file__).resolve().parents[1]
"""Where child processes start: `python -m` imports from there first, so that it must be the folder of this package."""


def worker_command(module: str, *arguments: object) -> list[str]:
    """Return the command that runs a module as a child process."""
    return [sys.executable, "-B", "-m", module, *map(str, arguments)]


Read = Callable[[Path, str], Iterator[Content | Row]]
"""Reads a file by the reader that its suffix selects, as `ReaderProcess.read` does."""


@contextmanager
def reading(limits: ReadingLimits, isolated: bool = True, check: Callable[[], None] = lambda: None) -> Iterator[Read]:
    """Give what reads files: in a child process, or in this one, whose memory and time a hostile file may take."""
    if not isolated:
        yield partial(read_file, limits=limits)
        return
    process = ReaderProcess(limits, check)
    try:
        yield process.read
    finally:
        process.stop()


class ReaderProcess:
    """A process that reads one file after another; after one that it fails on, another process reads the next."""

    def __init__(self, limits: ReadingLimits, check: Callable[[], None] = lambda: None) -> None:
        """Set the limits; an exception from `check`, called regularly, ends the reading."""
        self._limits, self._check = limits, check
        self._child: subprocess.Popen[bytes] | None = None
        self._lines = queue.SimpleQueue[bytes]()

    def read(self, path: Path, suffix: str) -> Iterator[Content | Row]:
        """Yield the one document of a file, or the rows of a .jsonl file; the suffix selects the reader.

        Raises:
            Unreadable: The file, or its rest, cannot be read within the limits.
        """
        child = self._child or self._start()
        assert child.stdin is not None
        with suppress(BrokenPipeError):  # the process has ended: `_receive` says so
            child.stdin.write(json.dumps([str(path.absolute()), suffix]).encode() + b"\n")
            child.stdin.flush()
        until = time.monotonic() + self._limits.parse_seconds
        while "error" not in (message := self._receive(child, until)):
            if "alive" in message:
                until = time.monotonic() + self._limits.parse_seconds
                continue
            if "document" in message:
                yield _content(message["document"])
            else:
                row = message["row"]
                yield Row(**row | {"content": row["content"] and _content(row["content"])})
        if message["last"]:
            self.stop()
        if message["error"]:
            raise Unreadable(message["error"])

    def _start(self) -> subprocess.Popen[bytes]:
        limits = {field.name: getattr(self._limits, field.name) for field in dataclasses.fields(ReadingLimits)}
        self._child = child = subprocess.Popen(
            worker_command("readers_eddy.worker", json.dumps(limits)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=WORKING_FOLDER,
            start_new_session=True,  # else Ctrl-C would end the reading before the server stops, as a failure
        )
        lines = self._lines = queue.SimpleQueue[bytes]()

        def receive() -> None:
            assert child.stdout is not None
            with child.stdout as out:
                for line in out:
                    lines.put(line)
            lines.put(b"")

        threading.Thread(target=receive, name="reader", daemon=True).start()
        return child

    def _receive(self, child: subprocess.Popen[bytes], until: float) -> dict[str, Any]:
        """Return the next message of the process; stop the process if there is none in time."""
        while time.monotonic() < until:
            self._check()
            with suppress(queue.Empty):
                line = self._lines.get(timeout=_POLL_SECONDS)
                break
        else:
            self.stop()
            raise Unreadable(
                f"reading it took longer than {self._limits.parse_seconds:g} seconds and was stopped; split it, or "
                "save it in a simpler form"
            )
        try:
            return dict(json.loads(line))
        except ValueError:
            with suppress(subprocess.TimeoutExpired):
                child.wait(1)  # for its own status
            self.stop()
            raise Unreadable(
                f"reading it ended without a result (status {child.returncode}): it may be damaged, or need more than "
                f"{self._limits.parse_bytes // 2**20} MB of memory"
            ) from None

    def stop(self) -> None:
        """End the process."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            assert child.stdin is not None
            with suppress(BrokenPipeError):
                child.stdin.close()


def _content(values: dict[str, Any]) -> Content:
    return Content(**{name: _tuple(value) for name, value in values.items()})


def _tuple(value: Any) -> Any:
    return tuple(map(_tuple, value)) if isinstance(value, list) else value
