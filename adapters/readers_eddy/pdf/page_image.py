"""Draw a page of a PDF file as an image, with a part of its text marked; PDFium draws and finds the text."""

from __future__ import annotations

import io
import math
import re
import unicodedata

from PIL import Image, ImageChops, ImageDraw
from pypdfium2 import PdfDocument, PdfTextPage
from pypdfium2.raw import FPDFText_GetUnicode

_PIXELS = 2_000_000
_MAX_SIDE = 8_000
"""Maximum width and height in pixels, of pages that are very long or wide."""
_FILL, _OUTLINE, _MARGIN = "#ffe68c", "#b8860b", 3  # the margin in pixels
_QUALITY = 80  # of WebP, up to 100

Box = tuple[float, float, float, float]
"""Left, bottom, right and top in PDF units."""


def draw_page(data: bytes, page: int, before: str, text: str) -> tuple[bytes, bool]:
    """Draw one page, and mark a text where the page has it.

    Args:
        data: The PDF file.
        page: Number of the page, counted from 1.
        before: The text of the page before the marked one, which tells repetitions apart.
        text: The text to mark.

    Returns:
        An image in the format WebP, and whether the text was found and is marked.

    Raises:
        PdfiumError: If PDFium cannot open the file or its page.
    """
    with PdfDocument(data) as document:
        document.init_forms()  # else the fields of a form are left out
        drawn = document[page - 1]
        width, height = drawn.get_size()
        scale = min(math.sqrt(_PIXELS / (width * height)), _MAX_SIDE / max(width, height))
        bitmap = drawn.render(scale=scale)
        image = bitmap.to_pil().convert("RGB")
        boxes = find_text(drawn.get_textpage(), before, text)
        place = bitmap.get_posconv(drawn)
        colour, outline = Image.new("RGB", image.size, "white"), ImageDraw.Draw(image)
        for left, bottom, right, top in boxes:
            (x, y), (other_x, other_y) = place.to_bitmap(left, bottom), place.to_bitmap(right, top)
            low, high = (min(x, other_x), min(y, other_y)), (max(x, other_x), max(y, other_y))
            box = (low[0] - _MARGIN, low[1] - _MARGIN, high[0] + _MARGIN, high[1] + _MARGIN)
            ImageDraw.Draw(colour).rectangle(box, fill=_FILL)
            outline.rectangle(box, outline=_OUTLINE)  # which also shows on a dark page
    out = io.BytesIO()
    ImageChops.multiply(image, colour).save(out, "WEBP", quality=_QUALITY)
    return out.getvalue(), bool(boxes)


def find_text(page: PdfTextPage, before: str, text: str) -> list[Box]:
    """Return a box for each line of a text on a page; only letters and digits are compared, without accents."""
    signs = [
        (letter, at) for at in range(page.count_chars()) for letter in _letters(chr(FPDFText_GetUnicode(page, at)))
    ]
    wanted = _letters(text)
    starts = [match.start() for match in re.finditer(wanted, "".join(letter for letter, _ in signs))] if wanted else []
    if not starts:
        return []
    start = starts[min(_letters(before).count(wanted), len(starts) - 1)]
    first, last = signs[start][1], signs[start + len(wanted) - 1][1]
    return [page.get_rect(at) for at in range(page.count_rects(first, last - first + 1))]


def _letters(text: str) -> str:
    """Leave out what readers of PDF files disagree on: spaces, hyphens, ligatures, accents, bullets."""
    return "".join(letter for letter in unicodedata.normalize("NFKD", text).casefold() if letter.isalnum())
