"""Files are read and pages drawn in threads of the tests' process: a process takes longer than its work."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from readers_eddy import process, worker
from readers_eddy.content import ReadingLimits
from readers_eddy.pdf.page_image import draw_page

_LOCK = threading.Lock()
"""PDFium knows one thread at a time."""


class ThreadedReader:
    """What `ReaderProcess` uses of a `subprocess.Popen`: it answers as `readers.worker` does."""

    def __init__(self, command: list[str], **_: Any) -> None:
        (read_in, write_in), (read_out, write_out) = os.pipe(), os.pipe()
        self.stdin, self.stdout, self.returncode = os.fdopen(write_in, "wb"), os.fdopen(read_out, "rb"), -9
        limits = ReadingLimits(**json.loads(command[-1]))
        threading.Thread(target=_answer, args=(read_in, write_out, limits), daemon=True).start()

    def kill(self) -> None:
        """Nothing: the thread ends when its input does."""

    def wait(self, timeout: float | None = None) -> int:
        return self.returncode


def _answer(read_in: int, write_out: int, limits: ReadingLimits) -> None:
    with os.fdopen(read_in) as requests, os.fdopen(write_out, "w") as out, suppress(BrokenPipeError):
        for request in requests:
            path, suffix = json.loads(request)
            with _LOCK:
                messages = list(worker._messages(Path(path), suffix, limits))
            for message in messages:
                out.write(f"{json.dumps(message, default=vars)}\n")
            out.flush()


def _run(command: list[str], input: bytes, **_: Any) -> subprocess.CompletedProcess[bytes]:
    request = json.loads(input)
    data = Path(request.pop("file")).read_bytes()
    try:
        with _LOCK:
            image, marked = draw_page(data, **request)
    except Exception:
        return subprocess.CompletedProcess(command, 1, b"")
    return subprocess.CompletedProcess(command, 0, b"%d" % marked + image)


THREADS = SimpleNamespace(
    Popen=ThreadedReader,
    run=_run,
    PIPE=subprocess.PIPE,
    DEVNULL=subprocess.DEVNULL,
    TimeoutExpired=subprocess.TimeoutExpired,
)
"""In place of the module `subprocess` where such processes are started."""


@pytest.fixture(scope="session", autouse=True)
def threaded_readers() -> Iterator[None]:
    """Read files in threads; tests of what a process bears that reads them patch that back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "subprocess", THREADS)
        yield
