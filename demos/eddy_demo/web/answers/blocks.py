"""A document as blocks of sentences that can be pointed at."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddy_demo.display_text import printable, unwrapped

if TYPE_CHECKING:
    from eddy_demo.web.library_reader import Book

_FENCE = re.compile(r" {0,3}(```|~~~)")
_HEADING = re.compile(r"(#{1,6})[ \t]+")
MARKS = re.compile(r"^#{1,6}[ \t]+", re.MULTILINE)
"""What marks a heading, at the beginning of a line."""
_ITEM = re.compile(r" *([-*+•]|\d{1,3}[.)]) ")


@dataclass(frozen=True)
class Piece:
    """Characters of a block: a sentence or a part of one, or what stands between two.

    Attributes:
        text: As it is shown.
        sentence: Number of the sentence, None between two.
        start: Its first character in the document, of the whole sentence.
        end: The character after its last.
        first: Whether the sentence begins here: it may go over the border of a block.
        page: The page that begins here, counted from 1; None for none.
    """

    text: str
    sentence: int | None = None
    start: int = 0
    end: int = 0
    first: bool = False
    page: int | None = None


@dataclass(frozen=True)
class Block:
    """A paragraph, heading, item, table or piece of code.

    Attributes:
        kind: One of these: prose, h1 .. h6, item, table, code.
        pieces: What it holds.
    """

    kind: str
    pieces: tuple[Piece, ...]

    @property
    def tag(self) -> str:
        """Its element: headings of a document stand below the page's own."""
        return f"h{min(int(self.kind[1]) + 1, 6)}" if self.kind[0] == "h" else "div"


def blocks(book: Book) -> list[Block]:
    """The blocks of a document, in order."""
    text = book.content.text
    flat = unwrapped(text)
    spans = [(sentence.start, sentence.end) for sentence in book.content.sentences]
    pages = list(book.entry.page_starts)
    found = []
    for start, end, kind in _borders(text):
        shown = text if kind in ("code", "table") else flat
        pieces = tuple(_pieces(shown, start, end, spans, pages))
        if kind[0] == "h" and pieces:
            pieces = (_without_marks(pieces[0]), *pieces[1:])
        found.append(Block(kind, pieces))
    return found


def _borders(text: str) -> Iterator[tuple[int, int, str]]:
    """Where blocks begin and end, and what they are."""
    at, begun, kind, fence = 0, -1, "", ""
    for line in text.split("\n"):
        end = at + len(line)
        own = _kind(line) if not fence else "code"
        mark = _FENCE.match(line)
        joins = begun >= 0 and (fence or own == kind or (kind == "item" and own == "prose"))
        if begun >= 0 and ((not line.strip() and not fence) or not joins or (own == "item" and not fence)):
            yield begun, at - 1, kind
            begun = -1
        if line.strip() or fence:
            begun, kind = (at, own) if begun < 0 else (begun, kind)
        if mark and not fence:
            fence = mark[1]
        elif (mark and mark[1] == fence) or kind[:1] == "h":
            if begun >= 0:
                yield begun, end, kind
            begun, fence = -1, "" if mark else fence
        at = end + 1
    if begun >= 0:
        yield begun, len(text), kind


def _kind(line: str) -> str:
    if _FENCE.match(line):
        return "code"
    if heading := _HEADING.match(line):
        return f"h{len(heading[1])}"
    if line.lstrip().startswith("|"):
        return "table"
    return "item" if _ITEM.match(line) else "prose"


def _pieces(text: str, start: int, end: int, spans: Sequence[tuple[int, int]], pages: Sequence[int]) -> Iterator[Piece]:
    at = start
    number = _first(spans, start)
    while number < len(spans) and spans[number][0] < end:
        left, right = max(spans[number][0], start), min(spans[number][1], end)
        if left > at:
            yield _piece(text, at, left, pages)
        yield _piece(text, left, right, pages, number, spans[number], left == spans[number][0])
        at = right
        number += 1
    if at < end:
        yield _piece(text, at, end, pages)


def _first(spans: Sequence[tuple[int, int]], start: int) -> int:
    """The first span that ends behind a character."""
    number = bisect_left(spans, (start,))
    return number - 1 if number and spans[number - 1][1] > start else number


def _piece(
    text: str,
    start: int,
    end: int,
    pages: Sequence[int],
    sentence: int | None = None,
    span: tuple[int, int] = (0, 0),
    first: bool = False,
) -> Piece:
    begun = bisect_left(pages, end)
    page = begun if begun and pages[begun - 1] >= start else None
    shown = printable(text[start:end].replace("\0", ""))
    return Piece(shown, sentence, span[0], span[1], first, page)


def _without_marks(piece: Piece) -> Piece:
    return Piece(MARKS.sub("", piece.text), piece.sentence, piece.start, piece.end, piece.first, piece.page)
