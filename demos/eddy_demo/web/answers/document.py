"""A document as blocks of sentences, each with its own address."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eddy_demo.ask import cells, is_rule, page_cited
from eddy_demo.display_text import printable, unwrapped
from eddy_demo.web.library_reader import LibraryDocument
from eddy_embed.integrations.documents import Pages

_FENCE = re.compile(r" {0,3}(```|~~~)")
_HEADING = re.compile(r"^(#{1,6})[ \t]+")
_ITEM = re.compile(r" *([-*+•]|\d{1,3}[.)]) ")


@dataclass(frozen=True)
class BlockPiece:
    """Part of a block: a sentence, a part of one, or the text between two."""

    text: str
    page: str  # the page that begins here, as it is cited, or ""
    sentence: int | None = None  # number of the sentence; None between two
    start: int = 0  # of the whole sentence in the document
    end: int = 0
    first: bool = False  # whether the sentence begins here; it may continue in the next block

    @property
    def cells(self) -> tuple[str, ...]:
        """Cells of a row of a table."""
        return cells(self.text)


@dataclass(frozen=True)
class TextBlock:
    """A paragraph, heading, item, table or piece of code."""

    kind: str  # "prose", "h1" to "h6", "item", "table", "code" or "rows" (of a table that cannot be drawn)
    pieces: tuple[BlockPiece, ...]

    @property
    def tag(self) -> str:
        """HTML element; a document's headings are one level below the page's."""
        return f"h{min(int(self.kind[1]) + 1, 6)}" if self.kind[0] == "h" else "div"


def document_blocks(document: LibraryDocument) -> list[TextBlock]:
    """Split a document into blocks, in order."""
    text = document.content.text
    flat = unwrapped(text)
    spans = [(sentence.start, sentence.end) for sentence in document.content.sentences]
    pages = document.entry.pages
    blocks = []
    for start, end, kind in _block_spans(text):
        shown = text if kind in ("code", "table") else flat
        pieces = tuple(_pieces(shown, start, end, spans, pages))
        if kind[0] == "h" and pieces:
            pieces = (replace(pieces[0], text=_HEADING.sub("", pieces[0].text)), *pieces[1:])
        elif kind == "table":
            rows = tuple(piece for piece in pieces if piece.sentence is not None and not is_rule(piece.text))
            kind, pieces = ("table", rows) if rows and all(piece.cells for piece in rows) else ("rows", pieces)
        blocks.append(TextBlock(kind, pieces))
    return blocks


def _block_spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and kind of each block."""
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


def _pieces(text: str, start: int, end: int, spans: Sequence[tuple[int, int]], pages: Pages) -> Iterator[BlockPiece]:
    at = start
    number = bisect_right(spans, start, key=lambda span: span[1])  # the first that ends after the start
    while number < len(spans) and spans[number][0] < end:
        left, right = max(spans[number][0], start), min(spans[number][1], end)
        if left > at:
            yield _piece(text, at, left, pages)
        first = left == spans[number][0]
        yield _piece(text, left, right, pages, number, *spans[number], first)
        at = right
        number += 1
    if at < end:
        yield _piece(text, at, end, pages)


def _piece(text: str, start: int, end: int, pages: Pages, *sentence: Any) -> BlockPiece:
    begun = bisect_left(pages.starts, end)
    page = ""
    if begun and pages.starts[begun - 1] >= start:
        page = page_cited(pages.page_labels[begun - 1] if pages.page_labels else str(begun))
    return BlockPiece(printable(text[start:end].replace("\0", "")), page, *sentence)
