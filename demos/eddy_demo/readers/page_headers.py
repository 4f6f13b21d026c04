"""Find the page headers, footers and page numbers among the lines of pages."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from eddy_demo.readers.paragraphs import Line

_MAX_LINES = 4
"""Maximum number of header or footer lines of a page."""
_NUMBER = re.compile(r"\d{1,5}")
_ROMAN = re.compile(r"m{0,3}(cm|cd|d?c{0,3})(xc|xl|l?x{0,3})(ix|iv|v?i{0,3})", re.IGNORECASE)
_VALUES = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100, "d": 500, "m": 1000}

LinePattern = tuple[str, int | None, int]
"""What the header lines of several pages share: their text, or the offset of their page number from the page's index;
and their size, as a title may have the words of the headers below it."""


def split_page_headers(lines: Sequence[Line]) -> tuple[list[Line], dict[str, int]]:
    """Separate page headers, footers and page numbers from the body; count the removed lines by their description.

    Working from the outermost line of each page inwards, a line is a header or footer if the outermost lines of most
    pages have the same text, or begin or end with a number that counts the pages. Most of the odd or most of the even
    pages suffice if there are three or more of them. If nothing but such lines is on the pages, all lines are body.
    """
    pages: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        pages[line.page].append(line)
    remaining = {page: _upright(own) for page, own in pages.items()}
    removed: dict[Line, str] = {}
    for _ in range(_MAX_LINES):
        edges = {page: [line for edge in _edges(own) for line in edge] for page, own in remaining.items() if own}
        repeated = _repeated_patterns(edges, len(pages))
        found = {
            line: _describe(line, patterns)
            for own in edges.values()
            for line in own
            if (patterns := [pattern for pattern in _patterns(line) if pattern in repeated])
        }
        if not found:
            break
        removed |= found
        remaining = {page: [line for line in own if line not in found] for page, own in remaining.items()}
    body = [line for line in lines if line not in removed]
    return (body, dict(Counter(removed.values()))) if body else (list(lines), {})


def _upright(lines: list[Line]) -> list[Line]:
    """Sort the lines from top to bottom, without those at another angle than most, such as a stamp along the margin."""
    characters: Counter[float] = Counter()
    for line in lines:
        characters[line.angle] += len(line.text)
    angle = characters.most_common(1)[0][0]
    return sorted((line for line in lines if line.angle == angle), key=lambda line: -line.y)


def _edges(lines: list[Line]) -> Iterator[list[Line]]:
    for outermost in (lines[0], lines[-1]):
        yield [line for line in lines if abs(line.y - outermost.y) < outermost.size / 2]


def _repeated_patterns(edges: dict[int, list[Line]], n_pages: int) -> set[LinePattern]:
    pages_of: dict[LinePattern, set[int]] = defaultdict(set)
    for page, lines in edges.items():
        for line in lines:
            for pattern in _patterns(line):
                pages_of[pattern].add(page)
    return {pattern for pattern, pages in pages_of.items() if _on_most(pages, n_pages)}


def _on_most(pages: set[int], n_pages: int) -> bool:
    if len(pages) >= 2 and 2 * len(pages) > n_pages:
        return True
    of_parity = Counter(page % 2 for page in pages)
    return any(count >= 3 and 4 * count > n_pages + 1 for count in of_parity.values())


def _patterns(line: Line) -> Iterator[LinePattern]:
    words, size = line.text.split(), round(line.size)
    yield line.text, None, size
    for word in {words[0], words[-1]}:
        bare = word.strip("-–—.|·[]()/:")
        if _NUMBER.fullmatch(bare):
            yield "", int(bare) - line.page, size
        elif len(words) == 1 and bare and _ROMAN.fullmatch(bare):
            yield "roman", _roman(bare.lower()) - line.page, size
    for match in _NUMBER.finditer(line.text):  # as in "page 3 of 12"
        yield f"{line.text[: match.start()]}#{line.text[match.end() :]}", int(match[0]) - line.page, size


def _describe(line: Line, patterns: list[LinePattern]) -> str:
    if any(offset is None for _, offset, _ in patterns):
        return f'"{line.text}"'
    return "page numbers" if len(line.text.split()) == 1 else "lines with the page number"


def _roman(numeral: str) -> int:
    values = [_VALUES[letter] for letter in numeral]
    return sum(-v if v < after else v for v, after in zip(values, [*values[1:], 0], strict=True))
