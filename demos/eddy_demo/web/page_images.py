"""Find the PDF file of a document, and draw its pages in a child process with limited time and memory."""

from __future__ import annotations

import json
import math
import subprocess
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

from chroma_eddy import StoredDocument
from eddy_demo.display_text import printable
from eddy_demo.library.settings import upload_path
from eddy_demo.web.http import Limits
from eddy_embed.integrations.http_guard import RequestRefused
from readers_eddy.documents import file_digest
from readers_eddy.process import WORKING_FOLDER, worker_command


@dataclass(frozen=True)
class PageImage:
    """A page as an image."""

    data: bytes  # WebP
    caption: str


def find_original(library: Path, entry: StoredDocument) -> Path:
    """Return the PDF file of a document, if it is unchanged: an upload, or one that was read where it is."""
    name, origin = printable(str(entry.metadata.get("name", entry.id))), str(entry.metadata.get("origin", ""))
    if not name.lower().endswith(".pdf"):
        raise RequestRefused(404, f"only pages of PDF files are drawn; {name} is none, so open it in its own program")
    path = upload_path(library, origin) or Path(origin)
    try:
        if not path.is_file():
            raise FileNotFoundError  # or something else is there now, such as a pipe
        digest = file_digest(path.read_bytes())
    except OSError:
        raise RequestRefused(404, f"the original of {name} is not any more where it was read; put it back") from None
    if digest != entry.metadata.get("file_digest"):
        raise RequestRefused(404, f"the original of {name} has changed since it was read; ingest it again")
    return path


def draw_original(file: Path, entry: StoredDocument, text: str, start: int, end: int, limits: Limits) -> PageImage:
    """Draw the page of a document's text on which the sentence from `start` to `end` begins, and mark it there."""
    starts = entry.page_starts
    page = bisect_right(starts, start)
    page_end = starts[page] if page < len(starts) else len(text)
    request = {
        "file": str(file.resolve()),
        "page": page,
        "before": text[starts[page - 1] : start],
        "text": text[start : min(end, page_end)],
    }
    try:
        child = subprocess.run(
            worker_command("eddy_demo.web.page_worker", limits.parse_bytes, math.ceil(limits.page_seconds)),
            input=json.dumps(request).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=WORKING_FOLDER,
            start_new_session=True,
            timeout=limits.page_seconds,
        )
    except subprocess.TimeoutExpired:
        raise RequestRefused(
            422, f"drawing page {page} took longer than {limits.page_seconds:g} seconds and was stopped"
        ) from None
    if child.returncode or not child.stdout:
        raise RequestRefused(
            422,
            f"page {page} cannot be drawn (status {child.returncode}): it may be damaged, or need more than "
            f"{limits.parse_bytes // 2**20} MB of memory; open the file in a PDF reader",
        )
    if child.stdout[:1] == b"0":
        told = ". The sentence was not found in the text of this page, so nothing is marked."
    else:
        told = ", with the sentence marked." + (" It continues on the next page." if end > page_end else "")
    return PageImage(child.stdout[1:], f"Page {page} of {len(starts)}{told}")
