"""Merged cells of tables: each cell that one covers gets its text."""

from __future__ import annotations

import copy
from typing import Any

from bs4 import BeautifulSoup
from bs4.element import Tag

_MOST_COPIED = 1_000_000
"""Characters and cells that merged cells may add to a file."""


def fill_merged(soup: BeautifulSoup) -> None:
    """Give every row of a table as many cells, a merged cell's text in each that it covers, within limits."""
    copied = [0]
    for table in soup.find_all("table"):
        _fill(table, copied)


def _fill(table: Tag, copied: list[int]) -> None:
    rows = [row for row in table.find_all("tr") if row.find_parent("table") is table]
    below: dict[int, tuple[Tag, int]] = {}  # by column: the cell above, and for how many more rows
    grid = []
    for row in rows:
        cells, below = _cells(row.find_all(["td", "th"], recursive=False), below, copied)
        grid.append(cells)
    width = max(map(len, grid), default=0)
    for row, cells in zip(rows, grid, strict=True):
        for cell in cells:
            row.append(cell.extract())
        if any(cell.get_text(strip=True) for cell in cells) and copied[0] + width < _MOST_COPIED:
            row.extend([_copy(None, copied) for _ in range(width - len(cells))])


def _cells(
    own: list[Tag], above: dict[int, tuple[Tag, int]], copied: list[int]
) -> tuple[list[Tag], dict[int, tuple[Tag, int]]]:
    """Return the cells of a row, also those that it shares with rows above, and what it shares with rows below."""
    cells: list[Tag] = []
    below = {column: (cell, more - 1) for column, (cell, more) in above.items() if more > 1}
    waiting = iter(own)
    last = max(above, default=-1)
    while copied[0] <= _MOST_COPIED:
        column = len(cells)
        if column in above:
            cells.append(_copy(above[column][0], copied))
            continue
        cell = next(waiting, None)
        if cell is None:
            if column > last:
                break
            cells.append(_copy(None, copied))
            continue
        across, down = min(max(_span(cell.get("colspan")), 1), 1000), min(_span(cell.get("rowspan")) or 1000, 1000)
        for at in range(across):
            cells.append(_copy(cell, copied) if at else cell)
            if down > 1:
                below[column + at] = cell, down - 1
    return [*cells, *waiting], below


def _copy(cell: Tag | None, copied: list[int]) -> Tag:
    copied[0] += 1 + (len(cell.get_text()) if cell is not None else 0)
    if cell is None or copied[0] > _MOST_COPIED:
        return Tag(name="td")
    return copy.copy(cell)


def _span(value: Any) -> int:
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 6 else 1
