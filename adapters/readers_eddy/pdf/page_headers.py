"""Find the page headers, footers and page numbers among the lines of pages."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from readers_eddy.pdf.lines import Line
from readers_eddy.scripts import numeral

_MAX_LINES = 4
"""Maximum number of header or footer lines of a page."""
_NUMBER = re.compile(r"\d{1,5}")
_ROMAN = {numeral(number, "roman"): number for number in range(1, 1000)}
_PAGE = re.compile(r"(?:page|p|pg|seite|folio|p[aá]gina|pag|sida|side|strona|стр|of|von|de|di)\b\.?", re.IGNORECASE)
"""Words of a page number."""
_AROUND = "-–—.|·[]()/:"
"""Signs around the number of a page."""
_PARTS = re.compile(r"[:|·–—]|\s{2,}")
_APART, _SMALL, _LARGE = 1.5, 0.92, 1.06
"""Distance from the body, of a line's usual distance, below which a line of its size belongs to it; sizes of type, of
the body's, that are small or larger than that of a running line."""
_MANY = 100
"""Difference between a page's number and its place from which a number in type of the body's size is none."""

_STOP = re.compile(r"[.!?:][\"'”’»)\]]*$")

LinePattern = tuple[str, int | None]
"""What the header lines of several pages share: their text, or the offset of their page number from the page's index;
"" stands for a number alone."""


def split_page_headers(lines: Sequence[Line], labels: Sequence[str] = ()) -> tuple[list[Line], dict[str, int]]:
    """Separate page headers, footers and page numbers from the body; count the removed lines by their description.

    Working from the outermost line of each page inwards, a line is a header or footer if it is no larger than the body,
    apart from it, and the outermost lines of most pages have the same text, but for the page's own number; most of the
    odd or most of the even pages suffice if there are three or more. The first such line stays, with the level -1, if
    its text stands nowhere else. If nothing but such lines is on the pages, all lines are body. `labels` are those of
    the pages, as "iv" or "12".
    """
    pages: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        pages[line.page].append(line)
    body = _Body(lines)
    running: dict[Line, LinePattern] = {}
    for is_head in (True, False):  # from the top, and from the bottom
        edges = {page: _heights(page_lines, is_head) for page, page_lines in pages.items()}
        running |= _running(edges, body, labels, is_head=is_head)
    if len(running) == len(lines):
        return list(lines), {}
    known = letters_of(" ".join(line.text for line in lines if line not in running))
    first: set[Line] = set()
    for line, (text, _) in sorted(running.items(), key=lambda item: item[0].page):
        wording = max(map(letters_of, _PARTS.split(line.text)), key=len)
        if letters_of(_PAGE.sub("", line.text)) and text != "roman" and wording not in known:
            first.add(line)
            known += f" {wording}"
    counted = Counter[str]()
    for line, (_, offset) in ((line, pattern) for line, pattern in running.items() if line not in first):
        numbers = "page numbers" if len(line.text.split()) == 1 else "lines with the page number"
        counted[f'"{line.text}"' if offset is None else numbers] += 1
    for line in first:
        line.level = -1
    return [line for line in lines if line not in running or line in first], dict(counted)


def letters_of(text: str) -> str:
    """Return the letters of a text, by which titles and headers are compared."""
    return "".join(filter(str.isalpha, unicodedata.normalize("NFKC", text).casefold()))


class _Body:
    """Size of type, usual distance between lines, and whether most pages end within a sentence."""

    def __init__(self, lines: Sequence[Line]) -> None:
        sizes, gaps, ends = Counter[float](), Counter[float](), dict[int, Line]()
        for line in lines:
            sizes[round(line.size, 1)] += len(line.text)
            if len(line.text.split()) > 4 and (line.page not in ends or line.y < ends[line.page].y):
                ends[line.page] = line
        self.size = max(sizes, key=sizes.__getitem__, default=1.0)
        gaps.update(
            round(a.y - b.y, 1) for a, b in pairwise(lines) if a.page == b.page and 0 < a.y - b.y < 3 * self.size
        )
        self.pitch = max(gaps, key=gaps.__getitem__, default=1.3 * self.size)
        self.flows = 2 * sum(not _STOP.search(line.text) for line in ends.values()) > len(ends) > 1


def _heights(lines: list[Line], is_head: bool) -> list[list[Line]]:
    """Gather the lines at the same height, of the outermost heights and the one that follows.

    Lines at another angle than most, such as a stamp along the margin, are left out.
    """
    characters: Counter[float] = Counter()
    for line in lines:
        characters[line.angle] += len(line.text)
    angle = characters.most_common(1)[0][0]
    heights: list[list[Line]] = []
    for line in sorted(
        (line for line in lines if line.angle == angle), key=lambda line: -line.y if is_head else line.y
    ):
        if heights and abs(heights[-1][0].y - line.y) < heights[-1][0].size / 2:
            heights[-1].append(line)
        elif len(heights) > _MAX_LINES:
            break
        else:
            heights.append([line])
    return heights


def _running(
    pages: dict[int, list[list[Line]]], body: _Body, labels: Sequence[str], *, is_head: bool
) -> dict[Line, LinePattern]:
    """Return the running lines at one edge of the pages."""
    patterns_of: dict[Line, LinePattern] = {}
    for depth in range(_MAX_LINES):
        edges = {
            page: [line for line in heights[depth] if line.size <= _LARGE * body.size]
            for page, heights in pages.items()
            if len(heights) > depth and (depth == 0 or any(line in patterns_of for line in heights[depth - 1]))
        }
        repeated = _repeated_patterns(edges, len(pages))
        n_found = len(patterns_of)
        for line in (line for lines in edges.values() for line in lines):
            may = (kind for kind in _patterns(line) if kind in repeated and _may_run(line, kind, body, labels, is_head))
            if pattern := next(may, None):
                patterns_of[line] = pattern
        if len(patterns_of) == n_found:
            break
    votes: dict[LinePattern, list[bool]] = defaultdict(list)
    for heights in pages.values():
        apart = True  # from the body, as most lines of a pattern must be
        for depth in reversed(range(min(len(heights), _MAX_LINES))):
            running = [line for line in heights[depth] if line in patterns_of]
            if running and depth + 1 < len(heights) and not apart:
                small = running[0].size <= _SMALL * body.size
                gap = abs(heights[depth][0].y - heights[depth + 1][0].y)
                apart = gap > body.pitch * (1.0 if small else _APART)
            apart = apart and bool(running)
            for line in running:
                votes[patterns_of[line]].append(apart)
    return {line: pattern for line, pattern in patterns_of.items() if 2 * sum(votes[pattern]) > len(votes[pattern])}


def _may_run(line: Line, pattern: LinePattern, body: _Body, labels: Sequence[str], is_head: bool) -> bool:
    """Whether a number that counts with the pages may be that of the page; others are of lessons, invoices or years."""
    text, offset = pattern
    if offset is None or line.size <= _SMALL * body.size or body.flows:
        return True
    number = offset + line.page
    is_page = number == line.page + 1 or (line.page < len(labels) and labels[line.page] == str(number))
    if not text or text == "roman" or not any(map(str.isalpha, _PAGE.sub("", text))):
        return is_page or abs(offset) < _MANY or not is_head
    return is_page and (not is_head or line.parts > 1 or len(line.text.split()) > 3 or "|" in text)


def _repeated_patterns(edges: dict[int, list[Line]], n_pages: int) -> set[LinePattern]:
    """Return the patterns of most pages, or of most odd or even ones; lone numerals as "iv" need two pages."""
    pages_of: dict[LinePattern, set[int]] = defaultdict(set)
    for page, lines in edges.items():
        for line in lines:
            for pattern in _patterns(line):
                pages_of[pattern].add(page)
    repeated = set()
    for pattern, pages in pages_of.items():
        odd = sum(page % 2 for page in pages)
        most = max(odd, len(pages) - odd)
        if len(pages) > 1 and (
            2 * len(pages) > n_pages or pattern[0] == "roman" or (most > 2 and 4 * most > n_pages + 1)
        ):
            repeated.add(pattern)
    return repeated


def _patterns(line: Line) -> Iterator[LinePattern]:
    words = line.text.split()
    yield line.text, None
    if len(words) == 1:
        if (bare := line.text.strip(_AROUND)) in _ROMAN:
            yield "roman", _ROMAN[bare] - line.page
    for match in _NUMBER.finditer(line.text):  # as in "page 3 of 12"
        around = f"{line.text[: match.start()]}#{line.text[match.end() :]}"
        yield around if any(map(str.isalpha, around)) else "", int(match[0]) - line.page
    for word in {words[0], words[-1]} if len(words) > 1 else ():
        if _NUMBER.fullmatch(bare := word.strip(_AROUND)):  # beside the title of a chapter
            yield "# beside other words", int(bare) - line.page
