"""One uploaded file on its way into the library, and its progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eddy_demo.display_text import printable
from eddy_demo.web.uploads.upload_queue import Upload

if TYPE_CHECKING:
    from chroma_eddy import DocumentRow
    from eddy_demo.readers.documents import SourceDocument

IN_PROGRESS = ("reading", "embedding", "writing")
FINISHED = ("done", "known")


@dataclass
class UploadJob:
    """An uploaded file on its way into the library.

    Attributes:
        upload: The stored file.
        state: "waiting", one of `IN_PROGRESS`, one of `FINISHED`, or "failed"; "known" means that the library had it
            already.
        message: Message for the user.
        done: Share of its text that is embedded, 0 to 1.
        left: Estimated seconds until it is written; None if unknown.
        document: Id of its document, once it has one.
        notes: What the reader left out.
        content: Its text, from reading until it is written.
    """

    upload: Upload
    state: str = "waiting"
    message: str = ""
    done: float = 0.0
    left: float | None = None
    document: str = ""
    notes: tuple[str, ...] = ()
    content: SourceDocument | None = None

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

    def mark_known(self, entry: DocumentRow) -> UploadJob:
        """Finish the job, because the library has the document already; return the job."""
        name = str(entry.metadata.get("name", entry.id))
        self.state, self.document, self.done, self.left, self.content = "known", entry.id, 1.0, None, None
        also = "" if name == self.upload.name else f" as {name}"
        self.message = f"already in the library{also}"
        return self
