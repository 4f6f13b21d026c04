"""Child process that reads files under limits of the operating system.

`process` runs it as `python -m readers_eddy.worker LIMITS`, the limits as JSON. Each line of its input asks for a file:
`["path", "suffix"]`. Each line of its output is JSON: a document, a row, a sign of life, or the end of the file.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from readers_eddy.content import Content, ReadingLimits, Unreadable
from readers_eddy.formats import read_file

_SMALL_BYTES = 2**20
"""Size of a file up to which the process reads another one afterwards, whose memory it must not have used up."""


def main() -> None:
    """Read the files that standard input names, until it closes."""
    limits = ReadingLimits(**json.loads(sys.argv[1]))
    for request in sys.stdin:
        limit_resources(limits.parse_bytes, limits.parse_seconds)
        path, suffix = json.loads(request)
        for message in _messages(Path(path), suffix, limits, partial(_go_on, limits)):
            sys.stdout.write(f"{json.dumps(message, default=vars)}\n")
        sys.stdout.flush()


def _go_on(limits: ReadingLimits) -> None:
    """Begin the time anew, here and in the process that waits: a page was recognized, and the next one may be."""
    limit_resources(limits.parse_bytes, limits.parse_seconds)
    sys.stdout.write('{"alive": true}\n')
    sys.stdout.flush()


def _messages(
    path: Path, suffix: str, limits: ReadingLimits, alive: Callable[[], None] = lambda: None
) -> Iterator[dict[str, Any]]:
    error, last = "", False
    try:
        for item in read_file(path, suffix, limits, alive):
            yield {"document" if isinstance(item, Content) else "row": item}
        last = path.stat().st_size > _SMALL_BYTES
    except MemoryError:
        error = "reading it takes more memory than is allowed; split it, or save it in a simpler form"
        last = True
    except Unreadable as failure:
        error = str(failure)
    yield {"error": error, "last": last}


def limit_resources(memory: int, seconds: float) -> None:
    """Limit memory in bytes, and CPU time from now on: macOS does not limit memory, Windows limits nothing."""
    try:
        import resource
    except ModuleNotFoundError:
        return
    # The parent ends a reading that takes too long; this is for a process whose parent was killed.
    until = math.ceil(time.process_time() + seconds)
    values = {"RLIMIT_AS": memory, "RLIMIT_CPU": until, "RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0}
    for name, value in values.items():
        try:
            kind = getattr(resource, name)
            resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))
        except (ValueError, OSError):  # macOS refuses some
            continue


if __name__ == "__main__":
    main()
