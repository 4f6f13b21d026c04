"""Glyphs of a page to its lines, in the order in which they were drawn; tables by row, raised signs, drop caps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from ctypes import POINTER, c_float, cast, create_string_buffer
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pypdfium2.raw as pdfium
from numpy.typing import NDArray
from pypdfium2 import PdfPage

from readers_eddy.pdf.glyphs import Glyphs
from readers_eddy.scripts import lowered, raised

_GAP, _WORD_GAP = 0.75, 0.15
"""White space between cells, and between words, at least; lengths are shares of the size of type."""
_LEVEL, _BELOW = 0.25, 1.7
"""Difference of height within a line, and from one line of a cell to its next, at most."""
_COLUMN_WORDS, _JUSTIFIED_WORDS, _FULL = 3.5, 2.0, 0.5
"""Words in a line of a column of prose, and of one with an even right edge, at least; share of lines that fill it."""
_CELL_WORDS, _LONG_CELL = 6, 60
"""Words of the second of two cells from which it is prose about the first, and of a cell from which there is none."""
_MARK = re.compile(r"(?:[•‣◦▪■●○·*–—-]|\W|\(?\w{1,3}[.):]|\[\w{1,4}\]|\d{1,4}(?:\.\d{1,3})*)$")
"""What stands before an item, a note or a line of a listing: no cell of its own."""
_NAME = re.compile(r"[^\W\d_]{3}")
"""A name of a field that people read, and no "f2"."""
_CELL_HYPHEN = re.compile("(?<=[^\\W\\d_])[-\u2010\u00ad]\n(?=[a-z])")
_RTL = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_WORD = re.compile(r"\w*[^\W\d_]\w*")
_NUMERIC = re.compile(r"[^\w]*\d[\d.,:%/ -]*\w{0,3}$")

_MARKS = {True: "☒", False: "☐"}
_BUTTONS = (pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON)
_UNREAD = (pdfium.FPDF_FORMFIELD_PUSHBUTTON, pdfium.FPDF_FORMFIELD_SIGNATURE, pdfium.FPDF_FORMFIELD_UNKNOWN)
_SIZE = 10.0  # of a field whose own is not known
_UNSEEN = pdfium.FPDF_ANNOT_FLAG_HIDDEN | pdfium.FPDF_ANNOT_FLAG_NOVIEW


@dataclass(eq=False)
class Line:
    """A line of a page, or a piece of one: page counted from 0, sizes in points, angle in degrees."""

    text: str
    page: int
    x: float  # start in the direction of writing
    y: float  # height on the page
    size: float  # font size of most of its characters
    angle: float = 0.0
    is_row: bool = False  # of a table
    end: float = 0.0  # where it ends in the direction of writing
    parts: int = 1  # number of parts with wide gaps between them
    font: int = 0  # of most of its characters
    is_code: bool = False  # in type of one width
    opens: bool = False  # begins an item of a list whose marks or terms stand apart
    level: int = 0  # as a heading of the file's outline, -1 of a header that stays
    order: int = 0  # of drawing
    space: float = 9.0  # the least between its words, of the size
    lines: list[Line] = field(default_factory=list, repr=False)  # of a cell


Row = list[Line]


def read_lines(glyphs: Glyphs, number: int, fields: Sequence[Line] = ()) -> tuple[list[Line], int]:
    """Return the lines of a page in the order of drawing, and how many line numbers in its margins are left out.

    Lines at another angle than most, such as a stamp, come last.
    """
    lines: list[Line] = []
    n_numbers = 0
    for angle, _ in Counter(glyphs.angles.tolist() or [0] * bool(fields)).most_common():
        pieces = _with_drop_caps(_with_scripts(_pieces(glyphs.at(glyphs.angles == angle))))
        if 2 * sum(b.y > a.y for a, b in pairwise(pieces)) > len(pieces):  # drawn from the bottom to the top
            pieces.sort(key=lambda piece: -piece.y)
        drawn = [_segments(row) for row in _drawn(pieces)]
        numbers = _margin_numbers(drawn)
        n_numbers += len(numbers)
        rows = [_segments(row) for row in _in_columns(_drawn([piece for piece in pieces if piece not in numbers]))]
        if not lines:
            _insert_fields(rows, fields)
        lines += (line for row, kind in _arranged(rows) if (line := _line(row, kind, number, angle)).text)
    return lines, n_numbers


def _line(row: Row, kind: str, page: int, angle: int) -> Line:
    line = _one(row)
    if kind == "row":
        line.text = f"| {' | '.join(cell.text for cell in row)} |"
    line.page, line.angle, line.is_row, line.opens, line.parts = page, angle, kind == "row", kind == "item", len(row)
    line.is_code &= not line.is_row
    return line


def _pieces(glyphs: Glyphs) -> list[Line]:
    if not len(glyphs.codes):
        return []
    if _is_rtl(glyphs).any():
        glyphs = _in_reading_order(glyphs)
    left, right, size, base = glyphs.boxes[:, 0], glyphs.boxes[:, 2], np.maximum(glyphs.sizes, 0.01), glyphs.baselines
    rtl = _is_rtl(glyphs)
    gap = np.where(rtl[1:] & rtl[:-1], left[:-1] - right[1:], left[1:] - right[:-1]) / size[1:]
    gap[(gap < 0) & (np.diff(left) > -0.5 * size[1:])] = 0  # letters of a ligature share one place
    other = np.abs(np.diff(size)) > 0.06 * size[1:]
    breaks = other | (np.abs(np.diff(base)) > 0.06 * size[1:]) | (gap > _GAP) | (gap < -_GAP)
    breaks |= np.diff(glyphs.mono) & (np.diff(glyphs.runs) != 0) & (gap > 0.2)
    borders = np.array([0, *(np.flatnonzero(breaks) + 1).tolist(), len(glyphs.codes)])
    apart = (gap > np.where(rtl[1:], 0.25, 0.2)) | ((gap > 0.13) & (np.diff(glyphs.runs) != 0) & ~rtl[1:])
    wide = np.append(apart & ~breaks, False)  # the last one for the end
    # Letters that are set apart are no words.
    lone = np.repeat(np.add.reduceat(wide, borders[:-1]) * 2.5 > np.diff(borders), np.diff(borders))
    spaced = glyphs.spaced[1:] & ((np.diff(glyphs.runs) == 0) | (gap > 0.04))
    spaces = (spaced | (wide & ~lone)[:-1]) & ~breaks
    least = np.minimum.reduceat(np.append(np.where(spaces, gap, 9.0), 9.0), borders[:-1]).tolist()
    letters = [chr(code) for code in glyphs.codes.tolist()]
    for at in np.flatnonzero(spaces).tolist():
        letters[at] += " "
    first, last = np.minimum.reduceat(left, borders[:-1]).tolist(), np.maximum.reduceat(right, borders[:-1]).tolist()
    start, middle = borders[:-1], (borders[:-1] + borders[1:]) // 2
    columns = base[start], size[start], glyphs.fonts[middle], glyphs.mono[middle]
    values = zip(pairwise(borders.tolist()), first, last, least, *(column.tolist() for column in columns), strict=True)
    return [
        Line("".join(letters[a:b]), 0, x, y, size, end=end, font=font, is_code=code, order=n, space=space)
        for n, ((a, b), x, end, space, y, size, font, code) in enumerate(values)
    ]


def _is_rtl(glyphs: Glyphs) -> NDArray[np.bool_]:
    codes = glyphs.codes
    arabic = (codes >= 0x590) & (codes < 0x900) & ((codes < 0x660) | (codes > 0x66C))
    return arabic | ((codes >= 0xFB1D) & (codes < 0xFEFD))


def _in_reading_order(glyphs: Glyphs) -> Glyphs:
    """Order the glyphs of lines that are read from right to left by their places: files draw them in either order."""
    rtl, left = _is_rtl(glyphs), glyphs.boxes[:, 0]
    starts = np.flatnonzero(np.abs(np.diff(glyphs.baselines, prepend=np.inf)) > 0.3 * glyphs.sizes)
    order = np.arange(len(rtl))
    for a, b in pairwise([*starts.tolist(), len(rtl)]):
        if 2 * rtl[a:b].sum() > b - a:
            line = a + np.argsort(-left[a:b], kind="stable")
            runs = np.split(line, np.flatnonzero(np.diff(rtl[line])) + 1)
            order[a:b] = np.concatenate([run if rtl[run[0]] else run[::-1] for run in runs])
    glyphs = glyphs.at(order)
    glyphs.spaced[_is_rtl(glyphs)] = False  # by white space alone
    return glyphs


def _with_scripts(pieces: list[Line]) -> list[Line]:
    """Put raised and lowered pieces on the baseline of the text that they touch, and next to it in the order."""
    boxes = np.array([(piece.x, piece.end, piece.y, piece.size) for piece in pieces]).reshape(-1, 4)
    left, right, heights, sizes = boxes.T
    moved = False
    for piece in pieces:
        if len(piece.text) > 12:
            continue
        rises, gaps = (piece.y - heights) / sizes, np.maximum(piece.x - right, left - piece.end) / sizes
        touching = (np.abs(rises) > 0.05) & (np.abs(rises) < 0.75) & (gaps > -0.25) & (gaps < 0.3)
        for at in sorted(np.flatnonzero(touching).tolist(), key=lambda at: abs(pieces[at].order - piece.order)):
            base, rise = pieces[at], rises[at]
            small = piece.size < 0.88 * base.size
            if small or (
                piece.text.isdigit() and rise > 0.2 and piece.size < 1.1 * base.size and base.end <= piece.end
            ):
                piece.text = raised(piece.text) if rise > 0 else lowered(piece.text)
                piece.y, piece.size, piece.font = base.y, base.size, base.font
                if abs(piece.order - base.order) > 1:
                    piece.order, moved = base.order, True
                break
    return sorted(pieces, key=lambda piece: (piece.order, piece.x)) if moved else pieces


def _with_drop_caps(pieces: list[Line]) -> list[Line]:
    """Join a large initial that hangs over several lines with the word that it begins."""
    usual = float(np.median([piece.size for piece in pieces])) if pieces else 0.0
    caps = [piece for piece in pieces if len(piece.text) <= 2 and piece.size > 1.8 * usual and piece.text[0].isupper()]
    for cap in caps:
        beside = [
            piece
            for piece in pieces
            if piece is not cap
            and -0.2 * usual <= piece.x - cap.end < 1.5 * usual
            and cap.y - 0.3 * usual <= piece.y < cap.y + cap.size
        ]
        if len({round(piece.y) for piece in beside}) < 2:
            continue
        words = Counter(word for piece in pieces for word in re.findall(r"[^\W\d_]+", piece.text.lower()))
        first = max(beside, key=lambda piece: piece.y)
        word = (re.match(r"[^\W\d_]*", first.text) or [""])[0].lower()
        apart = cap.text in ("A", "I", "O") and words[word] > 1 and not words[cap.text.lower() + word]
        first.text = f"{cap.text}{' ' if apart else ''}{first.text}"
        for piece in beside:
            piece.x = min(cap.x, piece.x)
        pieces.remove(cap)
    return pieces


def _drawn(pieces: list[Line]) -> list[Row]:
    """Gather pieces that were drawn one after the other on one baseline."""
    rows: list[Row] = []
    for piece in pieces:
        last = rows[-1][-1] if rows else piece
        level = rows and abs(piece.y - last.y) < _LEVEL * max(piece.size, last.size)
        if level and (piece.x > last.end - _GAP * piece.size or _RTL.search(piece.text) or _RTL.search(last.text)):
            rows[-1].append(piece)
        else:
            rows.append([piece])
    return rows


def _segments(row: Row) -> Row:
    """Join the pieces of a row that are next to each other."""
    joined: list[Row] = [[row[0]]]
    for before, piece in pairwise(row):
        if _distance(before, piece) <= _GAP * min(piece.size, before.size):
            joined[-1].append(piece)
        else:
            joined.append([piece])
    return [_one(group) for group in joined]


def _distance(a: Line, b: Line) -> float:
    return max(b.x - a.end, a.x - b.end)


def _one(group: Row) -> Line:
    if len(group) == 1:
        return group[0]
    main = max(group, key=lambda piece: len(piece.text))
    first, end = min(piece.x for piece in group), max(piece.end for piece in group)
    is_code, space = all(piece.is_code for piece in group), min(piece.space for piece in group)
    text, order = _joined(group), group[0].order
    return replace(main, text=text, x=first, end=end, order=order, is_code=is_code, space=space)


def _joined(row: Sequence[Line]) -> str:
    text = row[0].text
    for before, piece in pairwise(row):
        gap = _distance(before, piece)
        if before.is_code and piece.is_code:
            text += " " * round(gap * len(piece.text) / max(piece.end - piece.x, 0.1))
        else:
            text += " " if gap > _WORD_GAP * min(before.size, piece.size) else ""
        text += piece.text
    return text


def _insert_fields(rows: list[Row], fields: Sequence[Line]) -> None:
    """Put the fields of a form beside their labels, or below the line that is above them."""
    for field_line in sorted(fields, key=lambda field_line: (-field_line.y, field_line.x)):
        level = [row for row in rows if any(abs(p.y - field_line.y) < 0.7 * max(p.size, field_line.size) for p in row)]
        if level:
            row = min(level, key=lambda row: min(abs(_distance(p, field_line)) for p in row))
            name, _, value = field_line.text.partition(": ")
            at = sum(p.x < field_line.x for p in row)
            label = row[at - 1] if at else None
            if value and label and (label not in fields or not _NAME.search(name)):
                field_line.text = value  # the page says what it is
            if label and label not in fields and (label.text.endswith(":") or name.casefold() in label.text.casefold()):
                label.text, label.end = f"{label.text} {field_line.text}", max(field_line.end, label.end)
            else:
                row.insert(at, field_line)
        else:
            above = [at for at, row in enumerate(rows) if row[0].y > field_line.y]
            rows.insert(max(above, key=lambda at: -rows[at][0].y) + 1 if above else 0, [field_line])


# --- Columns


def _in_columns(rows: list[Row]) -> list[Row]:
    """Cut a page that is drawn line by line across its columns, or from right to left, at the white space."""
    pieces = [piece for row in rows for piece in row]
    if len(pieces) < 6:
        return rows
    levels = _levels(pieces)
    gutters = _gutters([_segments(level) for level in levels])
    for gutter in gutters:
        divided = [sides for level in levels if all(sides := _sides(level, gutter))]
        across = [right[0].order < left[0].order for (_, right), (left, _) in pairwise(divided)]
        if 2 * sum(across) > len(across):
            return list(_cut(levels, sorted(gutters)))
    return _by_rows(rows, levels)


def _by_rows(rows: list[Row], levels: list[Row]) -> list[Row]:
    """Put tables of numbers that are drawn column by column into the order of their rows."""
    tables: list[list[Row]] = [[]]
    for level in levels:
        if max(piece.order for piece in level) - min(piece.order for piece in level) >= len(level):
            if tables[-1] and tables[-1][-1][0].y - level[0].y > 4 * level[0].size:
                tables.append([])
            tables[-1].append(level)
    for table in tables:
        pieces = {piece for level in table for piece in level}
        words = sum(len(piece.text.split()) for piece in pieces)
        numbers = sum(bool(_NUMERIC.match(piece.text)) for piece in pieces)
        if len(table) > 2 and words <= _COLUMN_WORDS * len(pieces) and 3 * numbers >= len(pieces):
            at = next(n for n, row in enumerate(rows) if pieces & {*row})
            rest = [[piece for piece in row if piece not in pieces] for row in rows]
            rows = [row for row in [*rest[:at], *table, *rest[at:]] if row]
    return rows


def _cut(levels: list[Row], gutters: list[float]) -> Iterator[Row]:
    """Yield the lines of each column from top to bottom, between levels that cross the white space."""
    band: list[Row] = []
    for level in [*levels, []]:
        if level and not any(piece.x < gutter < piece.end for piece in level for gutter in gutters):
            band.append(level)
            continue
        for left, right in pairwise([-1e9, *gutters, 1e9]):
            columns = ([piece for piece in row if left <= (piece.x + piece.end) / 2 < right] for row in band)
            yield from (row for row in columns if row)
        band = []
        if level:
            yield level


def _levels(pieces: list[Line]) -> list[Row]:
    """Gather pieces at one height, or a little lower in another column, from top to bottom and left to right."""
    levels: list[Row] = []
    for piece in sorted(pieces, key=lambda piece: -piece.y):
        for level in levels[:-3:-1]:
            drop = (level[0].y - piece.y) / max(piece.size, level[0].size)
            if drop < _LEVEL or (drop < 0.7 and all(_distance(other, piece) > _GAP * piece.size for other in level)):
                level.append(piece)
                break
        else:
            levels.append([piece])
    return [sorted(level, key=lambda piece: piece.x) for level in levels]


def _gutters(levels: list[Row]) -> list[float]:
    """Return where white space divides most of the levels that reach to both sides, with prose on both."""
    gaps = np.array([(a.end, b.x) for level in levels for a, b in pairwise(level)])
    if len(gaps) < 3:
        return []
    gutters: list[float] = []
    tried: list[float] = []
    size = levels[0][0].size
    middles = gaps.mean(1)
    votes = np.searchsorted(np.sort(gaps[:, 0]), middles) - np.searchsorted(np.sort(gaps[:, 1]), middles, "right")
    for at in np.argsort(-votes, kind="stable").tolist():
        gutter = float(middles[at])
        if votes[at] < 3 or len(tried) > 8:
            break
        if any(abs(gutter - other) < size for other in tried) or any(abs(gutter - x) < 4 * size for x in gutters):
            continue
        tried.append(gutter)
        crossing = sum(any(piece.x < gutter < piece.end for piece in level) for level in levels)
        strong = middles[votes > 0.7 * votes[at]]
        if votes[at] > crossing / 2 and _are_prose(levels, gutter, strong):
            gutters.append(gutter)
    return gutters


def _sides(level: Row, gutter: float) -> tuple[Row, Row]:
    return [piece for piece in level if piece.end <= gutter], [piece for piece in level if piece.x >= gutter]


def _are_prose(levels: list[Row], gutter: float, others: NDArray[np.float64]) -> bool:
    """Whether what is beside white space, up to other such space, is prose: lines of words that fill their column."""
    divided = [sides for level in levels if all(sides := _sides(level, gutter))]
    for side, bounds in enumerate((np.sort(others[others < gutter])[::-1], np.sort(others[others > gutter]))):
        rows = [sides[side] for sides in divided]
        for bound in bounds.tolist():
            near = [[p for p in row if (p.x + p.end < 2 * bound) == side] for row in rows]
            starts = np.array([p.x for row in rows if (p := next((p for p in row if p.x > bound), None))])
            aligned = np.abs(starts - np.median(starts)) < 0.1 * rows[0][0].size if len(starts) else starts
            if 2 * sum(map(bool, near)) > len(rows) and aligned.sum() > 0.7 * len(rows):
                rows = [row for row in near if row]
                break
        words = sum(len(_WORD.findall(piece.text)) for row in rows for piece in row)
        ends = np.array([max(piece.end for piece in row) for row in rows])
        widths = ends - [min(piece.x for piece in row) for row in rows]
        even = np.abs(ends - np.quantile(ends, 0.7)) < 0.2 * rows[0][0].size
        least = _JUSTIFIED_WORDS if even.mean() > 0.6 else _COLUMN_WORDS
        if words < least * len(rows) or (widths > 0.7 * np.quantile(widths, 0.9)).mean() < _FULL:
            return False
    return True


# --- Tables


def _arranged(rows: list[Row]) -> Iterator[tuple[Row, str]]:
    """Yield the lines of a page with their kinds: rows of tables, first lines of items, and others."""
    groups = _groups([_justified(row, rows) for row in rows])
    at = 0
    while at < len(groups):
        end, gutters = _band(groups, at)
        kind = _kind(groups[at:end], gutters)
        if kind == "row":
            yield from ((row, kind) for row in _table(groups[at:end], gutters))
        else:
            for group in groups[at : max(end, at + 1)]:
                lines = _drawn([line for cell in group for line in cell.lines])
                yield from ((line, kind if not n and len(group) > 1 else "") for n, line in enumerate(lines))
        at = max(end, at + 1)


def _justified(row: Row, rows: list[Row]) -> Row:
    """Join the words of a line whose white space is that of justified text: even, and in a column of text."""
    if len(row) == 1:
        return row
    gaps = [_distance(a, b) / b.size for a, b in pairwise(row)]
    least, size = min(*gaps, *(piece.space for piece in row)), row[0].size
    sentence = len(gaps) == 1 and gaps[0] < 1.5 and row[0].text.endswith((".", "?", "!", ":"))
    even = len(gaps) > 1 and max(gaps) - min(gaps) < 0.1 * max(gaps) < 0.5
    if not even and (max(gaps) > 3 or not (sentence or least > 0.5 * max(gaps))):
        return row
    near = (other for other in rows if other is not row and abs(other[-1].end - row[-1].end) < 0.3 * size)
    alike = sum(abs(other[0].x - row[0].x) < 3 * size and _words(other) > 2 for other in near)
    return [_one(row)] if alike >= 2 else row


def _groups(rows: list[Row]) -> list[Row]:
    """Gather cells that stand side by side, each of one line or more, in the order of drawing."""
    groups: list[Row] = []
    for row in rows:
        for n, line in enumerate(row):
            group = groups[-1] if groups else []
            if group and (cell := _cell_above(group, line)):
                cell.lines.append(line)
                cell.x, cell.end = min(cell.x, line.x), max(cell.end, line.end)
                continue
            top, low = max((cell.y for cell in group), default=0.0), min((c.lines[-1].y for c in group), default=0.0)
            beside = group and line.x > max(cell.end for cell in group) + 0.5 * line.size
            if not (group and n) and not (beside and low - 0.3 * line.size < line.y < top + 2.5 * line.size):
                groups.append(group := [])
            group.append(replace(line, lines=[line]))
    return groups


def _cell_above(group: Row, line: Line) -> Line | None:
    """Return the cell that a line goes on: the last one of a group, or one before it, but not the first."""
    for cell in group[:0:-1] or group:
        left = max((other.end for other in group if other.end <= cell.x), default=-1e9)
        right = min((other.x for other in group if other.x >= cell.end), default=1e9)
        drop, most = (cell.lines[-1].y - line.y) / line.size, _BELOW if cell is group[-1] else 1.35
        over = left < line.x < cell.end and cell.x < line.end < right
        if over and 0.3 < drop < most and abs(cell.size - line.size) < 0.1 * line.size:
            return cell
    return None


def _words(lines: Iterable[Line]) -> int:
    return sum(len(line.text.split()) for line in lines)


def _band(groups: list[Row], start: int) -> tuple[int, list[float]]:
    """Return the end of the groups from a first one on that share white space, and where that is, from the left."""
    free = [(a.end, b.x) for a, b in pairwise(groups[start])]
    end, gutters, n_divided, low = start, list[float](), 0, 1e9
    for at, group in enumerate(groups[start:], start):
        size, top = group[0].size, max(cell.y for cell in group)
        space = [(-1e9, group[0].x), *((a.end, b.x) for a, b in pairwise(group)), (group[-1].end, 1e9)]
        free = [(max(a, c), min(b, d)) for a, b in free for c, d in space if min(b, d) - max(a, c) > 0.6 * size]
        lone = len(group) == 1 and (len(group[0].lines) > 1 or size > 1.06 * groups[start][0].size)
        if not free or len(free) < len(gutters) or lone or (at > start and not 0 < low - top < 3 * size):
            break
        low = min(cell.lines[-1].y for cell in group)
        n_divided += len(group) > 1
        if len(group) > 1 and n_divided > 1:
            end, gutters = at + 1, [(a + b) / 2 for a, b in free]
    return end, gutters


def _kind(groups: list[Row], gutters: list[float]) -> str:
    """Return what groups side by side are: rows of a table, items with their marks or terms, or neither ("")."""
    divided = [group for group in groups if len(group) > 1]
    if not gutters or 2 * len(divided) < len(groups) or all(piece.is_code for group in groups for piece in group):
        return ""
    firsts, lasts = [group[0] for group in divided], [_sides(group, gutters[-1])[1] for group in divided]
    for gutter in gutters:
        cells = [(sides[0][-1], sides[1][0]) for group in divided if all(sides := _sides(group, gutter))]
        edges = [[(b.x, b.end, a.end)[edge] for a, b in cells] for edge in range(3)]
        most = max((sum(abs(x - y) < 0.3 * firsts[0].size for x in xs) for xs in edges for y in xs), default=0)
        if most < 0.6 * max(len(cells), 1):
            return ""
    marks = all(_MARK.match(cell.text) for cell in firsts)
    words = _words(line for cells in lasts for cell in cells for line in cell.lines)
    if len(gutters) == 1 and (marks or words >= _CELL_WORDS * len(lasts)):
        short = sum(len(cell.lines) == 1 and len(cell.text) < 30 for cell in firsts)
        return "item" if short >= 0.8 * len(divided) else ""
    return "row" if max(_words(cell.lines) for group in groups for cell in group) < _LONG_CELL else ""


def _table(groups: list[Row], gutters: list[float]) -> Iterator[Row]:
    """Yield the rows of a table with as many cells each."""
    for group in groups:
        cells = [replace(group[0], text="", lines=[]) for _ in range(len(gutters) + 1)]
        for piece in group:
            cell = cells[sum(piece.x + piece.end >= 2 * gutter for gutter in gutters)]
            text = "\n".join([cell.text, *(line.text for line in piece.lines)]).strip()
            cell.text = _CELL_HYPHEN.sub("", text).replace("\n", " ")
            cell.x, cell.end = piece.x, piece.end
        yield cells


def _margin_numbers(rows: list[Row]) -> set[Line]:
    """Return the numbers of lines in the margin: beside text, and counting its lines."""
    in_margin: set[Line] = set()
    text = [piece for row in rows for piece in row if len(piece.text.split()) > 2]
    numbers = [piece for row in rows for piece in row if piece.text.isdecimal() and len(piece.text) < 5]
    if len(numbers) < 2 or 4 * sum(piece.text[0].islower() for piece in text) <= len(text):
        return in_margin
    left, right = min(piece.x for piece in text), max(piece.end for piece in text)
    for side in ([piece for piece in numbers if piece.end < left], [piece for piece in numbers if piece.x > right]):
        beside = [n for n in sorted(side, key=lambda n: -n.y) if any(abs(n.y - p.y) < 0.5 * p.size for p in text)]
        steps = {int(b.text) - int(a.text) for a, b in pairwise(beside)}
        between = [sum(b.y < p.y - 0.3 * p.size < a.y for p in text) for a, b in pairwise(beside)]
        step = max(steps, default=0)
        if len(steps) == 1 and len(beside) > (step == 1) + 1 and all(abs(n - step) <= 1 for n in between):
            in_margin.update(beside)
    return in_margin


# --- Form fields, and text that was typed onto a page


def read_fields(page: PdfPage) -> Iterator[Line]:
    """Yield the fields that are filled in, as "name: value" where each stands, and typed comments."""
    form = page.formenv.raw if page.formenv else None
    for index in range(pdfium.FPDFPage_GetAnnotCount(page.raw)):
        annot = pdfium.FPDFPage_GetAnnot(page.raw, index)
        if not annot:
            continue
        kind = pdfium.FPDFAnnot_GetSubtype(annot)
        text = ""
        if pdfium.FPDFAnnot_GetFlags(annot) & _UNSEEN:
            pass
        elif kind == pdfium.FPDF_ANNOT_FREETEXT:
            text = _string(lambda *to, annot=annot: pdfium.FPDFAnnot_GetStringValue(annot, b"Contents", *to))
        elif kind == pdfium.FPDF_ANNOT_WIDGET and form is not None:
            text = _value(form, annot)
        box = pdfium.FS_RECTF()
        if text and pdfium.FPDFAnnot_GetRect(annot, box):
            size = c_float()
            known = form is not None and pdfium.FPDFAnnot_GetFontSize(form, annot, size) and size.value > 1
            height = box.top - box.bottom
            em = min(size.value if known else _SIZE, max(height, 1.0))
            base = (box.bottom + (height - em) / 2 if height < 2.5 * em else box.top - em) + 0.2 * em
            for row, line in enumerate(text.splitlines()):
                yield Line(line, 0, box.left, base - 1.2 * em * row, em, end=box.right)
        pdfium.FPDFPage_CloseAnnot(annot)


def _value(form: Any, annot: Any) -> str:
    kind = pdfium.FPDFAnnot_GetFormFieldType(form, annot)
    if kind in _UNREAD or pdfium.FPDFAnnot_GetFormFieldFlags(form, annot) & 1 << 13:  # a password
        return ""
    read = [pdfium.FPDFAnnot_GetFormFieldAlternateName, pdfium.FPDFAnnot_GetFormFieldName]
    name = next((text for getter in read if (text := _string(lambda *to, getter=getter: getter(form, annot, *to)))), "")
    if kind in _BUTTONS:
        return f"{_MARKS[bool(pdfium.FPDFAnnot_IsChecked(form, annot))]} {name}"
    value = ", ".join(_chosen(form, annot)) or _string(lambda *to: pdfium.FPDFAnnot_GetFormFieldValue(form, annot, *to))
    return f"{name}: {value}" if value.strip() else ""


def _chosen(form: Any, annot: Any) -> Iterator[str]:
    """Yield the labels of the options that are chosen in a list; the field's own value is their names in the file."""
    for at in range(max(pdfium.FPDFAnnot_GetOptionCount(form, annot), 0)):
        if pdfium.FPDFAnnot_IsOptionSelected(form, annot, at):
            yield _string(lambda *to, at=at: pdfium.FPDFAnnot_GetOptionLabel(form, annot, at, *to))


def _string(read: Callable[..., int]) -> str:
    """Return a string that PDFium writes into a buffer, whose size in bytes it tells first."""
    size = read(None, 0)
    buffer = create_string_buffer(size)
    read(cast(buffer, POINTER(pdfium.FPDF_WCHAR)), size)
    return buffer.raw[: max(size - 2, 0)].decode("utf-16-le", "replace").replace("\r\n", "\n").replace("\r", "\n")
