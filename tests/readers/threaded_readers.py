"""Files are read and pages drawn in a thread of the tests' process: a process takes longer than its work."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from readers_eddy import Unreadable, worker
from readers_eddy.content import Content, Row
from readers_eddy.pdf.page_image import draw_page
from readers_eddy.process import ReaderProcess

_THREAD = ThreadPoolExecutor(1)
"""PDFium knows one thread at a time."""
READ = ReaderProcess.read


def _read(reader: ReaderProcess, path: Path, suffix: str) -> Iterator[Content | Row]:
    messages = _THREAD.submit(lambda: list(worker._messages(path, suffix, reader._limits)))
    reader._check()
    while not wait([messages], timeout=0.05).done:
        reader._check()
    *items, end = messages.result()
    for item in items:
        yield from item.values()
    if end["error"]:
        raise Unreadable(end["error"])


def _draw(command: list[str], input: bytes, **_: Any) -> subprocess.CompletedProcess[bytes]:
    request = json.loads(input)
    try:
        image, marked = _THREAD.submit(draw_page, Path(request.pop("file")).read_bytes(), **request).result()
    except Exception:
        return subprocess.CompletedProcess(command, 1, b"")
    return subprocess.CompletedProcess(command, 0, b"%d" % marked + image)


THREADS = SimpleNamespace(
    run=_draw, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired
)
"""In place of the module `subprocess` where a process draws pages."""


@pytest.fixture(scope="session", autouse=True)
def threaded_readers() -> Iterator[None]:
    """Read files in threads, but where a test takes `real_processes`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReaderProcess, "read", _read)
        yield


@pytest.fixture
def real_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers as users have them: what such a process bears is the subject."""
    monkeypatch.setattr(ReaderProcess, "read", READ)
