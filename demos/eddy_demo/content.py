"""What a reader makes of one file."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
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


def pages_of(page_starts: Sequence[int], start: int, end: int) -> tuple[int, int] | None:
    """The first and last page, counted from 1, that hold `text[start:end]`; None for a text without pages."""
    if not page_starts:
        return None
    return bisect_right(page_starts, start), bisect_right(page_starts, max(start, end - 1))
