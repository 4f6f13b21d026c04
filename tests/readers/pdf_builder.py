"""PDF files: each text where a test puts it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import reportlab
from pypdf import PdfReader, PdfWriter
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

Drawing = Callable[[Canvas], object]
LEFT, TOP, PITCH, SIZE = 60.0, 780.0, 14.0, 11.0


def at(x: float, y: float, *texts: str, size: float = SIZE, font: str = "", pitch: float = PITCH) -> Drawing:
    """Lines below one another, in the file's font."""

    def draw(canvas: Canvas) -> None:
        canvas.setFont(font or canvas._initialFontName, size)
        for row, text in enumerate(texts):
            canvas.drawString(x, y - pitch * row, text)

    return draw


def pdf(*pages: Iterable[str | Drawing], title: str = "", font: str = "Helvetica") -> bytes:
    """Draw pages: a string is the next line from the top, and "" a gap."""
    if font == "Vera":  # which has letters beyond those of Western Europe
        _register()
    out = io.BytesIO()
    canvas = Canvas(out, invariant=1, pageCompression=0, initialFontName=font)
    canvas.setTitle(title or None)
    for page in pages:
        row = 0
        for item in page:
            canvas.setFont(font, SIZE)
            (at(LEFT, TOP - PITCH * row, item) if isinstance(item, str) else item)(canvas)
            row += isinstance(item, str)
        canvas.showPage()
    canvas.save()
    return out.getvalue()


@cache
def _register() -> None:
    pdfmetrics.registerFont(TTFont("Vera", str(Path(reportlab.__file__).parent / "fonts" / "Vera.ttf")))


def rewritten(data: bytes, change: Callable[[PdfWriter], object]) -> bytes:
    """A PDF file after a change by pypdf."""
    writer, out = PdfWriter(clone_from=PdfReader(io.BytesIO(data)) if data else None), io.BytesIO()
    change(writer)
    writer.write(out)
    return out.getvalue()
