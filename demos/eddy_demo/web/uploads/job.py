"""One uploaded file on its way into the library, and its progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chroma_eddy import Entry
from eddy_demo.display_text import printable
from eddy_demo.readers.documents import SourceDocument
from eddy_demo.web.uploads.upload_queue import Upload

IN_PROGRESS = ("reading", "embedding", "writing")
FINISHED = ("done", "known")


@dataclass
class UploadJob:
    """An uploaded file on its way into the library."""

    upload: Upload
    state: str = "waiting"  # "waiting", "failed", or of IN_PROGRESS or FINISHED; "known": the library had it already
    message: str = ""
    done: float = 0.0  # share of its text that is embedded, 0 to 1
    left: float | None = None  # estimated seconds until it is written
    document: str = ""  # id of its document, once it has one
    notes: tuple[str, ...] = ()
    content: SourceDocument | None = None  # from reading until it is written

    def as_data(self) -> dict[str, Any]:
        """Return the values that the page shows."""
        return {
            "id": self.upload.id,
            "name": self.upload.name,
            "size": self.upload.size,
            "state": self.state,
            "message": printable(self.message),
            "done": round(self.done, 4),
            "left": None if self.left is None else round(self.left, 1),
            "document": self.document,
            "notes": [printable(note) for note in self.notes],
        }

    def mark_known(self, entry: Entry) -> UploadJob:
        """Finish the job, because the library has the document already; return the job."""
        name = str(entry.metadata.get("name", entry.id))
        self.state, self.document, self.done, self.left, self.content = "known", entry.id, 1.0, None, None
        also = "" if name == self.upload.name else f" as {name}"
        self.message = f"already in the library{also}"
        return self
