"""Glyphs of a page to its lines, in the order in which people read: columns, tables by row, raised signs, drop caps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from readers_eddy.pdf.glyphs import Glyphs
from readers_eddy.pdf.paragraphs import Line
from readers_eddy.scripts import lowered, raised

_GAP = 0.75
"""White space between columns or cells, at least, as a share of the size of type; as `_WORD_GAP` between words."""
_WORD_GAP = 0.15
_MARK = re.compile(r"(?:[•‣◦▪■●○·*–—-]|\W|\(?\w{1,3}[.):]|\[\w{1,4}\]|\d{1,4}(?:\.\d{1,3})*)$")
"""What stands before an item, a note or a line of a listing: no column of its own."""
_COLUMN_WORDS, _FULL = 3.5, 0.5
"""Words in a line of a column of prose, at least, and share of its lines that nearly fill it."""
_CELL_WORDS = 6
"""Words in a line of the second of two cells from which it is prose that explains the first."""
_RTL = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")


@dataclass
class Piece:
    """Text on one baseline without a wide gap; positions along the direction of writing."""

    text: str
    x0: float
    x1: float
    y: float
    size: float
    first: int  # of its glyphs, in the order of drawing
    glyphs: tuple[int, ...]  # in PDFium's page of text
    row: list[Piece] = field(default_factory=list, repr=False)


def read_lines(glyphs: Glyphs, number: int, fields: Sequence[Piece] = ()) -> list[Line]:
    """Return the lines of a page in reading order; those at another angle than most, such as a stamp, come last."""
    lines: list[Line] = []
    for angle, _ in Counter(glyphs.angles.tolist() or [0] * bool(fields)).most_common():
        pieces = [*_pieces(glyphs.at(glyphs.angles == angle)), *(fields if not lines else ())]
        for own in fields if not lines else ():
            _name_once(own, pieces)
        pieces = _with_drop_caps(_with_scripts(pieces))
        for row in _ordered(_rows(pieces)):
            size = max(Counter({piece.size: len(piece.text) for piece in row}).items(), key=lambda item: item[1])[0]
            is_row = len(row) > 1 and row[0].row is row
            text = f"| {' | '.join(piece.text for piece in row)} |" if is_row else _joined(row)
            ids = tuple(at for piece in row for at in piece.glyphs)
            lines.append(Line(text, number, row[0].x0, row[0].y, size, angle, is_row, row[-1].x1, len(row), ids))
    return lines


def _name_once(own: Piece, pieces: list[Piece]) -> None:
    """Leave out the name of a form's field where the page says it before the field."""
    name, _, value = own.text.partition(": ")
    beside = (piece for piece in pieces if piece.x0 < own.x0 and abs(piece.y - own.y) < own.size and piece is not own)
    if value and any(name.casefold() in piece.text.casefold() for piece in beside):
        own.text = value


def _pieces(glyphs: Glyphs) -> list[Piece]:
    if not len(glyphs.codes):
        return []
    left, right, size, base = glyphs.boxes[:, 0], glyphs.boxes[:, 2], np.maximum(glyphs.sizes, 0.01), glyphs.baselines
    rtl = ((glyphs.codes >= 0x590) & (glyphs.codes < 0x900)) | ((glyphs.codes >= 0xFB1D) & (glyphs.codes < 0xFEFD))
    both = rtl[1:] & rtl[:-1]
    gap = np.where(both, left[:-1] - right[1:], left[1:] - right[:-1]) / size[1:]
    other = np.abs(np.diff(size)) > 0.06 * size[1:]
    breaks = other | (np.abs(np.diff(base)) > 0.06 * size[1:]) | (gap > _GAP) | (gap < -_GAP)
    borders = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(glyphs.codes)]
    wide = np.append((gap > 0.2) & ~breaks, False)  # the last one for the end
    # Letters that are set apart are no words.
    lone = np.repeat(np.add.reduceat(wide, borders[:-1]) * 2.5 > np.diff(borders), np.diff(borders))
    told = glyphs.spaced[1:] & ((np.diff(glyphs.runs) == 0) | (gap > 0.04))
    spaces = (told | (wide & ~lone)[:-1]) & ~breaks
    letters = [chr(code) for code in glyphs.codes]
    for at in np.flatnonzero(spaces).tolist():
        letters[at] += " "
    indices = glyphs.indices.tolist()
    return [
        Piece(
            "".join(letters[a:b]),
            float(left[a:b].min()),
            float(right[a:b].max()),
            float(base[a]),
            float(size[a]),
            indices[a],
            tuple(indices[a:b]),
        )
        for a, b in pairwise(borders)
    ]


def _with_scripts(pieces: list[Piece]) -> list[Piece]:
    """Put raised and lowered pieces on the baseline of the text that they touch."""
    by_height = sorted(pieces, key=lambda piece: -piece.y)
    for at, piece in enumerate(by_height):
        if len(piece.text) > 12:
            continue
        for base in _near(by_height, at):
            rise = (piece.y - base.y) / base.size
            if not 0.05 < abs(rise) < 0.75 or not _touches(piece, base):
                continue
            small = piece.size < 0.88 * base.size
            if small or (piece.text.isdigit() and rise > 0.2 and piece.size < 1.1 * base.size and base.x1 <= piece.x1):
                changed = raised(piece.text) if rise > 0 else lowered(piece.text)
                piece.text, piece.y, piece.size = changed, base.y, base.size
                break
    return by_height


def _near(pieces: list[Piece], at: int) -> Iterator[Piece]:
    for step in (-1, 1):
        other = at + step
        while 0 <= other < len(pieces) and abs(pieces[other].y - pieces[at].y) < 2 * pieces[at].size:
            yield pieces[other]
            other += step


def _touches(piece: Piece, base: Piece) -> bool:
    gaps = (piece.x0 - base.x1) / base.size, (base.x0 - piece.x1) / base.size
    return any(-0.25 < gap < 0.3 for gap in gaps)


def _with_drop_caps(pieces: list[Piece]) -> list[Piece]:
    """Join a large initial that hangs over several lines with the word that it begins."""
    if not pieces:
        return pieces
    usual = float(np.median([piece.size for piece in pieces]))
    words = Counter(word for piece in pieces for word in re.findall(r"[^\W\d_]+", piece.text.lower()))
    caps = [piece for piece in pieces if len(piece.text) <= 2 and piece.size > 1.8 * usual and piece.text[0].isupper()]
    for cap in caps:
        beside = [
            piece
            for piece in pieces
            if piece is not cap
            and -0.2 * usual <= piece.x0 - cap.x1 < 1.5 * usual
            and cap.y - 0.3 * usual <= piece.y < cap.y + cap.size
        ]
        if len({round(piece.y) for piece in beside}) < 2:
            continue
        first = max(beside, key=lambda piece: piece.y)
        word = (re.match(r"[^\W\d_]*", first.text) or [""])[0].lower()
        apart = cap.text in ("A", "I", "O") and words[word] > 1 and not words[cap.text.lower() + word]
        first.text = f"{cap.text}{' ' if apart else ''}{first.text}"
        first.glyphs = cap.glyphs + first.glyphs
        for piece in beside:
            piece.x0 = min(cap.x0, piece.x0)
        pieces.remove(cap)
    return pieces


def _rows(pieces: list[Piece]) -> list[list[Piece]]:
    """Gather pieces at one height, also those of a column whose lines are a little lower, from top to bottom."""
    rows: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda piece: (-piece.y, piece.x0)):
        for row in rows[: -4 if len(rows) > 3 else None : -1]:
            drop = (row[0].y - piece.y) / max(row[0].size, piece.size)
            apart = all(p.x0 - piece.x1 > _GAP * p.size or piece.x0 - p.x1 > _GAP * p.size for p in row)
            if drop < 0.25 or (drop < 0.7 and apart):
                row.append(piece)
                break
        else:
            rows.append([piece])
    return [_segments(row) for row in rows]


def _segments(row: list[Piece]) -> list[Piece]:
    """Join the pieces of a row that are next to each other, in the order of reading."""
    row.sort(key=lambda piece: piece.x0)
    joined: list[list[Piece]] = []
    for piece in row:
        if joined and piece.x0 - max(p.x1 for p in joined[-1]) <= _GAP * min(piece.size, joined[-1][-1].size):
            joined[-1].append(piece)
        else:
            joined.append([piece])
    return [_one(group) for group in joined]


def _one(group: list[Piece]) -> Piece:
    if len(group) == 1:
        return group[0]
    size = max(Counter({p.size: len(p.text) for p in group}).items(), key=lambda item: item[1])[0]
    main = next(piece for piece in group if piece.size == size)
    return Piece(
        _joined(group),
        min(piece.x0 for piece in group),
        max(piece.x1 for piece in group),
        main.y,
        size,
        min(piece.first for piece in group),
        tuple(at for piece in group for at in piece.glyphs),
    )


def _joined(row: Sequence[Piece]) -> str:
    if any(_RTL.search(piece.text) for piece in row):  # PDFium gives the order of reading
        return " ".join(piece.text for piece in sorted(row, key=lambda piece: piece.first))
    text = row[0].text
    for before, piece in pairwise(row):
        text += (" " if piece.x0 - before.x1 > _WORD_GAP * min(before.size, piece.size) else "") + piece.text
    return text


def _ordered(rows: list[list[Piece]]) -> list[list[Piece]]:
    """Return rows in reading order; those of a table know themselves as one."""
    out: list[list[Piece]] = []
    at = 0
    while at < len(rows):
        end, gutters = _band(rows, at)
        if not gutters:
            out.append(rows[at])
            at += 1
            continue
        band, at = rows[at:end], end
        for gutter in gutters:
            left = [own for row in band if (own := [piece for piece in row if piece.x1 <= gutter[1]])]
            right = [own for row in band if (own := [piece for piece in row if piece.x0 >= gutter[0]])]
            if _are_columns(left, right):
                out += [*_ordered(left), *_ordered(right)]
                break
        else:
            out += _table(band, gutters) if _is_table(band, gutters) else band
    return out


def _is_table(band: list[list[Piece]], gutters: list[Gutter]) -> bool:
    """Whether rows are a table, and no code with remarks, nor terms beside the prose that explains them."""
    if 2 * sum(len(row) > 1 for row in band) < len(band):
        return False
    lasts = [row[-1].text for row in band if row[-1].x0 >= gutters[-1][0]]
    words = sum(len(text.split()) for text in lasts) / len(lasts)
    return len(gutters) > 1 or words < _CELL_WORDS


Gutter = tuple[float, float]


def _band(rows: list[list[Piece]], start: int) -> tuple[int, list[Gutter]]:
    """Return the end of the rows from a first one on that share white space, and where that is, from left to right."""
    free: list[Gutter] = [(a.x1, b.x0) for a, b in pairwise(rows[start])]
    if len(rows[start]) == 1 and start + 1 < len(rows) and len(rows[start + 1]) > 1:
        if rows[start][0].x0 > rows[start + 1][0].x1:  # the right column begins higher
            free = [(a.x1, b.x0) for a, b in pairwise(rows[start + 1])]
    best: tuple[int, list[Gutter]] = (start, [])
    two_sided = 0
    for end in range(start, len(rows)):
        row = rows[end]
        space = [(-1e9, row[0].x0), *((a.x1, b.x0) for a, b in pairwise(row)), (row[-1].x1, 1e9)]
        size = min(piece.size for piece in row)
        shared = [(max(a, c), min(b, d)) for a, b in free for c, d in space]
        shared = [(a, b) for a, b in shared if b - a > 0.6 * size and _divides(rows[start : end + 1], (a, b))]
        if end > start and _is_apart(rows, start, end):
            break
        if not shared:
            break
        free = shared
        two_sided += len(row) > 1
        if two_sided > 1:
            best = end + 1, free
    return best


def _is_apart(rows: list[list[Piece]], start: int, end: int) -> bool:
    """Whether a row is below what stands side by side: far below, or larger, and on one side alone."""
    row, above = rows[end], rows[end - 1]
    gap, size = above[0].y - row[0].y, above[0].size
    usual = rows[start][0].y - rows[start + 1][0].y if end - start > 1 else size
    alone = len(row) == 1 and (gap > 1.8 * max(usual, size) or row[0].size > 1.12 * size)
    return alone or gap > max(3 * size, 1.6 * usual)


def _divides(rows: list[list[Piece]], gutter: Gutter) -> bool:
    """Whether there is more than marks of items on both sides."""
    left = [piece for row in rows for piece in row if piece.x1 <= gutter[0] + 0.01]
    right = [piece for row in rows for piece in row if piece.x0 >= gutter[1] - 0.01]
    return bool(left and right) and not all(_MARK.match(piece.text) for piece in left)


def _are_columns(left: list[list[Piece]], right: list[list[Piece]]) -> bool:
    """Whether two sides are columns, each read to its end, and no cells: lines of prose, or drawn one after another."""
    columns = [[piece for row in side for piece in row] for side in (left, right)]
    n_words = (sum(len(piece.text.split()) for piece in side) for side in columns)
    words = [n / len(side) for n, side in zip(n_words, (left, right), strict=True)]
    full = []
    for side in (left, right):
        x0, x1 = min(row[0].x0 for row in side), max(row[-1].x1 for row in side)
        full.append(sum(row[-1].x1 - row[0].x0 > 0.7 * (x1 - x0) for row in side) / len(side))
    if min(len(left), len(right)) >= 2 and min(words) >= _COLUMN_WORDS and min(full) >= _FULL:
        return True
    after = max(piece.first for piece in columns[0]) < min(piece.first for piece in columns[1])
    return after and max(words) >= 1.5 and min(len(left), len(right)) >= 3 and not _is_numeric(columns[1])


def _is_numeric(pieces: list[Piece]) -> bool:
    return 2 * sum(any(letter.isdigit() for letter in p.text) and len(p.text) < 12 for p in pieces) > len(pieces)


def _table(band: list[list[Piece]], gutters: list[Gutter]) -> list[list[Piece]]:
    """Return the rows of a table with as many cells each; lines that only continue cells are added to them."""
    rows: list[list[Piece]] = []
    for row in band:
        cells = [replace(row[0], text="", glyphs=()) for _ in range(len(gutters) + 1)]
        for piece in row:
            at = sum(piece.x0 >= (a + b) / 2 for a, b in gutters)
            cells[at] = _one([cells[at], piece]) if cells[at].text else piece
        if rows and not cells[0].text and rows[-1][0].y - row[0].y < 1.35 * row[0].size:
            for own, more in zip(rows[-1], cells, strict=True):
                own.text, own.glyphs = f"{own.text} {more.text}".strip(), own.glyphs + more.glyphs
            continue
        cells[0].row = cells
        rows.append(cells)
    return rows
