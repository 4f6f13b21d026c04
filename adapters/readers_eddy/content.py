"""What goes into reading and comes out of it: limits, errors, and the result of reading one file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass

from eddy_embed.errors import EddyError

MAX_TITLE = 1000
"""Maximum length of a title and of a row's id; a longer one is a file that lost its line ends, or an attack."""


@dataclass(frozen=True)
class ReadingLimits:
    """Limits of reading one file; it is refused beyond them, and the message names the limit."""

    file_bytes: int = 64 * 2**20  # of a file that is one document, and of a row of a .jsonl file
    parse_seconds: float = 120.0
    parse_bytes: int = 2 * 2**30  # memory of the process that reads
    pages: int = 5_000  # of a PDF file
    characters: int = 20_000_000  # of a document's text
    rows: int = 1_000_000  # of a .jsonl file
    unpacked_bytes: int = 512 * 2**20  # of a .jsonl file, and of one that is an archive, as .docx is


class Unreadable(EddyError):
    """One file cannot be read; the message says why. Other files are still read."""


class NothingToRead(EddyError):
    """The given paths contain no document."""


def one_line(message: object, most: int = 200) -> str:
    """Shorten a message about a damaged file, which may quote the file, to one line."""
    text = " ".join(str(message).split())
    return text if len(text) <= most else f"{text[:most]} …"


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
    text, starts = "", list[int]()
    for page in pages:
        starts.append(len(text) + 2 if text else 0)
        if body := page.strip("\n").rstrip():
            text += f"\n\n{body}" if text else body
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
