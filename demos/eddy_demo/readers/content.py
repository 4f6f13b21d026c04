"""Result of reading one file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Content:
    """The content of one file.

    Attributes:
        title: Title, "" without one.
        text: The text that is embedded and cited.
        page_starts: Offset in `text` of each page's first character, for a file with pages; a page without text has the
            offset of the next one.
        notes: What the reader left out or repaired, for the user.
    """

    title: str
    text: str
    page_starts: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
