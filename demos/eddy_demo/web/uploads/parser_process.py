"""An uploaded file to a document, read by a bounded process."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import eddy_demo
from eddy_demo.errors import Unreadable
from eddy_demo.readers.documents import Document

if TYPE_CHECKING:
    from eddy_demo.web.limits import Limits

_POLL = 0.05


def parse(file: Path, name: str, origin: str, limits: Limits, check: Callable[[], None]) -> Document:
    """Read an uploaded file.

    Args:
        file: Where it is kept.
        name: What its user calls it; its end says how it is read.
        origin: Of the document.
        limits: Of time, memory, pages and characters.
        check: Called now and then; what it raises ends the reading.

    Raises:
        Unreadable: It cannot be read, or not within the limits.
    """
    numbers = (limits.pages, limits.characters, limits.parse_bytes, math.ceil(limits.parse_seconds))
    command = [
        sys.executable,
        "-B",
        "-m",
        "eddy_demo.web.uploads.parser_worker",
        str(file.resolve()),
        f"x{_suffix(name)}",
    ]
    # Python looks for modules in the folder where it starts: it is to be this package's.
    child = subprocess.Popen(
        [*command, *map(str, numbers)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=Path(eddy_demo.__file__).parents[1],
    )
    try:
        out = _wait(child, limits.parse_seconds, check)
    finally:
        child.kill()
        child.wait()
    try:
        found = json.loads(out)
    except ValueError:
        raise Unreadable(
            f"reading it ended without a result (status {child.returncode}): it may be damaged, or need more than "
            f"{limits.parse_bytes // 2**20} MB of memory"
        ) from None
    if "error" in found:
        raise Unreadable(found["error"])
    return Document(origin, name, found["title"], found["text"], tuple(found["page_starts"]), tuple(found["notes"]))


def _suffix(name: str) -> str:
    return Path(name).suffix.lower()


def _wait(child: subprocess.Popen[bytes], seconds: float, check: Callable[[], None]) -> bytes:
    until = time.monotonic() + seconds
    while True:
        try:
            return child.communicate(timeout=_POLL)[0]
        except subprocess.TimeoutExpired:
            check()
            if time.monotonic() > until:
                raise Unreadable(
                    f"reading it took longer than {seconds:g} seconds and was stopped; split it, or save it in a "
                    "simpler form"
                ) from None
