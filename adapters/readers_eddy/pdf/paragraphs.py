"""Join lines of pages into paragraphs by their positions, without line ends, hyphens and page borders."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

SOFT_HYPHEN = "\u00ad"
"""The soft hyphen."""

LEADER = re.compile(r"(?:\.[ \xa0]?){4,}\s*[\divxlc]+$|(?:\u2026[ \xa0]?){2,}\s*[\divxlc]+$", re.IGNORECASE)
"""Dots that lead to a page number, at the end of a line of a table of contents."""

_STOP = re.compile(r"[.!?:…。！？：][\"'”’»)\]]*$")
_REMARK = re.compile(r"#{1,6}(?:\s|$)")
_BULLET = re.compile(r"[•‣◦▪■●○·\uf0b7\uf0a7]")
_ITEM = re.compile(r"(?:[-–—*]|\(?(?:\d{1,3}|[a-zA-Z])[.)]|\[\d{1,3}\]|\w{1,2}(?:\.\d{1,3})+\.?)\s")
_BROKEN = re.compile(rf"([^\W\d_]+)[-\u2010{SOFT_HYPHEN}]$")
_WIDE = re.compile("[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]")  # Korean has spaces
_GOES_ON = re.compile(rf"(?:[-\u2010–—{SOFT_HYPHEN}]|{_WIDE.pattern})$")
_WORD = re.compile(r"[^\W\d_]+")
_COMPOUND = re.compile(r"(?=(?<![^\W\d_])([^\W\d_]+)[-\u2010]([^\W\d_]+))")

_MAX_GAP = 1.15
"""Ratio to the typical distance between lines; a larger gap begins a paragraph."""
_SHORT_LINE = 0.6
"""Ratio to the typical length; a shorter line ends a paragraph, unless the next one begins in lower case."""
_COLUMN, _HEADING = 16, 40
"""Characters in a line of the narrowest column of prose, and in the longest line in capitals that is a heading."""
_MAX_SIZE_CHANGE = 0.12
"""Relative difference of sizes above which lines belong to different paragraphs, as a heading or a footnote does."""


@dataclass(frozen=True, eq=False)
class Line:
    """A line of a page: text without surrounding space, page counted from 0, sizes in points, angle in degrees."""

    text: str
    page: int
    x: float  # start in the direction of writing
    y: float  # height on the page
    size: float  # font size of most of its characters
    angle: float = 0.0
    is_row: bool = False  # of a table
    end: float = 0.0  # where it ends in the direction of writing
    parts: int = 1  # number of parts with wide gaps between them
    glyphs: tuple[int, ...] = field(default=(), repr=False, compare=False)  # in PDFium's page of text

    def with_text(self, text: str) -> Line:
        """Return the line with another text."""
        return replace(self, text=text)


def reflow(lines: Sequence[Line], n_pages: int) -> tuple[str, tuple[int, ...]]:
    """Join lines in reading order into paragraphs with a blank line between them; return also the offset of each page.

    A paragraph may continue over the border of a page or column. A word broken at a line end is joined; its hyphen
    stays if the document has the word elsewhere with a hyphen and nowhere without, or if the second part does not begin
    in lower case and the joined word occurs nowhere else.
    """
    layout = _TypicalLayout(lines)
    vocabulary = _Vocabulary(lines)
    parts: list[str] = []
    starts: list[int] = []
    length = 0
    for before, line in zip([None, *lines], lines, strict=False):
        goes_on = before is not None and layout.continues(before, line)
        if before is not None:
            if goes_on:
                kept, glue = vocabulary.join(before.text, line.text)
                cut = len(before.text) - len(kept)
                if cut:
                    parts[-1] = parts[-1][:-cut]
            else:
                cut, glue = 0, "\n" if _is_list(before) and _is_list(line) else "\n\n"
            parts.append(glue)
            length += len(glue) - cut
        starts += [length] * (line.page + 1 - len(starts))
        # A remark of a program begins as a heading of Markdown does, and no heading of a PDF file does: it is code.
        text = f"    {line.text}" if not goes_on and _REMARK.match(line.text) else line.text
        parts.append(text)
        length += len(text)
    return "".join(parts), (*starts, *([length] * (n_pages - len(starts))))


class _TypicalLayout:
    """Typical distance and length of the lines of each font size in a document."""

    def __init__(self, lines: Sequence[Line]) -> None:
        gaps: dict[int, list[float]] = defaultdict(list)
        lengths: dict[int, list[int]] = defaultdict(list)
        for line in lines:
            lengths[_size_key(line)].append(len(line.text))
        for before, line in pairwise(lines):
            gap = before.y - line.y
            if _in_flow(before, line) and _size_key(before) == _size_key(line) and gap < 3 * line.size:
                gaps[_size_key(line)].append(gap)
        self._gap = {key: sorted(found)[len(found) // 4] for key, found in gaps.items()}
        self._length = {key: sorted(found)[len(found) * 9 // 10] for key, found in lengths.items()}

    def continues(self, before: Line, line: Line) -> bool:
        """Whether a line continues the paragraph of the one before it."""
        ended = bool(_STOP.search(before.text))
        lower = line.text[0].islower()
        unlike = abs(before.size - line.size) > _MAX_SIZE_CHANGE * max(before.size, line.size)
        apart = unlike or before.angle != line.angle or _is_list(before) or _is_list(line)
        if apart or self._item(line, ended, bool(_ITEM.match(before.text))):
            return False
        if before.text.isupper() and not line.text.isupper() and len(before.text) < _HEADING:
            return False
        narrow = self._length[_size_key(line)] < _COLUMN and not _GOES_ON.search(before.text)
        short = narrow or len(before.text) < _SHORT_LINE * self._length[_size_key(before)]
        if not _in_flow(before, line):
            return not ended and (lower or not short)
        gap, typical = before.y - line.y, self._gap.get(_size_key(line), 1.3 * line.size)
        if lower and not ended:
            return gap < 2 * typical
        indented = ended and line.x > before.x + 0.7 * line.size
        return gap <= _MAX_GAP * typical and not indented and not short

    def _item(self, line: Line, ended: bool, among_items: bool) -> bool:
        return bool(_BULLET.match(line.text)) or ((ended or among_items) and bool(_ITEM.match(line.text)))


def _is_list(line: Line) -> bool:
    """Whether a line stands for itself: the row of a table, or the line of a table of contents."""
    return line.is_row or bool(LEADER.search(line.text))


def _in_flow(before: Line, line: Line) -> bool:
    """Whether a line is below another in the same column."""
    return (before.page, before.angle) == (line.page, line.angle) and before.y - line.y > 0.3 * line.size


def _size_key(line: Line) -> int:
    return round(2 * line.size)


class _Vocabulary:
    """Words of a document, which decide about a hyphen at a line end."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._whole: set[str] = set()
        self._compounds: set[tuple[str, str]] = set()
        for line in lines:
            text = line.text.lower()
            self._whole.update(_WORD.findall(text))
            self._compounds.update(_COMPOUND.findall(text))

    def join(self, before: str, after: str) -> tuple[str, str]:
        """Return the first line without a dropped hyphen, and the separator to the next line."""
        broken, word = _BROKEN.search(before), _WORD.match(after)
        if before.endswith(SOFT_HYPHEN):
            return before[:-1], ""
        if broken and word and "://" not in before.split()[-1]:
            left, right = broken[1].lower(), word[0].lower()
            whole = left + right in self._whole
            keep = not whole and ((left, right) in self._compounds or not word[0][0].islower())
            return (before if keep else before[:-1]), ""
        if re.search(r"\S[-\u2010—]$|\d–$|://\S*[/_=&?]$", before):  # numbers, dashes without spaces, addresses
            return before, ""
        return before, "" if _WIDE.match(before[-1]) and _WIDE.match(after[0]) else " "
