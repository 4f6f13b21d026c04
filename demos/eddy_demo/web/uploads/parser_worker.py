"""Reads one uploaded file in a process of its own, whose memory and time the system bounds.

Run by `parser_process` as `python -m eddy_demo.web.uploads.parser_worker FILE NAME PAGES CHARACTERS MEMORY SECONDS`;
prints one JSON object.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

from eddy_demo.errors import Unreadable
from eddy_demo.readers.documents import read_bytes


def bound(memory: int, seconds: int) -> None:
    """Bound this process, where the system can: memory is not bounded on macOS, and nothing on Windows."""
    try:
        import resource
    except ModuleNotFoundError:
        return
    limits = {"RLIMIT_AS": memory, "RLIMIT_CPU": seconds, "RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0}
    for name, value in limits.items():
        try:
            resource.setrlimit(getattr(resource, name), (value, value))
        except (ValueError, OSError):  # macOS refuses some
            continue


def count_pages(data: bytes) -> int:
    """Pages of a PDF file, 0 if they cannot be counted: its reader will say why."""
    from pypdf import PdfReader

    try:
        return len(PdfReader(io.BytesIO(data)).pages)
    except MemoryError:
        raise
    except Exception:  # damage makes pypdf stumble anywhere, with errors of any type
        return 0


def parse(path: Path, name: str, pages: int, characters: int) -> dict[str, Any]:
    """The content of a file as plain values, or `{"error": reason}`."""
    data = path.read_bytes()
    try:
        if name.lower().endswith(".pdf") and (own := count_pages(data)) > pages:
            raise Unreadable(f"it has {own:,} pages, and at most {pages:,} are read; split it")
        content = read_bytes(data, name)
        if len(content.text) > characters:
            many = f"{len(content.text):,}"
            raise Unreadable(f"its text has {many} characters, and at most {characters:,} are read; split it")
    except Unreadable as error:
        return {"error": str(error)}
    except (MemoryError, RecursionError):
        return {"error": "reading it takes more memory than is allowed; split it, or save it in a simpler form"}
    return {
        "title": content.title,
        "text": content.text,
        "page_starts": content.page_starts,
        "notes": content.notes,
    }


def main() -> None:
    """Read the file named on the command line."""
    file, name, *numbers = sys.argv[1:]
    pages, characters, memory, seconds = map(int, numbers)
    bound(memory, seconds)
    sys.stdout.write(json.dumps(parse(Path(file), name, pages, characters)))


if __name__ == "__main__":
    main()
