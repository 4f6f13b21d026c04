"""Result of reading one file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass

MAX_TITLE = 1000
"""Maximum length of a title and of a row's id; a longer one is a file that lost its line ends, or an attack."""


@dataclass(frozen=True)
class Content:
    """The content of one document; a page without text starts where the next one does."""

    title: str  # "" without one
    text: str  # as it is embedded and cited
    page_starts: tuple[int, ...] = ()  # offset in `text` of each page's first character
    _: KW_ONLY
    page_labels: tuple[str, ...] = ()  # what the pages are called, such as "iv" or "slide 3", if not 1, 2, 3
    left_out: tuple[tuple[int, int], ...] = ()  # parts that lists of page numbers are: kept, and no passages
    notes: tuple[str, ...] = ()  # what the reader left out or repaired, for the user


@dataclass(frozen=True)
class Row:
    """A row of a .jsonl file: a document, or the reason why it is none."""

    line: int  # from 1
    id: str = ""
    content: Content | None = None
    reason: str = ""


def join_pages(pages: Iterable[str]) -> tuple[str, tuple[int, ...]]:
    """Return the text of pages, with an empty line between two, and the offset of each page's first character."""
    parts: list[str] = []
    starts, at = [], 0
    for page in pages:
        starts.append(at)
        if text := page.strip("\n").rstrip():
            parts.append(text)
            at += len(text) + 2
    text = "\n\n".join(parts)
    return text, tuple(min(start, len(text)) for start in starts)


def choose_title(candidates: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """Return the first title that is neither empty nor too long, "" without one, and notes on those too long."""
    notes: list[str] = []
    for title in candidates:
        if len(title) > MAX_TITLE:
            notes.append(f"a title of {len(title):,} characters is left out; at most {MAX_TITLE:,} are taken")
        elif title:
            return title, tuple(notes)
    return "", tuple(notes)
