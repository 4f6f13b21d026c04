"""Text recognition (OCR) of pages that are pictures, by RapidOCR where it is installed: the extra `ocr`."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from itertools import accumulate
from typing import Any

import numpy as np
from pypdfium2 import PdfPage

from readers_eddy.pdf.glyphs import NO_GLYPHS, Glyphs

_PIXELS = 1_700
"""Length of a page's longer side: 150 dots an inch of A4, and less than 2 GB of memory."""
_THREADS = min(4, os.cpu_count() or 1)
"""Each of them takes part of the memory that the process may have."""
_LEAST_SCORE = 0.5
_TYPE, _ALIKE = 1.25, 0.3
"""Size of type in heights of its letters, and difference of heights that are of the same type."""
_MARGIN = 0.2
"""Width of what is white around a line in its box, of the height of the box."""
_PROSE, _COLUMN_LINES = 8.0, 3
"""Width of most lines of a column of prose, of their height, and least number of them."""
Box = tuple[float, float, float, float]
"""Left, bottom, right and top in points."""


def can_recognize() -> bool:
    """Return whether the packages of the extra are installed."""
    return all(find_spec(name) is not None for name in ("rapidocr", "onnxruntime"))


@cache
def _engine() -> Any:
    from rapidocr import RapidOCR

    threads = {f"EngineConfig.onnxruntime.{kind}_op_num_threads": _THREADS for kind in ("intra", "inter")}
    return RapidOCR(params={"Global.log_level": "error", "Global.use_cls": False, **threads})


def recognize(page: PdfPage) -> tuple[Glyphs, int]:
    """Return the glyphs of a page's picture, of a line in equal widths, and the number of unsure lines left out."""
    bitmap = page.render(scale=_PIXELS / max(page.get_size()))
    try:
        result = _engine()(bitmap.to_numpy())
    except Exception as error:
        raise MemoryError if "bad_alloc" in str(error) else error from None
    place = bitmap.get_posconv(page)
    lines, n_unsure = list[tuple[str, Box]](), 0
    texts, boxes = result.txts or (), () if result.boxes is None else result.boxes
    for text, box, score in zip(texts, boxes, result.scores or (), strict=True):
        if score < _LEAST_SCORE:
            n_unsure += 1
        elif text.strip():
            left, top = place.to_page(int(box[:, 0].min()), int(box[:, 1].min()))
            right, bottom = place.to_page(int(box[:, 0].max()), int(box[:, 1].max()))
            margin = _MARGIN * (top - bottom)
            aside = min(2 * margin, (right - left) / 4)
            lines.append((text, (left + aside, bottom + margin, right - aside, top - margin)))
    return _spread(_in_order(lines)), n_unsure


def _in_order(lines: list[tuple[str, Box]]) -> list[tuple[str, Box]]:
    """Return lines in the order of reading: columns of prose one after the other, all else from the top, row by row.

    By recursive cuts along white space (XY-cut).
    """
    for axis in (0, 1):
        ordered = sorted(lines, key=lambda line: line[1][axis])
        ends = accumulate((box[axis + 2] for _, box in ordered), max)
        gaps = [(after[1][axis] - end, at) for at, (end, after) in enumerate(zip(ends, ordered[1:], strict=False), 1)]
        for gap, at in sorted(gaps, reverse=True):
            parts = ordered[:at], ordered[at:]
            if gap > 0 and (axis or all(map(_is_prose, parts))):
                return [line for part in (reversed(parts) if axis else parts) for line in _in_order(part)]
    bottom = min((box[1] for _, box in lines), default=0.0)
    return [
        (text, (left, bottom, right, top)) for text, (left, _, right, top) in sorted(lines, key=lambda line: line[1])
    ]


def _is_prose(lines: list[tuple[str, Box]]) -> bool:
    wide = sum(box[2] - box[0] > _PROSE * (box[3] - box[1]) for _, box in lines)
    return len(lines) >= _COLUMN_LINES and 2 * wide > len(lines)


def _spread(lines: list[tuple[str, Box]]) -> Glyphs:
    """Return the letters of lines; type of nearly the most frequent height is taken for that, as boxes vary."""
    if not lines:
        return NO_GLYPHS
    heights = np.array([(box[3] - box[1]) * _TYPE for _, box in lines])
    usual = np.median(np.repeat(heights, [len(text) for text, _ in lines]))
    heights[np.abs(heights - usual) < _ALIKE * usual] = usual
    rows = []
    for number, ((text, (left, bottom, right, top)), size) in enumerate(zip(lines, heights.tolist(), strict=True)):
        edges = np.linspace(left, right, len(text) + 1).tolist()
        for at, sign in enumerate(text):
            if not sign.isspace():
                box = (edges[at], bottom, edges[at + 1], top)
                rows.append((ord(sign), *box, size, number, text[:at][-1:].isspace()))
    codes, left, bottom, right, top, sizes, runs, spaced = np.array(rows).T
    boxes = np.stack([left, bottom, right, top], 1)
    zeros: Any = np.zeros(len(rows), np.int64)
    return Glyphs(codes.astype(np.int32), boxes, bottom, sizes, zeros, runs, zeros, zeros > 0, spaced > 0, zeros)
