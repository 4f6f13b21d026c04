"""The states of an uploaded file on its way into the library, and what may follow on each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eddy_demo.display_text import printable
from eddy_demo.web.uploads.stored_uploads import Upload
from readers_eddy.documents import SourceDocument

TRANSITIONS = {
    "waiting": ("reading", "embedding"),  # embedding: it was read before something more urgent interrupted the work
    "reading": ("embedding", "failed", "waiting"),
    "embedding": ("writing", "done", "known", "failed", "waiting"),
    "writing": ("done", "failed", "waiting"),
    "failed": ("waiting",),  # to be tried again
    "done": (),
    "known": (),  # the library had its text already
}
"""States, and those that may follow. From any of them, the user may put a file away; one in progress then ends first.

An interruption lets what is in progress wait again, also for the next server: stored uploads begin as "waiting", or as
"failed".
"""
IN_PROGRESS = ("reading", "embedding", "writing")
FINISHED = ("done", "known")


@dataclass
class UploadJob:
    """An uploaded file on its way into the library."""

    upload: Upload
    state: str = "waiting"
    message: str = ""
    done: float = 0.0  # share of its text that is embedded, 0 to 1
    left: float | None = None  # estimated seconds until it is written
    cancelled: bool = False  # while it is in progress, which ends soon
    document: str = ""  # id of its document, once it has one
    older: str = ""  # id of another document of this name, which the library had before
    notes: tuple[str, ...] = ()
    content: SourceDocument | None = None  # from reading until it is written
    begins: int = 0  # number of characters that its batch embeds before its own

    def enter(self, state: str, message: str = "") -> None:
        """Go over to another state.

        Raises:
            ValueError: The state cannot follow on the present one.
        """
        if state not in (self.state, *TRANSITIONS[self.state]):
            raise ValueError(f"a file that is {self.state} cannot become {state}")
        self.state, self.message = state, message
        if state not in IN_PROGRESS:
            self.done, self.left = float(state in FINISHED), None
        if state in (*FINISHED, "failed"):
            self.content = None

    def advance(self, characters: float, rate: float) -> None:
        """Record how many characters its batch has embedded, at a `rate` in characters a second."""
        size = len(self.content.text) if self.content else 0
        self.done = min(max((characters - self.begins) / max(size, 1), 0.0), 1.0)
        to_do = self.begins + size - characters
        self.left = to_do / rate if rate and to_do > 0 else None
        self.enter("writing" if self.done == 1.0 else "embedding")

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
            "cancelled": self.cancelled,
            "document": self.document,
            "older": self.older,
            "notes": [printable(note) for note in self.notes],
        }
