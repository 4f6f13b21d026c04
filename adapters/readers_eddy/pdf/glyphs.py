"""The glyphs of a PDF page, as PDFium finds them: only those that a reader sees, each once."""

from __future__ import annotations

import ctypes
import math
from collections import defaultdict
from collections.abc import Iterator
from ctypes import byref, c_float, c_uint, c_ulong, create_string_buffer
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import pypdfium2.raw as pdfium
from numpy.typing import NDArray
from pypdfium2 import PdfPage

_MODES_UNSEEN = (pdfium.FPDF_TEXTRENDERMODE_INVISIBLE, pdfium.FPDF_TEXTRENDERMODE_CLIP)
_LEAST_SIZE = 1.5
"""Least size of type in points that can be read, or a 500th of the height of a smaller page."""
_SCAN = 0.5
"""Share of a page from which its pictures are a scan, whose text is drawn invisibly on purpose."""
_LIGHT, _FAINT, _CONTRAST = 190, 25, 20
"""Of 255: colour that may be that of the paper, opacity that shows nothing, and contrast that can be seen."""
_HYPHEN, _UNKNOWN = 0x2D, 0xFFFD
_PIXELS = 4_000_000
_WHITE = (9, 10, 13, 32, 160)


def _fast(function: Any, result: Any, *arguments: Any) -> Any:
    """Return one of PDFium's functions without the checks of its arguments, for a call of each glyph."""
    prototype = ctypes.PYFUNCTYPE(result, *arguments)
    return prototype(ctypes.cast(function, ctypes.c_void_p).value or 0)


_PAGE, _AT, _TO = ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p
_UNICODE = _fast(pdfium.FPDFText_GetUnicode, ctypes.c_uint, _PAGE, _AT)
_BOX = _fast(pdfium.FPDFText_GetLooseCharBox, ctypes.c_int, _PAGE, _AT, _TO)
_ORIGIN = _fast(pdfium.FPDFText_GetCharOrigin, ctypes.c_int, _PAGE, _AT, _TO, _TO)
_OBJECT = _fast(pdfium.FPDFText_GetTextObject, ctypes.c_void_p, _PAGE, _AT)


@dataclass(frozen=True)
class Glyphs:
    """Glyphs of a page in the order of drawing, without white space; lengths in points, arrays of one length n."""

    codes: NDArray[np.int32]  # Unicode
    boxes: NDArray[np.float64]  # [n, 4]: left, bottom, right, top by the font's metrics, along the direction of writing
    baselines: NDArray[np.float64]
    sizes: NDArray[np.float64]
    angles: NDArray[np.int32]  # direction of writing in degrees
    runs: NDArray[np.int64]  # number of what was drawn at once
    fonts: NDArray[np.int64]  # a number for each name
    mono: NDArray[np.bool_]  # whether all glyphs of the font are of one width
    spaced: NDArray[np.bool_]  # whether white space comes before it
    indices: NDArray[np.int64]  # in PDFium's page of text

    def at(self, kept: NDArray[Any]) -> Glyphs:
        """Select glyphs by a mask or by indices."""
        return Glyphs(**{name: values[kept] for name, values in vars(self).items()})


_NOTHING: Any = np.empty((0, 4))
NO_GLYPHS = Glyphs(*[_NOTHING] * 10)


def read_glyphs(page: PdfPage) -> tuple[Glyphs, int]:
    """Return the glyphs of a page that can be seen, and the number of those that cannot."""
    text = page.get_textpage()
    n, raw = text.count_chars(), text.raw
    address = ctypes.cast(raw, ctypes.c_void_p).value
    codes = np.fromiter(map(_UNICODE, repeat(address), range(n)), np.int32, n)
    codes[codes == 2] = _HYPHEN  # PDFium's sign for a hyphen at a line end
    codes[codes == 0] = _UNKNOWN
    white = np.isin(codes, _WHITE)
    seen = np.flatnonzero(~white)
    if not len(seen):
        return NO_GLYPHS, 0
    origins, boxes, places = np.empty((len(seen), 2)), np.empty((len(seen), 4), np.float32), seen.tolist()
    at_x, at_box = origins.ctypes.data, boxes.ctypes.data
    for row, at in enumerate(places):
        _BOX(address, at, at_box + 16 * row)
        _ORIGIN(address, at, at_x + 16 * row, at_x + 16 * row + 8)
    corners = boxes[:, [0, 3, 2, 1]].astype(np.float64)  # FS_RECTF is left, top, right, bottom
    addresses = np.fromiter(map(_OBJECT, repeat(address), places), np.int64, len(places))
    _, first, runs = np.unique(addresses, return_index=True, return_inverse=True)
    drawn = [ctypes.cast(int(addresses[at]), pdfium.FPDF_PAGEOBJECT) for at in first]
    looks = [_look(raw, places[at], item) for at, item in zip(first, drawn, strict=True)]
    sizes, angles, fonts, modes, colours = map(np.array, zip(*looks, strict=True))
    mono, spaced = np.zeros(len(seen), np.bool_), np.diff(np.cumsum(white)[seen], prepend=0) > 0
    of_runs = sizes[runs], angles[runs], runs, fonts[runs]
    glyphs = Glyphs(codes[seen], corners, origins[:, 1], *of_runs, mono, spaced, seen)
    hidden = _hidden(page, glyphs, modes, colours, drawn)
    glyphs = glyphs.at(~hidden)
    _turn(glyphs, origins[~hidden])
    glyphs.mono[:] = _mono(glyphs)
    return glyphs.at(_once(glyphs)), int(hidden.sum())


def _look(text: Any, at: int, drawn: Any) -> tuple[float, int, int, int, tuple[int, ...]]:
    """Return size, angle, font, mode and colour (with opacity, of 255) of what was drawn at once."""
    matrix, name, colour = pdfium.FS_MATRIX(), create_string_buffer(128), [c_uint() for _ in range(4)]
    pdfium.FPDFText_GetMatrix(text, at, matrix)
    size = pdfium.FPDFText_GetFontSize(text, at) * math.hypot(matrix.c, matrix.d)
    angle = round(math.degrees(math.atan2(matrix.b, matrix.a)))
    pdfium.FPDFFont_GetBaseFontName(pdfium.FPDFTextObj_GetFont(drawn), name, 128)
    pdfium.FPDFPageObj_GetFillColor(drawn, *colour)
    mode = pdfium.FPDFTextObj_GetTextRenderMode(drawn)
    return size, angle, hash(name.value), mode, tuple(part.value for part in colour)


def _mono(glyphs: Glyphs) -> NDArray[np.bool_]:
    """Tell which glyphs are in fonts whose letters, of six kinds at least, are all of the width of those of code."""
    mono = np.zeros(len(glyphs.codes), np.bool_)
    widths = (glyphs.boxes[:, 2] - glyphs.boxes[:, 0]) / np.maximum(glyphs.sizes, 0.01)
    letters = (glyphs.codes < 0x250) & (glyphs.codes > 0x3A)
    for font in np.unique(glyphs.fonts):
        mine = glyphs.fonts == font
        of_font = mine & letters
        spans = widths[of_font]
        if len(spans) and np.ptp(spans) < 0.02 and 0.45 < spans[0] < 0.7 and len(np.unique(glyphs.codes[of_font])) > 5:
            mono[mine] = True
    return mono


def _hidden(
    page: PdfPage, glyphs: Glyphs, modes: NDArray[Any], colours: NDArray[Any], drawn: list[Any]
) -> NDArray[np.bool_]:
    """Tell which glyphs nobody sees: off the page, tiny, drawn invisibly, in the colour behind them, layers off."""
    left, bottom, right, top = page.get_cropbox()
    middle = (glyphs.boxes[:, :2] + glyphs.boxes[:, 2:]) / 2
    hidden = (middle < (left, bottom)).any(1) | (middle > (right, top)).any(1)
    hidden |= glyphs.sizes < min(_LEAST_SIZE, (top - bottom) / 500)
    unseen = np.isin(modes, _MODES_UNSEEN)[glyphs.runs]
    pictures, painted = 0.0, set[tuple[int, ...]]()
    for kind, box, colour in _objects(page):
        area = max(min(box[2], right) - max(box[0], left), 0) * max(min(box[3], top) - max(box[1], bottom), 0)
        if kind == pdfium.FPDF_PAGEOBJ_IMAGE:
            pictures += area
        elif colour and area > 36:
            painted.add(colour)
    if pictures < _SCAN * (right - left) * (top - bottom):
        hidden |= unseen
    faint = (modes == pdfium.FPDF_TEXTRENDERMODE_FILL) & ((colours[:, 3] < _FAINT) | (colours[:, :3].min(1) > _LIGHT))
    behind = np.array([*painted]).reshape(-1, 3)
    alike = (np.abs(colours[:, None, :3] - behind) < _CONTRAST).all(2).any(1)
    if (asked := (faint | alike)[glyphs.runs] & ~hidden & ~unseen).any():
        hidden[asked] |= _without_contrast(page, glyphs.boxes[asked])
    for runs in _layers(drawn):
        mine = np.isin(glyphs.runs, runs)
        if mine.any() and not _leaves_a_trace(page, [drawn[run] for run in runs]):
            hidden |= mine
    return np.asarray(hidden, np.bool_)


def _objects(page: PdfPage) -> Iterator[tuple[int, tuple[float, ...], tuple[int, ...]]]:
    """Yield kind, box and colour of the pictures and filled paths of a page."""
    for drawn in page.get_objects([pdfium.FPDF_PAGEOBJ_IMAGE, pdfium.FPDF_PAGEOBJ_PATH], max_depth=3):
        colour: tuple[int, ...] = ()
        edges = [c_float() for _ in range(4)]
        pdfium.FPDFPageObj_GetBounds(drawn.raw, *edges)
        box = tuple(edge.value for edge in edges)
        if drawn.type == pdfium.FPDF_PAGEOBJ_PATH:
            mode, stroke = ctypes.c_int(), pdfium.FPDF_BOOL()
            pdfium.FPDFPath_GetDrawMode(drawn.raw, byref(mode), byref(stroke))
            parts = [c_uint() for _ in range(4)]
            if mode.value and min(box[2] - box[0], box[3] - box[1]) > 6:
                pdfium.FPDFPageObj_GetFillColor(drawn.raw, *parts)
                colour = tuple(part.value for part in parts[:3])
        yield drawn.type, box, colour


def _image(page: PdfPage) -> tuple[NDArray[np.uint8], Any]:
    width, height = page.get_size()
    scale = min(3.0, math.sqrt(_PIXELS / (width * height)))
    bitmap = page.render(scale=scale, grayscale=True, may_draw_forms=False)
    return bitmap.to_numpy().copy().reshape(bitmap.height, bitmap.width), bitmap.get_posconv(page)


def _without_contrast(page: PdfPage, boxes: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Tell which boxes of a page are of one colour when it is drawn."""
    image, place = _image(page)
    flat = np.empty(len(boxes), np.bool_)
    for row, (left, bottom, right, top) in enumerate(boxes.tolist()):
        corners = (place.to_bitmap(left, bottom), place.to_bitmap(right, top))
        (x, x2), (y, y2) = (sorted(max(int(value), 0) for value in values) for values in zip(*corners, strict=True))
        part = image[y : y2 + 1, x : x2 + 1]
        flat[row] = not part.size or int(part.max()) - int(part.min()) < _CONTRAST
    return flat


def _layers(drawn: list[Any]) -> list[list[int]]:
    """Return the numbers of what belongs to each layer (optional content) that a page names."""
    runs_of: dict[bytes, list[int]] = defaultdict(list)
    for run, item in enumerate(drawn):
        for mark in range(max(pdfium.FPDFPageObj_CountMarks(item), 0)):
            handle = pdfium.FPDFPageObj_GetMark(item, mark)
            size, name = c_ulong(), create_string_buffer(512)
            characters = ctypes.cast(name, ctypes.POINTER(pdfium.FPDF_WCHAR))
            pdfium.FPDFPageObjMark_GetName(handle, characters, 512, size)
            if name.raw[: size.value] == "OC\0".encode("utf-16-le"):
                pdfium.FPDFPageObjMark_GetParamStringValue(handle, b"Name", characters, 512, size)
                runs_of[name.raw[: size.value]].append(run)
    return list(runs_of.values())


def _leaves_a_trace(page: PdfPage, drawn: list[Any]) -> bool:
    """Whether a page looks otherwise without what is drawn: a layer that is off does not."""
    whole = _image(page)[0]
    for item in drawn:
        pdfium.FPDFPageObj_SetIsActive(item, False)
    without = _image(page)[0]
    for item in drawn:
        pdfium.FPDFPageObj_SetIsActive(item, True)
    return bool((whole != without).any())


def _turn(glyphs: Glyphs, origins: NDArray[np.float64]) -> None:
    """Turn the positions of glyphs at an angle, so that x runs along the direction of writing."""
    turned = np.flatnonzero(glyphs.angles)
    angle = np.radians(glyphs.angles[turned])
    cos, sin = np.cos(angle), np.sin(angle)
    left, bottom, right, top = glyphs.boxes[turned].T
    xs = np.stack([x * cos + y * sin for x in (left, right) for y in (bottom, top)])
    ys = np.stack([y * cos - x * sin for x in (left, right) for y in (bottom, top)])
    glyphs.boxes[turned] = np.stack([xs.min(0), ys.min(0), xs.max(0), ys.max(0)], 1)
    glyphs.baselines[turned] = origins[turned, 1] * cos - origins[turned, 0] * sin


def _once(glyphs: Glyphs) -> NDArray[np.int64]:
    """Return the indices without glyphs drawn again over themselves, as some programs make bold type and shadows."""
    left, right, sizes = glyphs.boxes[:, 0], glyphs.boxes[:, 2], np.round(np.maximum(glyphs.sizes, 1), 2)
    again = np.zeros(len(left), np.bool_)
    for shift in (0.0, 0.5):
        rows = np.floor(glyphs.baselines / (0.3 * sizes) + shift)  # rows of one size of type alone can be compared
        keys = (rows, sizes, glyphs.angles, glyphs.codes)
        order = np.lexsort((glyphs.indices, left, *keys))
        a, b = order[:-1], order[1:]
        same = np.all([key[a] == key[b] for key in keys], axis=0)
        width, other = right[a] - left[a], right[b] - left[b]
        over = (left[b] - left[a] < 0.4 * width) & (np.abs(width - other) < 0.1 * width)
        # The letters of a ligature share one place; they follow one another in what was drawn at once.
        ligature = (glyphs.runs[a] == glyphs.runs[b]) & (np.abs(glyphs.indices[b] - glyphs.indices[a]) == 1)
        doubled = same & over & ~ligature
        again[np.maximum(a[doubled], b[doubled])] = True
    return np.flatnonzero(~again)
