"""Read an uploaded file in a child process with limited time and memory."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import eddy_demo
from eddy_demo.errors import Unreadable
from eddy_demo.readers.documents import SourceDocument
from eddy_demo.web.limits import Limits

_POLL_SECONDS = 0.05
WORKING_FOLDER = Path(eddy_demo.__file__).parents[1]
"""Where child processes start: `python -m` imports from there first, so that it must be the folder of this package."""


def worker_command(module: str, *arguments: object) -> list[str]:
    """Return the command that runs a module beside this one as a child process."""
    return [sys.executable, "-B", "-m", f"eddy_demo.web.uploads.{module}", *map(str, arguments)]


def parse_upload(file: Path, name: str, origin: str, limits: Limits, check: Callable[[], None]) -> SourceDocument:
    """Read an uploaded file within the limits; an exception from `check`, called regularly, ends the reading."""
    numbers = (limits.pages, limits.characters, limits.parse_bytes, math.ceil(limits.parse_seconds))
    child = subprocess.Popen(
        worker_command("parser_worker", file.resolve(), f"x{Path(name).suffix.lower()}", *numbers),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=WORKING_FOLDER,
    )
    try:
        out = _wait(child, limits.parse_seconds, check)
    finally:
        child.kill()
        child.wait()
    try:
        result = json.loads(out)
    except ValueError:
        raise Unreadable(
            f"reading it ended without a result (status {child.returncode}): it may be damaged, or need more than "
            f"{limits.parse_bytes // 2**20} MB of memory"
        ) from None
    if "error" in result:
        raise Unreadable(result["error"])
    page_starts, notes = tuple(result["page_starts"]), tuple(result["notes"])
    return SourceDocument(origin, name, result["title"], result["text"], page_starts, notes)


def _wait(child: subprocess.Popen[bytes], seconds: float, check: Callable[[], None]) -> bytes:
    until = time.monotonic() + seconds
    while True:
        try:
            return child.communicate(timeout=_POLL_SECONDS)[0]
        except subprocess.TimeoutExpired:
            check()
            if time.monotonic() > until:
                raise Unreadable(
                    f"reading it took longer than {seconds:g} seconds and was stopped; split it, or save it in a "
                    "simpler form"
                ) from None
