"""Find the page headers, footers and page numbers among the lines of pages."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from readers_eddy.pdf.lines import Line

_MAX_LINES = 4
"""Maximum number of header or footer lines of a page."""
_NUMBER = re.compile(r"\d{1,5}")
_ROMAN = re.compile(r"m{0,3}(cm|cd|d?c{0,3})(xc|xl|l?x{0,3})(ix|iv|v?i{0,3})")
_VALUES = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100, "d": 500, "m": 1000}
_PAGE = re.compile(r"(?:page|p|pg|seite|folio|p[aá]gina|pag|sida|side|strona|стр|of|von|de|di)\b\.?", re.IGNORECASE)
"""Words of a page number."""
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
    odd or most of the even pages suffice if there are three or more. The first such line stays if its text stands
    nowhere else. If nothing but such lines is on the pages, all lines are body.

    Args:
        lines: The lines of all pages, in order.
        labels: The label of each page, as "iv" or "12".
    """
    pages: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        pages[line.page].append(line)
    upright = {page: _upright(own) for page, own in pages.items()}
    layout = _Body(lines)
    running: dict[Line, LinePattern] = {}
    for direction in (1, -1):  # from the top, and from the bottom
        columns = {page: _heights(own[::direction]) for page, own in upright.items()}
        running |= _running(columns, layout, labels, is_head=direction == 1)
    body = [line for line in lines if line not in running]
    if not body:
        return list(lines), {}
    known = _letters(" ".join(line.text for line in body))
    kept: set[Line] = set()
    for line, (text, _) in sorted(running.items(), key=lambda item: item[0].page):
        wording = max(map(_letters, _PARTS.split(line.text)), key=len)
        if _letters(_PAGE.sub("", line.text)) and text != "roman" and wording not in known:
            kept.add(line)
            known += f" {wording}"
    counted = Counter(_describe(line, pattern) for line, pattern in running.items() if line not in kept)
    left = [line for line in lines if line not in running or line in kept]
    return [replace(line, level=-1) if line in kept else line for line in left], dict(counted)


def _letters(text: str) -> str:
    return "".join(filter(str.isalpha, text.casefold()))


class _Body:
    """Size of type, usual distance between lines, and whether most pages end within a sentence."""

    def __init__(self, lines: Sequence[Line]) -> None:
        sizes: Counter[float] = Counter()
        for line in lines:
            sizes[round(line.size, 1)] += len(line.text)
        self.size = sizes.most_common(1)[0][0] if sizes else 1.0
        gaps = [round(a.y - b.y, 1) for a, b in pairwise(lines) if a.page == b.page and 0 < a.y - b.y < 3 * self.size]
        ends: dict[int, Line] = {}
        for line in lines:
            before = ends.get(line.page)
            if len(line.text.split()) > 4 and (before is None or line.y < before.y):
                ends[line.page] = line
        open_ends = sum(not _STOP.search(line.text) for line in ends.values())
        self.flows = 2 * open_ends > len(ends) > 1
        self.pitch = Counter(gaps).most_common(1)[0][0] if gaps else 1.3 * self.size


def _upright(lines: list[Line]) -> list[Line]:
    """Sort the lines from top to bottom, without those at another angle than most, such as a stamp along the margin."""
    characters: Counter[float] = Counter()
    for line in lines:
        characters[line.angle] += len(line.text)
    angle = characters.most_common(1)[0][0]
    return sorted((line for line in lines if line.angle == angle), key=lambda line: -line.y)


def _heights(lines: list[Line]) -> list[list[Line]]:
    """Gather the lines at the same height, of the outermost heights and the one that follows."""
    heights: list[list[Line]] = []
    for line in lines:
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
    found: dict[Line, LinePattern] = {}
    for depth in range(_MAX_LINES):
        edges = {
            page: heights[depth]
            for page, heights in pages.items()
            if len(heights) > depth and (depth == 0 or any(line in found for line in heights[depth - 1]))
        }
        repeated = _repeated_patterns(edges, len(pages))
        more = {
            line: shared[0]
            for lines in edges.values()
            for line in lines
            if line.size <= _LARGE * body.size
            and (
                shared := [
                    each for each in _patterns(line) if each in repeated and _may_run(line, each, body, labels, is_head)
                ]
            )
        }
        if not more:
            break
        found |= more
    apart = _apart(pages, found, body)
    return {line: pattern for line, pattern in found.items() if pattern in apart}


def _apart(pages: dict[int, list[list[Line]]], found: dict[Line, LinePattern], body: _Body) -> set[LinePattern]:
    """Return the patterns whose lines stand apart from the body on most of their pages."""
    votes: dict[LinePattern, list[bool]] = defaultdict(list)
    for heights in pages.values():
        apart = True
        for depth in reversed(range(min(len(heights), _MAX_LINES))):
            running = [line for line in heights[depth] if line in found]
            if not running:
                apart = False
                continue
            if depth + 1 < len(heights) and not apart:
                gap = abs(heights[depth][0].y - heights[depth + 1][0].y)
                small = running[0].size <= _SMALL * body.size
                apart = gap > body.pitch * (1.0 if small else _APART)
            for line in running:
                votes[found[line]].append(apart)
    return {pattern for pattern, own in votes.items() if 2 * sum(own) > len(own)}


def _may_run(line: Line, pattern: LinePattern, body: _Body, labels: Sequence[str], is_head: bool) -> bool:
    """Whether a number that counts with the pages may be that of the page; others are of lessons, invoices or years."""
    text, offset = pattern
    if offset is None or line.size <= _SMALL * body.size or body.flows:
        return True
    number = offset + line.page
    own = number == line.page + 1 or (line.page < len(labels) and labels[line.page] == str(number))
    if not text or text == "roman" or not any(map(str.isalpha, _PAGE.sub("", text))):
        return own or abs(offset) < _MANY or not is_head
    return own and (not is_head or line.parts > 1 or len(line.text.split()) > 3 or "|" in text)


def _repeated_patterns(edges: dict[int, list[Line]], n_pages: int) -> set[LinePattern]:
    pages_of: dict[LinePattern, set[int]] = defaultdict(set)
    for page, lines in edges.items():
        for line in lines:
            for pattern in _patterns(line):
                pages_of[pattern].add(page)
    few = {pattern for pattern, pages in pages_of.items() if pattern[0] == "roman" and len(pages) > 1}
    return few | {pattern for pattern, pages in pages_of.items() if _on_most(pages, n_pages)}


def _on_most(pages: set[int], n_pages: int) -> bool:
    if len(pages) >= 2 and 2 * len(pages) > n_pages:
        return True
    of_parity = Counter(page % 2 for page in pages)
    return any(count >= 3 and 4 * count > n_pages + 1 for count in of_parity.values())


def _patterns(line: Line) -> Iterator[LinePattern]:
    words = line.text.split()
    yield line.text, None
    if len(words) == 1:
        bare = line.text.strip("-–—.|·[]()/:")
        if bare and bare.islower() and _ROMAN.fullmatch(bare):
            yield "roman", _roman(bare) - line.page
    for match in _NUMBER.finditer(line.text):  # as in "page 3 of 12"
        around = f"{line.text[: match.start()]}#{line.text[match.end() :]}"
        yield around if any(map(str.isalpha, around)) else "", int(match[0]) - line.page
    for word in {words[0], words[-1]} if len(words) > 1 else ():
        if _NUMBER.fullmatch(bare := word.strip("-–—.|·[]()/:")):  # beside the title of a chapter
            yield "# beside other words", int(bare) - line.page


def _describe(line: Line, pattern: LinePattern) -> str:
    if pattern[1] is None:
        return f'"{line.text}"'
    return "page numbers" if len(line.text.split()) == 1 else "lines with the page number"


def _roman(numeral: str) -> int:
    values = [_VALUES[letter] for letter in numeral]
    return sum(-v if v < after else v for v, after in zip(values, [*values[1:], 0], strict=True))
