"""What a reader makes of one file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Content:
    """The content of one file.

    Attributes:
        title: "" without one.
        text: What is embedded and cited.
        page_starts: Of a file with pages, where each one begins in the text; a page without text begins where the next
            one does.
        notes: What was left out or repaired, for the user to know.
    """

    title: str
    text: str
    page_starts: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
