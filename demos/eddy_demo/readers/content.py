"""Result of reading one file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Content:
    """The content of one file; a page without text starts where the next one does."""

    title: str  # "" without one
    text: str  # as it is embedded and cited
    page_starts: tuple[int, ...] = ()  # offset in `text` of each page's first character
    notes: tuple[str, ...] = ()  # what the reader left out or repaired, for the user
