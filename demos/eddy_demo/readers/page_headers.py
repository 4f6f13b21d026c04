"""Lines that run along the edges of most pages: headers, footers, page numbers."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from eddy_demo.readers.paragraphs import Line

_DEPTH = 4
"""So many lines from an edge can be running ones."""
_NUMBER = re.compile(r"\d{1,5}")
_ROMAN = re.compile(r"m{0,3}(cm|cd|d?c{0,3})(xc|xl|l?x{0,3})(ix|iv|v?i{0,3})", re.IGNORECASE)
_VALUES = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100, "d": 500, "m": 1000}

Shape = tuple[str, int | None, int]
"""What lines of several pages have in common: their text, or that they count the pages from the same number on; and
their size, as a title may have the words of the headers below it."""


def split_running(lines: Sequence[Line]) -> tuple[list[Line], dict[str, int]]:
    """Tell running headers, footers and page numbers from the body.

    From the outermost line of each page inwards, a line is a running one if the outermost lines of most pages have the
    same text, or begin or end with a number that counts the pages; most of the odd or of the even pages are enough
    where there are three.

    Args:
        lines: Of all pages, in reading order.

    Returns:
        The body, and what was left out with the number of pages where it stood. If nothing else is on the pages, they
        are all body.
    """
    pages: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        pages[line.page].append(line)
    left = {page: _upright(own) for page, own in pages.items()}
    taken: dict[Line, str] = {}
    for _ in range(_DEPTH):
        edges = {page: [line for edge in _edges(own) for line in edge] for page, own in left.items() if own}
        running = _running(edges, len(pages))
        found = {
            line: _name(line, shapes)
            for own in edges.values()
            for line in own
            if (shapes := [shape for shape in _shapes(line) if shape in running])
        }
        if not found:
            break
        taken |= found
        left = {page: [line for line in own if line not in found] for page, own in left.items()}
    body = [line for line in lines if line not in taken]
    return (body, dict(Counter(taken.values()))) if body else (list(lines), {})


def _upright(lines: list[Line]) -> list[Line]:
    """The lines written as most of the page is, from top to bottom: a stamp along the margin has no part in edges."""
    characters: Counter[float] = Counter()
    for line in lines:
        characters[line.angle] += len(line.text)
    angle = characters.most_common(1)[0][0]
    return sorted((line for line in lines if line.angle == angle), key=lambda line: -line.y)


def _edges(lines: list[Line]) -> Iterator[list[Line]]:
    for outermost in (lines[0], lines[-1]):
        yield [line for line in lines if abs(line.y - outermost.y) < outermost.size / 2]


def _running(edges: dict[int, list[Line]], n_pages: int) -> set[Shape]:
    where: dict[Shape, set[int]] = defaultdict(set)
    for page, lines in edges.items():
        for line in lines:
            for shape in _shapes(line):
                where[shape].add(page)
    return {shape for shape, pages in where.items() if _on_most(pages, n_pages)}


def _on_most(pages: set[int], n_pages: int) -> bool:
    if len(pages) >= 2 and 2 * len(pages) > n_pages:
        return True
    of_parity = Counter(page % 2 for page in pages)
    return any(count >= 3 and 4 * count > n_pages + 1 for count in of_parity.values())


def _shapes(line: Line) -> Iterator[Shape]:
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


def _name(line: Line, shapes: list[Shape]) -> str:
    if any(offset is None for _, offset, _ in shapes):
        return f'"{line.text}"'
    return "page numbers" if len(line.text.split()) == 1 else "lines with the page number"


def _roman(numeral: str) -> int:
    values = [_VALUES[letter] for letter in numeral]
    return sum(-v if v < after else v for v, after in zip(values, [*values[1:], 0], strict=True))
