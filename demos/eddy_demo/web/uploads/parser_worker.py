"""Child process that reads one uploaded file under limits of the operating system.

`parser_process` runs it as `python -m eddy_demo.web.uploads.parser_worker FILE NAME PAGES CHARACTERS MEMORY SECONDS`;
it prints one JSON object.
"""

from __future__ import annotations

import io
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eddy_demo.errors import Unreadable
from eddy_demo.readers.documents import read_content


def limit_resources(memory: int, seconds: int) -> None:
    """Limit memory in bytes and CPU time: macOS does not limit memory, Windows limits nothing."""
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
    """Count the pages of a PDF file; 0 if that fails, and its reader will say why."""
    from pypdf import PdfReader

    try:
        return len(PdfReader(io.BytesIO(data)).pages)
    except MemoryError:
        raise
    except Exception:  # a damaged file raises errors of any type in pypdf
        return 0


def parse_file(path: Path, name: str, max_pages: int, max_characters: int) -> dict[str, Any]:
    """Return the content of a file as plain values, or `{"error": reason}`."""
    data = path.read_bytes()
    try:
        if name.lower().endswith(".pdf") and (n_pages := count_pages(data)) > max_pages:
            raise Unreadable(f"it has {n_pages:,} pages, and at most {max_pages:,} are read; split it")
        content = read_content(data, name)
        if len(content.text) > max_characters:
            size = f"{len(content.text):,}"
            raise Unreadable(f"its text has {size} characters, and at most {max_characters:,} are read; split it")
    except Unreadable as error:
        return {"error": str(error)}
    except (MemoryError, RecursionError):
        return {"error": "reading it takes more memory than is allowed; split it, or save it in a simpler form"}
    return asdict(content)


def main() -> None:
    """Read the file named on the command line."""
    file, name, *numbers = sys.argv[1:]
    max_pages, max_characters, memory, seconds = map(int, numbers)
    limit_resources(memory, seconds)
    sys.stdout.write(json.dumps(parse_file(Path(file), name, max_pages, max_characters)))


if __name__ == "__main__":
    main()
